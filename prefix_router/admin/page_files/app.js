// Asks the router for its numbers again and again, shows them, and does what is pressed.

import { $, h, mark, say } from "./dom.js";
import { Refused, call, hasToken } from "./api.js";
import { prepare, showFleet } from "./fleet.js";
import { showHistory, showKeys, showStatus } from "./overview.js";
import * as explaining from "./explain.js";

const STATUS_MS = 2000;
const HISTORY_EVERY = 5;
const STALE_MS = 10000;

let status = null;
let history = null;
let heardAt = null;
let round = 0;
let keysClosed = false;

// Puts what is new behind what is known; both are columns of numbers that begin with slot `first`.
function joined(old, fresh) {
  const keep = fresh.first - old.first;
  if (keep < 0) return fresh;
  const drop = Math.max(keep + fresh.requests.length - fresh.length, 0);
  const join = (before, after) => [...before.slice(drop, keep), ...after];
  const result = { ...fresh, first: old.first + drop };
  for (const name of ["requests", "errors", "prompt", "cached", "p50", "p90", "p99"]) result[name] = join(old[name], fresh[name]);
  for (const kind of ["reasons", "outcomes"]) {
    if (!fresh[kind]) continue;
    const names = new Set([...Object.keys(old[kind]), ...Object.keys(fresh[kind])]);
    const zeros = (column, length) => column ?? new Array(length).fill(0);
    result[kind] = Object.fromEntries([...names].map((name) =>
      [name, join(zeros(old[kind][name], old.requests.length), zeros(fresh[kind][name], fresh.requests.length))]));
  }
  return result;
}

async function readHistory() {
  const query = history ? `?since=${history.next}&epoch=${history.epoch}` : "";
  const fresh = await call("GET", `/history${query}`);
  if (history && history.epoch === fresh.epoch) {
    fresh.fleet = joined(history.fleet, fresh.fleet);
    for (const [name, series] of Object.entries(fresh.backends)) {
      if (Object.hasOwn(history.backends, name)) fresh.backends[name] = joined(history.backends[name], series);
    }
  }
  history = fresh;
  showHistory(history);
}

async function readKeys() {
  if (keysClosed && !hasToken()) return;
  try {
    showKeys(await call("GET", "/keys"), false);
    keysClosed = false;
  } catch (error) {
    if (!(error instanceof Refused) || (error.status !== 401 && error.status !== 429)) throw error;
    keysClosed = true;
    showKeys(null, true);
  }
}

// Says what changed, once, and not with every number.
function announce(before, after) {
  if (!before) return;
  const known = new Map(before.backends.map((backend) => [backend.name, backend]));
  const news = after.backends.flatMap((backend) => {
    const old = known.get(backend.name);
    if (!old) return [`${backend.name} joined`];
    return old.state === backend.state ? [] : [`${backend.name} is ${backend.state.replaceAll("_", "-")}`];
  });
  const stayed = new Set(after.backends.map((backend) => backend.name));
  for (const name of known.keys()) if (!stayed.has(name)) news.push(`${name} left`);
  if (news.length) say($("spoken"), news.slice(0, 5).join(", ") + (news.length > 5 ? ` and ${news.length - 5} more` : ""));
}

function showLink(trouble) {
  const link = $("link");
  say(link, trouble ? "not reached" : "live");
  mark(link, "data-kind", trouble ? "bad" : "good");
  const old = heardAt === null || performance.now() - heardAt > STALE_MS;
  document.querySelector("main").classList.toggle("stale", trouble && old);
  const banner = $("banner");
  banner.hidden = !trouble;
  if (trouble) say(banner, heardAt === null ? "The router cannot be reached. Trying again." : `The router cannot be reached. What you see is old; it was true at ${clockTime()}.`);
}

let heardClock = null;
const clockTime = () => heardClock.toLocaleTimeString();

