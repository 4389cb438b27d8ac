// The table of backends. Rows are kept and changed in place, so that focus and selection survive an update.

import { $, age, count, duration, h, mark, percent, say } from "./dom.js";
import { bar, spark } from "./charts.js";

const WORST_FIRST = ["down", "ejected", "half_open", "warming", "starting", "healthy"];
const number = (value) => value ?? -1;

const COLUMNS = [
  { id: "name", title: "Backend", value: (row) => row.name },
  { id: "state", title: "State", value: (row) => WORST_FIRST.indexOf(row.state) + (row.draining ? 0 : 0.5) },
  { id: "in_flight", title: "In flight", numeric: true, value: (row) => row.in_flight },
  { id: "share", title: "Share", numeric: true, value: (row) => number(row.share) },
  { id: "hits", title: "Hit rate", numeric: true, value: (row) => number(row.hit_rate) },
  { id: "p50", title: "TTFT P50", numeric: true, value: (row) => number(row.quantiles[0]) },
  { id: "p90", title: "P90", numeric: true, value: (row) => number(row.quantiles[1]) },
  { id: "p99", title: "P99", numeric: true, value: (row) => number(row.quantiles[2]) },
  { id: "hour", title: "P50, 60 minutes" },
  { id: "engine", title: "Engine", value: (row) => number(row.engine?.kv_cache_usage_ratio) },
  { id: "action", title: "Action" },
];

let sorted = { id: "name", down: false };
let latest = [];
let act = () => {};
const rows = new Map();
const heads = new Map();

export function prepare(onAction) {
  act = onAction;
  for (const column of COLUMNS) {
    const inside = column.value ? h("button", { type: "button", onclick: () => sortBy(column.id) }, column.title) : column.title;
    const head = h("th", { scope: "col", class: column.numeric ? "n" : null }, inside);
    heads.set(column.id, head);
    $("fleet-head").append(head);
  }
  $("filter").addEventListener("input", draw);
}

function sortBy(id) {
  sorted = { id, down: sorted.id === id ? !sorted.down : id !== "name" && id !== "state" };
  draw();
}

export function showFleet(status, history) {
  const weights = status.backends.reduce((sum, backend) => sum + backend.weight, 0);
  const series = history?.backends ?? {};
  const all = status.backends.reduce((sum, backend) => sum + (series[backend.name]?.recent.requests ?? 0), 0);
  latest = status.backends.map((backend) => {
    const own = Object.hasOwn(series, backend.name) ? series[backend.name] : null;
    return {
      ...backend,
      share: own && all ? own.recent.requests / all : null,
      expected: weights ? backend.weight / weights : null,
      hit_rate: own?.recent.hit_rate ?? null,
      quantiles: own?.recent.first_token_seconds ?? [null, null, null],
      hour: own ? own.p50 : [],
      change: own?.change ?? null,
      threshold: backend.max_in_flight ?? status.concurrency_threshold ?? null,
    };
  });
  draw();
}

function matches(row, wanted) {
  const text = [row.name, row.url, row.state, row.draining ? "draining" : "", ...(row.models ?? [])].join(" ").toLowerCase();
  return wanted.split(/\s+/).every((word) => text.includes(word));
}

function draw() {
  const column = COLUMNS.find((each) => each.id === sorted.id);
  const wanted = $("filter").value.trim().toLowerCase();
  const shown = latest.filter((row) => matches(row, wanted));
  shown.sort((a, b) => {
    const [one, two] = [column.value(a), column.value(b)];
    const order = typeof one === "string" ? one.localeCompare(two, undefined, { numeric: true }) : one - two;
    return (sorted.down ? -order : order) || a.name.localeCompare(b.name, undefined, { numeric: true });
  });
  for (const [id, head] of heads) mark(head, "aria-sort", id === sorted.id ? (sorted.down ? "descending" : "ascending") : null);
  const names = new Set(latest.map((row) => row.name));
  for (const [name, kept] of rows) if (!names.has(name)) { kept.line.remove(); rows.delete(name); }
  const lines = shown.map((row) => {
    if (!rows.has(row.name)) rows.set(row.name, makeRow(row.name));
    const kept = rows.get(row.name);
    fill(kept, row);
    return kept.line;
  });
  const body = $("fleet-body");
  if (lines.length !== body.children.length || lines.some((line, at) => body.children[at] !== line)) {
    const focused = document.activeElement;
    body.replaceChildren(...lines);
    if (focused && focused !== document.activeElement && body.contains(focused)) focused.focus();
  }
  say($("backends-count"), latest.length && shown.length !== latest.length ? `${shown.length} of ${latest.length}` : String(latest.length));
  showEmpty(wanted, shown.length);
}

