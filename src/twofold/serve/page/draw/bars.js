/** Bars of values, each with its name and number; a bar may be a button. */

import { h } from "../dom.js";
import { data, number } from "../format.js";

/**
 * options: most (value of a full bar), shown(value), pick(place), picked, label, marks (places to emphasize)
 */
export function bars(names, values, options = {}) {
  const most = options.most ?? Math.max(...values.map((value) => Math.abs(value ?? 0)), 0);
  const items = names.map((name, place) => bar(name, values[place], place, most, options));
  return h("ul", { class: "bars", "aria-label": options.label }, items);
}

function bar(name, value, place, most, options) {
  const width = most > 0 && value ? Math.min(1, Math.abs(value) / most) : 0;
  const content = [
    h("span", { class: "name" }, name),
    h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: value < 0 ? "fill minus" : "fill", vars: { "--w": width.toFixed(4) } })),
    data(value, (options.shown ?? number)(value)),
  ];
  const marked = options.marks?.includes(place) ? "bar marked" : "bar";
  if (!options.pick) return h("li", { class: marked }, content);
  const pressed = { type: "button", "aria-pressed": String(options.picked === place), onclick: () => options.pick(place) };
  return h("li", {}, h("button", { class: marked, ...pressed }, content));
}