async function look() {
  try {
    const fresh = await call("GET", "/status");
    announce(status, fresh);
    status = fresh;
    heardAt = performance.now();
    heardClock = new Date();
    showStatus(status);
    if (round % HISTORY_EVERY === 0) {
      await readHistory();
      await readKeys();
    }
    round += 1;
    showFleet(status, history);
    showLink(false);
  } catch (error) {
    round = 0;
    showLink(true);
  }
}

async function forever() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((resolve) => { setTimeout(resolve, STATUS_MS); });
  }
}

function confirmed(title, text, yes) {
  return new Promise((resolve) => {
    const dialog = $("confirm");
    say($("confirm-title"), title);
    say($("confirm-text"), text);
    say($("confirm-yes"), yes);
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });
}

function trouble(error) {
  return error instanceof Refused ? error.message : "The router cannot be reached.";
}

async function setDraining(name, does) {
  if (does === "drain" && !await confirmed(`Drain ${name}?`, "It gets no new requests; what runs there finishes. Its keys go to the next backend on the ring until you undrain it.", "Drain")) return;
  try {
    const backend = await call("POST", `/backends/${encodeURIComponent(name)}/${does}`, { patient: true });
    if (status) status.backends = status.backends.map((each) => (each.name === name ? backend : each));
    if (status) showFleet(status, history);
    say($("spoken"), does === "drain" ? `${name} is draining` : `${name} takes requests again`);
  } catch (error) {
    report(`${does === "drain" ? "Drain" : "Undrain"} ${name}`, h("p", { class: "trouble" }, trouble(error)));
  }
}

function report(title, ...parts) {
  say($("reloaded-title"), title);
  $("reloaded-body").replaceChildren(...parts);
  $("reloaded").hidden = false;
  $("reloaded").focus();
}

const side = (value) => (value === undefined ? "nothing" : JSON.stringify(value));
const changes = (list) => h("ul", { class: "changes" }, ...list.map((change) => h("li", {}, h("code", {}, change.path), `: ${side(change.old)} → ${side(change.new)}`)));

async function reload() {
  $("reload").disabled = true;
  try {
    const done = await call("POST", "/reload", { patient: true });
    const parts = [done.applied.length ? h("p", {}, "In force now:") : h("p", {}, "In force. Nothing in the file differs from what was running.")];
    if (done.applied.length) parts.push(changes(done.applied));
    if (done.needs_restart.length) parts.push(h("p", {}, "Keeps its old value until the router is restarted:"), changes(done.needs_restart));
    report("Configuration reloaded", ...parts);
  } catch (error) {
    const parts = [h("p", { class: "trouble" }, trouble(error))];
    const problems = error.document?.problems ?? [];
    if (problems.length) parts.push(h("ul", { class: "changes" }, ...problems.map((problem) =>
      h("li", {}, h("code", {}, `${problem.source || "configuration"}${problem.line ? `:${problem.line}` : ""} ${problem.path ?? ""}`), ` ${problem.message}`))));
    report("Not reloaded", ...parts);
  } finally {
    $("reload").disabled = false;
  }
}

async function explain(event) {
  event.preventDefault();
  const asked = explaining.read($("explain-input").value);
  if (!asked.body.trim()) { explaining.fail("Paste a request body, or a curl command with one."); return; }
  try {
    const query = asked.path ? `?path=${encodeURIComponent(asked.path)}` : "";
    explaining.show(await call("POST", `/explain${query}`, { body: asked.body, headers: { ...asked.headers, "Content-Type": "application/json" }, patient: true }));
  } catch (error) {
    explaining.fail(error instanceof Refused ? error.message : "The router cannot be reached, or a header of the command cannot be sent by a browser.");
  }
}

prepare(setDraining);
$("reload").addEventListener("click", reload);
$("reloaded-close").addEventListener("click", () => { $("reloaded").hidden = true; $("reload").focus(); });
$("explain").addEventListener("submit", explain);
document.addEventListener("visibilitychange", () => { round = 0; });
forever();