function showEmpty(wanted, count) {
  const empty = $("empty");
  empty.hidden = count > 0;
  $("fleet").hidden = count === 0;
  if (count > 0) return;
  const text = latest.length ? `No backend matches “${wanted}”.` : "";
  if (empty.dataset.shown === text && empty.childElementCount) return;
  empty.dataset.shown = text;
  empty.replaceChildren(...(latest.length ? [h("p", {}, text)] : [
    h("h3", {}, "No backends yet"),
    h("p", {}, "Write some under “backends:” in the configuration file and reload, start with --backend http://host:8000, or have them found: “discovery:” looks in a file, in DNS or in Kubernetes. Until then every request is answered with 503."),
  ]));
}

function makeRow(name) {
  const cells = Object.fromEntries(COLUMNS.map((column) => [column.id, h("td", { class: column.numeric ? "n" : null })]));
  const kept = { cells, hour: null, title: h("span", { class: "cut" }, name), url: h("span", { class: "under" }) };
  cells.name = h("th", { scope: "row", class: "name", title: name }, kept.title, kept.url);
  kept.state = h("span", { class: "state" });
  kept.drained = h("span", { class: "drained", hidden: true }, "draining");
  kept.since = h("span", { class: "under" });
  cells.state.append(kept.state, " ", kept.drained, kept.since);
  kept.button = h("button", { type: "button", onclick: () => act(name, kept.button.dataset.does) });
  cells.action.append(kept.button);
  kept.line = h("tr", {}, ...COLUMNS.map((column) => cells[column.id]));
  return kept;
}

function fill(kept, row) {
  const { cells } = kept;
  const models = row.models === null ? "models not known" : row.models.join(", ");
  say(kept.url, `${row.url} · ${models}`);
  mark(kept.url, "title", `${row.url} · ${models}`);
  say(kept.state, row.state.replaceAll("_", "-"));
  mark(kept.state, "data-state", row.state);
  kept.drained.hidden = !row.draining;
  const change = row.change && row.change.state === row.state ? row.change : null;
  const phases = Object.entries(row.startup ?? {}).filter(([, seconds]) => seconds > 0).map(([phase, seconds]) => `${phase.replaceAll("_", " ")} after ${age(seconds)}`);
  say(kept.since, [change ? `${age(change.seconds_ago)} · ${change.cause}` : "", phases.at(-1) ?? ""].filter(Boolean).join(" · "));
  mark(kept.since, "title", [change?.cause, ...phases].filter(Boolean).join("\n") || null);
  const limit = row.threshold ? ` / ${row.threshold}` : "";
  replace(cells.in_flight, `${row.in_flight}${limit}`, () => [`${row.in_flight}${limit}`, row.threshold ? bar(row.in_flight / row.threshold) : null]);
  replace(cells.share, `${percent(row.share)} ${percent(row.expected)}`, () => [percent(row.share), h("span", { class: "under" }, `${percent(row.expected)} by weight`)]);
  say(cells.hits, percent(row.hit_rate));
  ["p50", "p90", "p99"].forEach((id, at) => say(cells[id], duration(row.quantiles[at])));
  const hour = JSON.stringify(row.hour);
  if (kept.hour !== hour) {
    kept.hour = hour;
    cells.hour.replaceChildren(spark(row.hour, { label: `Median time to first token of ${row.name}, 60 minutes`, unit: duration }));
  }
  const engine = row.engine;
  const text = engine === null ? "–" : `${count(engine.requests_running)} run, ${count(engine.requests_waiting)} wait`;
  const under = engine === null ? "" : `KV cache ${percent(engine.kv_cache_usage_ratio)}, hits ${percent(engine.prefix_cache_hit_rate)}`;
  replace(cells.engine, text + under, () => [text, h("span", { class: "under" }, under)]);
  const does = row.draining ? "undrain" : "drain";
  mark(kept.button, "data-does", does);
  say(kept.button, does === "drain" ? "Drain" : "Undrain");
  mark(kept.button, "aria-label", `${does === "drain" ? "Drain" : "Undrain"} ${row.name}`);
}

function replace(cell, shown, make) {
  if (cell.dataset.shown === shown) return;
  cell.dataset.shown = shown;
  cell.replaceChildren(...make().filter((part) => part !== null));
}
