/** A dependency tree: words in a line, an arc from each word to its head, with the relation on it. */

import { h, s } from "../dom.js";
import { t } from "../i18n/index.js";

const LETTER = 8.6;
const GAP = 26;
const LEVEL = 30;

/** pick(place) is called when a word is chosen. */
export function arcs({ words, heads, relations }, picked, pick) {
  const widths = words.map((text, place) => Math.max(wide(text) * LETTER, relations[place].length * 7) + GAP);
  const centers = widths.map((width, place) => widths.slice(0, place).reduce((sum, each) => sum + each, 0) + width / 2);
  const levels = heights(heads);
  const top = (Math.max(...levels) + 1) * LEVEL + 12;
  const parts = words.map((text, place) => arc(place, heads[place], relations[place], centers, levels[place], top, place === picked));
  const names = words.map((text, place) => word(text, place, centers[place], top, place === picked, pick));
  const size = { width: widths.reduce((sum, each) => sum + each, 0), height: top + 34 };
  const label = t("arcs.alt", { tree: words.map((text, place) => `${text} ← ${heads[place] ? words[heads[place] - 1] : "root"} (${relations[place]})`).join(", ") });
  return h("div", { class: "scrolls" }, s("svg", { class: "arcs", viewBox: `0 0 ${size.width} ${size.height}`, ...size, role: "group", "aria-label": label }, parts, names));
}

/** Width of a text in letters; Korean and Chinese letters are twice as wide. */
const wide = (text) => [...text].reduce((sum, sign) => sum + (sign.codePointAt(0) > 0x1100 ? 1.75 : 1), 0);

/** Height of each arc: one above the highest arc that it spans. */
function heights(heads) {
  const spans = heads.map((head, place) => (head ? [Math.min(place, head - 1), Math.max(place, head - 1)] : [place, place]));
  const order = spans.map((_, place) => place).sort((one, other) => spans[one][1] - spans[one][0] - (spans[other][1] - spans[other][0]));
  const levels = heads.map(() => 0);
  for (const place of order) {
    if (!heads[place]) continue;
    const inside = order.filter((other) => other !== place && levels[other] > 0 && spans[other][0] < spans[place][1] && spans[other][1] > spans[place][0]);
    levels[place] = 1 + Math.max(0, ...inside.map((other) => levels[other]));
  }
  return levels.map((level, place) => (heads[place] ? level : Math.max(...levels, 1)));
}

function arc(place, head, relation, centers, level, top, picked) {
  const kind = picked ? "arc picked" : "arc";
  const to = centers[place];
  if (!head) {
    return s("g", { class: `${kind} root` }, s("path", { d: `M${to} 18V${top - 4}`, "marker-end": "" }), arrow(to, top), s("text", { x: to, y: 12 }, relation));
  }
  const from = centers[head - 1] + (head - 1 < place ? 7 : -7);
  const peak = top - level * LEVEL;
  const path = `M${from} ${top - 4}V${peak + 10}Q${from} ${peak} ${from + (from < to ? 10 : -10)} ${peak}H${to + (from < to ? -10 : 10)}Q${to} ${peak} ${to} ${peak + 10}V${top - 4}`;
  return s("g", { class: kind, "data-word": place }, s("path", { d: path }), arrow(to, top), s("text", { x: (from + to) / 2, y: peak - 4 }, relation));
}

const arrow = (x, top) => s("path", { class: "tip", d: `M${x - 4} ${top - 8}L${x} ${top - 1}L${x + 4} ${top - 8}z` });

function word(text, place, center, top, picked, pick) {
  const choose = () => pick(place);
  const onkeydown = (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
  };
  const attributes = { class: picked ? "leaf picked" : "leaf", role: "button", tabindex: "0", "aria-pressed": String(picked), onclick: choose, onkeydown };
  const half = (wide(text) * LETTER) / 2 + 6;
  return s("g", attributes, s("rect", { x: center - half, y: top + 2, width: 2 * half, height: 26, rx: 6 }), s("text", { x: center, y: top + 20 }, text));
}
