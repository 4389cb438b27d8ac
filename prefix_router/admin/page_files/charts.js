// Small charts. Each says in words what it shows, to whoever cannot see it.

import { h } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 40;

function shape(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// A gap in the numbers is a gap in the line; a number on its own is a short stroke.
function lines(values, top) {
  const step = WIDTH / Math.max(values.length - 1, 1);
  const runs = [];
  let run = null;
  values.forEach((value, at) => {
    if (value === null) { run = null; return; }
    if (run === null) runs.push(run = []);
    run.push([at * step, HEIGHT - 1 - (HEIGHT - 3) * Math.min(value / top, 1)]);
  });
  return runs.map((points) => (points.length > 1 ? points : [[points[0][0] - step / 2, points[0][1]], [points[0][0] + step / 2, points[0][1]]]));
}

const path = (points) => points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// values, second: oldest first, null for nothing. label: what it is; unit: (number) -> words.
export function spark(values, { label, unit, second = null, top = null }) {
  const known = values.filter((value) => value !== null);
  const highest = top ?? Math.max(...known, ...(second ?? []).filter((value) => value !== null), 0);
  const text = known.length
    ? `${label}: latest ${unit(known[known.length - 1])}, lowest ${unit(Math.min(...known))}, highest ${unit(Math.max(...known))}`
    : `${label}: nothing yet`;
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "spark", role: "img", "aria-label": text });
  if (second) for (const points of lines(second, highest || 1)) svg.append(shape("path", { class: "line second", d: path(points) }));
  for (const points of lines(values, highest || 1)) {
    const last = points[points.length - 1];
    svg.append(shape("path", { class: "area", d: `${path(points)}L${last[0].toFixed(1)} ${HEIGHT}L${points[0][0].toFixed(1)} ${HEIGHT}Z` }));
    svg.append(shape("path", { class: "line", d: path(points) }));
  }
  return svg;
}

export function bar(ratio) {
  const inner = h("i");
  inner.style.width = `${Math.round(100 * Math.min(Math.max(ratio, 0), 1))}%`;
  const outer = h("span", { class: "bar", "aria-hidden": "true", "data-full": ratio >= 1 });
  outer.append(inner);
  return outer;
}

// Adds neighbouring slots together, so that a chart has at most `most` points.
export function gather(values, most) {
  const size = Math.ceil(values.length / most);
  const offset = values.length % size;
  const sums = offset ? [values.slice(0, offset).reduce((a, b) => a + b, 0) * size / offset] : [];
  for (let at = offset; at < values.length; at += size) sums.push(values.slice(at, at + size).reduce((a, b) => a + b, 0));
  return { sums, size };
}

// The same for what cannot be added: the mean of those neighbours that are known.
export function thin(values, most) {
  const size = Math.ceil(values.length / most);
  const means = [];
  for (let at = values.length % size; at < values.length; at += size) {
    const known = values.slice(at, at + size).filter((value) => value !== null);
    means.push(known.length ? known.reduce((a, b) => a + b, 0) / known.length : null);
  }
  return means;
}
