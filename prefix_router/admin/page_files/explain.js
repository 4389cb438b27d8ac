// The explain box: reads what was pasted, and shows what the router says of it.

import { $, h, words } from "./dom.js";

// Splits a command line as a POSIX shell would, as far as curl commands need it.
function split(text) {
  const found = [];
  const pattern = /\s+|\\\r?\n|\$?'((?:[^'\\]|\\[^])*?)'|'([^']*)'|"((?:[^"\\]|\\[^])*)"|\\([^])|([^\s'"\\]+)/g;
  let word = null;
  for (const [all, , single, double, escaped, plain] of text.replaceAll("'\\''", "\\u0027").matchAll(pattern)) {
    if (/^(\s|\\\r?\n)/.test(all)) { if (word !== null) found.push(word); word = null; continue; }
    const part = all.startsWith("'") ? all.slice(1, -1) : single ?? (double !== undefined ? double.replace(/\\(["\\$`])/g, "$1") : escaped ?? plain ?? "");
    word = (word ?? "") + part;
  }
  if (word !== null) found.push(word);
  return found;
}

// Gives {body, path, headers}. What is no curl command is a body as it stands.
export function read(text) {
  if (!/^\s*(\$\s*)?curl\s/.test(text)) return { body: text, path: null, headers: {} };
  const parts = split(text.trim().replace(/^\$\s*/, ""));
  const asked = { body: "", path: null, headers: {} };
  for (let at = 1; at < parts.length; at += 1) {
    const part = parts[at];
    if (["-d", "--data", "--data-raw", "--data-binary", "--json"].includes(part)) asked.body = parts[at += 1] ?? "";
    else if (part === "-H" || part === "--header") {
      const [, name, value] = /^([^:]+):\s*(.*)$/.exec(parts[at += 1] ?? "") ?? [];
      // Credentials are of no use to an explanation, and the admin token has its own place.
      if (name && !/^(authorization|cookie|host|content-length|content-type|x-api-key)$/i.test(name)) asked.headers[name] = value;
    } else if (/^https?:\/\//.test(part)) {
      try { asked.path = new URL(part).pathname; } catch { /* said without a path */ }
    }
  }
  return asked;
}

const went = (decision) => (decision ? `${decision.backend} (${words(decision.reason)})` : "nobody");

export function show(explanation) {
  const facts = [["Goes to", went(explanation.decision)]];
  if (explanation.decision?.expected_cached_tokens !== undefined) facts.push(["Expected in its cache", `${explanation.decision.expected_cached_tokens} tokens`]);
  facts.push(["Home", explanation.home ?? "none"]);
  facts.push(["If home were full", went(explanation.if_home_were_full)], ["If home were down", went(explanation.if_home_were_down)]);
  const prefix = explanation.prefix;
  facts.push(["Key", explanation.key === null ? `none: ${words(explanation.keyless_cause ?? "")}` : `${explanation.key}${prefix ? `, over ${prefix.counted} ${prefix.unit}` : ""}`]);
  facts.push(["Read as", `${explanation.path} (${explanation.api}), model ${explanation.model ?? "not named"}`]);
  if (explanation.ring_order?.length) facts.push(["Ring order", explanation.ring_order.map((entry) => entry.backend).join(" → ")]);
  const parts = [h("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))];
  if (explanation.refused) parts.unshift(h("p", { class: "trouble" }, `It would be refused. ${explanation.refused}`));
  if (explanation.hashed_text) parts.push(h("div", {}, h("p", { class: "quiet" }, "The text that decides"), h("pre", { tabindex: 0 }, explanation.hashed_text)));
  $("explained").replaceChildren(...parts);
}

export function fail(message) {
  $("explained").replaceChildren(h("p", { class: "trouble" }, message));
}
