/** The certificate of a search: bounds of all candidates, the floor, and what was scored exactly; and plain curves. */

import { s } from "../dom.js";
import { count, number } from "../format.js";
import { t } from "../i18n/index.js";

const HEIGHT = 300;
const LEFT = 52;
const RIGHT = 14;
const TOP = 16;
const BOTTOM = 34;

const line = (points) => points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function scaled(least, most, from, to) {
  const span = most - least || 1;
  return (value) => from + ((value - least) / span) * (to - from);
}

/** Text in a figure. */
function label(text, x, y, attributes = {}) {
  return s("text", { x: x.toFixed(1), y: y.toFixed(1), ...attributes }, text);
}

/** Bounds from the highest to the lowest over ranks on a logarithmic axis, with the floor across; width in pixels. */
export function certificate(found, hits, width) {
  const { candidates, floor, bounds, scores } = found;
  const end = width - RIGHT;
  const values = [...bounds.bound, floor, ...scores.flatMap((each) => [each.score, each.bound])].filter(Number.isFinite);
  const y = scaled(Math.min(...values), Math.max(...values), HEIGHT - BOTTOM, TOP);
  const log = scaled(0, Math.log(Math.max(candidates, 2)), LEFT, end);
  const x = (rank) => log(Math.log(Math.max(1, rank)));
  const best = new Set(hits.map((hit) => hit.id));
  const parts = [
    never(bounds, floor, x, y),
    s("path", { class: "bounds", d: line(bounds.rank.map((rank, place) => [x(rank), y(bounds.bound[place])])) }),
    s("path", { class: "floor", d: line([[LEFT, y(floor)], [end, y(floor)]]) }),
    label(t("certificate.floor", { floor: number(floor) }), end, y(floor) - 6, { "text-anchor": "end", class: "strong" }),
    scores.toReversed().map((each) => stem(each, best.has(each.id), x(rankOf(each.bound, bounds)), y)),
    axes(values, candidates, x, y, end),
  ];
  return s("svg", { class: "chart certificate", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": t("certificate.alt") }, parts);
}

/** Rank of a bound on the curve of all. */
function rankOf(bound, bounds) {
  const place = bounds.bound.findIndex((each) => each <= bound);
  return bounds.rank.at(place);
}

/** Where nothing can win: the curve below the floor. */
function never({ rank, bound }, floor, x, y) {
  const first = bound.findIndex((each) => each < floor);
  if (first < 0) return null;
  const curve = rank.slice(first).map((each, place) => [x(each), y(bound[first + place])]);
  const [start, end] = [curve[0][0], curve.at(-1)[0]];
  return s("path", { class: "never", d: `${line([[start, y(floor)], ...curve, [end, y(floor)]])}z` });
}

/** A stem from the bound of a candidate down to its exact score. */
function stem(each, hit, x, y) {
  const at = x.toFixed(1);
  return s(
    "g", { class: hit ? "stem hit" : "stem", "data-id": each.id },
    s("title", {}, t("certificate.stem", { id: each.id, bound: number(each.bound), score: number(each.score) })),
    s("path", { d: `M${at} ${y(each.bound).toFixed(1)}V${y(each.score).toFixed(1)}` }),
    s("circle", { cx: at, cy: y(each.score).toFixed(1), r: hit ? 4 : 2.4 }),
  );
}

function axes(values, candidates, x, y, end) {
  const ranks = [];
  for (let rank = 1; rank < candidates; rank *= 10) ranks.push(rank);
  ranks.push(candidates);
  const roomy = ranks.filter((rank, place) => rank === candidates || place === 0 || x(candidates) - x(rank) > 60);
  return [
    s("path", { class: "axis", d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${end}` }),
    [Math.min(...values), Math.max(...values)].map((value) => label(number(value, 3), LEFT - 6, y(value) + 4, { "text-anchor": "end" })),
    roomy.map((rank) => label(count(rank), x(rank), HEIGHT - BOTTOM + 16, { "text-anchor": rank === candidates ? "end" : "middle" })),
    label(t("certificate.axis"), (LEFT + end) / 2, HEIGHT - 2, { "text-anchor": "middle" }),
  ];
}

/** A curve of one value over steps, with its first, last and extreme values. */
export function curve(name, points) {
  const [width, height] = [320, 120];
  const values = points.map(([, value]) => value);
  const x = scaled(points[0][0], points.at(-1)[0], 8, width - 8);
  const y = scaled(Math.min(...values), Math.max(...values), height - 20, 12);
  const drawn = points.map(([step, value]) => [x(step), y(value)]);
  const last = drawn.at(-1);
  return s(
    "svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": t("curve.alt", { name, first: number(values[0]), last: number(values.at(-1)) }) },
    s("path", { class: "axis", d: `M8 ${height - 16}H${width - 8}` }),
    s("path", { class: "bounds", d: line(drawn) }),
    s("circle", { class: "last", cx: last[0], cy: last[1], r: 3 }),
    label(number(values[0]), drawn[0][0] + 6, drawn[0][1] < height / 2 ? drawn[0][1] + 2 : drawn[0][1] - 6),
    label(count(points[0][0]), 8, height - 3),
    label(t("curve.steps", { count: count(points.at(-1)[0]) }), width - 8, height - 3, { "text-anchor": "end" }),
  );
}
