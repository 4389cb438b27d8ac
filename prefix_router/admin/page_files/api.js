// Talks to the listener that the page came from, and to nobody else.

import { $, say } from "./dom.js";

const KEY = "prefix-router-admin-token";
const TIMEOUT_MS = 8000;

export class Refused extends Error {
  constructor(status, document) {
    super(document?.error ?? `the router answers ${status}`);
    this.status = status;
    this.document = document;
  }
}

let asking = null;

// Asks for the token, one question at a time. Gives false when there is no answer.
function askForToken(why) {
  asking ??= new Promise((resolve) => {
    const dialog = $("token");
    say($("token-text"), why);
    $("token-input").value = "";
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => {
      const token = $("token-input").value.trim();
      $("token-input").value = "";
      asking = null;
      const given = dialog.returnValue === "yes" && token !== "";
      if (given) sessionStorage.setItem(KEY, token);
      resolve(given);
    }, { once: true });
    dialog.showModal();
    $("token-input").focus();
  });
  return asking;
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

// patient: may ask the reader for a token. Throws Refused for an answer that is none, TypeError or
// DOMException when the router cannot be reached.
export async function call(method, path, { body, headers = {}, patient = false } = {}) {
  for (;;) {
    const token = sessionStorage.getItem(KEY);
    const sent = { ...headers, ...(token === null ? {} : { Authorization: `Bearer ${token}` }) };
    const response = await fetch(path, { method, body, headers: sent, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(TIMEOUT_MS) });
    const document = await response.json().catch(() => null);
    if (response.ok) return document;
    if (response.status === 401) {
      if (sessionStorage.getItem(KEY) === token) sessionStorage.removeItem(KEY);
      const why = token === null ? "This needs the admin token. It is kept until this tab is closed." : "That was not the admin token. Try again.";
      if (patient && await askForToken(why)) continue;
    }
    throw new Refused(response.status, document);
  }
}
