// The head of the page, its tiles, and what happened over time.

import { $, age, count, duration, h, mark, percent, rate, say, words } from "./dom.js";
import { gather, spark, thin } from "./charts.js";

const POINTS = 90;

function tile(id, title) {
  const parts = { value: h("dd", { class: "value" }, "–"), note: h("dd", { class: "note" }), chart: h("dd", { class: "chart" }) };
  $("tiles").append(h("div", { class: "tile", id: `tile-${id}` }, h("dt", {}, title), parts.value, parts.chart, parts.note));
  return parts;
}

const tiles = {
  requests: tile("requests", "Requests per second"),
  hits: tile("hits", "Observed hit rate"),
  ttft: tile("ttft", "TTFT P50"),
  tail: tile("tail", "TTFT P90"),
  active: tile("active", "Active"),
  waiting: tile("waiting", "Waiting"),
  errors: tile("errors", "Errors"),
  config: tile("config", "Configuration"),
};

export function showStatus(status) {
  say($("about"), `${status.version} · ${words(status.strategy)} · up ${age(status.uptime_seconds)}`);
  say(tiles.active.value, count(status.active_requests));
  say(tiles.active.note, `${count(status.totals.requests)} since the start`);
  say(tiles.waiting.value, count(status.waiting_requests));
  say(tiles.waiting.note, status.waiting_requests ? "in line for a backend" : "nobody in line");
  const configuration = status.configuration;
  if (configuration) {
    say(tiles.config.value, configuration.last_reload_succeeded ? "in force" : "not as on disk");
    mark(tiles.config.value, "data-kind", configuration.last_reload_succeeded ? null : "bad");
    say(tiles.config.note, configuration.last_reload_succeeded ? `for ${age(configuration.seconds_in_force)}` : "the last reload was refused");
  }
  const sources = (status.discovery ?? []).map((source) =>
    `${source.up ? "●" : "✕"} ${source.source}: ${source.backends} found${source.error ? `, ${source.error}` : ""}`);
  if ($("discovery").dataset.shown !== sources.join("\n")) {
    $("discovery").dataset.shown = sources.join("\n");
    $("discovery").replaceChildren(...(sources.length ? [h("p", { class: "sources" }, ...sources.map((text) => h("span", {}, text)))] : []));
  }
}

export function showHistory(history) {
  const fleet = history.fleet;
  const { sums, size } = gather(fleet.requests, POINTS);
  const seconds = fleet.seconds * size;
  // The last slot is not over: what is said of "now" is the three before it.
  const over = fleet.requests.slice(-4, -1);
  const now = over.length ? over.reduce((a, b) => a + b, 0) / (over.length * fleet.seconds) : null;
  say(tiles.requests.value, rate(now));
  say(tiles.requests.note, "last 30 seconds");
  tiles.requests.chart.replaceChildren(spark(sums.slice(0, -1).map((sum) => sum / seconds), { label: "Requests per second, 60 minutes", unit: rate }));
  const prompt = gather(fleet.prompt, POINTS).sums;
  const cached = gather(fleet.cached, POINTS).sums;
  say(tiles.hits.value, percent(fleet.recent.hit_rate));
  say(tiles.hits.note, "cached of prompt tokens, 5 minutes");
  tiles.hits.chart.replaceChildren(spark(prompt.map((all, at) => (all ? cached[at] / all : null)), { label: "Hit rate, 60 minutes", unit: percent, top: 1 }));
  const [p50, p90, p99] = fleet.recent.first_token_seconds ?? [null, null, null];
  say(tiles.ttft.value, duration(p50));
  say(tiles.ttft.note, "of streams, 5 minutes");
  tiles.ttft.chart.replaceChildren(spark(thin(fleet.p50, POINTS), { label: "Median time to first token, 60 minutes", unit: duration }));
  say(tiles.tail.value, duration(p90));
  say(tiles.tail.note, `P99 ${duration(p99)}`);
  tiles.tail.chart.replaceChildren(spark(thin(fleet.p90, POINTS), { label: "P90 of the time to first token, 60 minutes; P99 dashed", unit: duration, second: thin(fleet.p99, POINTS) }));
  const { requests, errors } = fleet.recent;
  say(tiles.errors.value, requests ? percent(errors / requests) : "–");
  mark(tiles.errors.value, "data-kind", errors ? "bad" : null);
  say(tiles.errors.note, `${count(errors)} of ${count(requests)}, 5 minutes`);
  multiples($("reasons"), fleet.reasons, fleet.seconds);
  multiples($("outcomes"), fleet.outcomes, fleet.seconds);
}

// One small chart for each kind, all on one scale, the most frequent first.
function multiples(box, columns, seconds) {
  const kinds = Object.entries(columns).map(([name, column]) => ({ name, column, total: column.reduce((a, b) => a + b, 0) }));
  kinds.sort((a, b) => b.total - a.total);
  const all = kinds.reduce((sum, kind) => sum + kind.total, 0);
  if (!all) {
    box.replaceChildren(h("p", { class: "quiet" }, "No request has ended yet."));
    return;
  }
  const gathered = kinds.map((kind) => gather(kind.column, POINTS));
  const top = Math.max(...gathered.flatMap((each) => each.sums));
  box.replaceChildren(...kinds.map((kind, at) => h("div", { class: "multiple" },
    h("b", {}, words(kind.name)),
    spark(gathered[at].sums, { label: `${words(kind.name)}, requests for each ${age(seconds * gathered[at].size)}, 60 minutes`, unit: count, top }),
    h("div", { class: "figures" }, percent(kind.total / all), h("span", {}, count(kind.total))))));
}

export function showKeys(document, refused) {
  const note = refused ? "needs the admin token" : document.keys.length ? `${count(document.counted_keys)} keys counted; counts halve every ${age(document.half_life_seconds)}` : "";
  say($("keys-note"), note);
  if (!document?.keys.length) {
    $("keys").replaceChildren(h("tr", {}, h("td", { colspan: 6, class: "quiet" }, refused ? "Explain or drain something: you are then asked for the token, and the keys are shown." : "No request with a key has ended yet.")));
    return;
  }
  $("keys").replaceChildren(...document.keys.map((entry) => {
    const places = Object.entries(entry.backends).map(([name, share]) => `${name} ${percent(share)}`).join(", ");
    return h("tr", {}, h("th", { scope: "row", class: "key" }, entry.key), h("td", { class: "n" }, count(entry.requests)),
      h("td", { class: "n" }, percent(entry.share)), h("td", { class: "n" }, percent(entry.hit_rate)),
      h("td", { class: "name", title: entry.home ?? "" }, h("span", { class: "under" }, entry.home ?? "–")),
      h("td", { title: places }, h("span", { class: "under" }, places || "–")));
  }));
}
