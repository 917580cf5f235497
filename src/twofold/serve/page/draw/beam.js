/** Beam search as a tree: a column for each step, a line from each hypothesis to what extends it. */

import { h, s } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n/index.js";

const STEP = 108;
const ROW = 34;
const LONGEST = 11;

/** steps: hypotheses by step, with the place of their parent; written: tokens of the text that won. */
export function beam(steps, written) {
  const rows = Math.max(...steps.map((step) => step.length));
  const winners = winning(steps, written);
  const parts = steps.flatMap((step, column) => step.map((node, row) => drawn(node, column, row, winners.has(node))));
  const size = { width: STEP * steps.length + 24, height: ROW * rows + 8 };
  const tree = s("svg", { class: "beam", viewBox: `0 0 ${size.width} ${size.height}`, ...size, role: "img", "aria-label": t("beam.alt", { steps: steps.length, written: written.join(" ") }) }, parts);
  return h("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": t("beam") }, tree);
}

/** Hypotheses on the way to the text that won; one that ended at the longest length lacks the end symbol. */
function winning(steps, written) {
  for (let column = steps.length - 1; column >= 0; column--) {
    for (const node of steps[column]) {
      const way = wayTo(steps, column, node);
      const whole = way.length === written.length || (!node.finished && way.length === written.length - 1);
      if (whole && way.every((each, place) => each.token === written[place])) return new Set(way);
    }
  }
  return new Set();
}

function wayTo(steps, column, node) {
  const way = [node];
  for (let at = column; at > 0; at--) way.unshift(steps[at - 1][way[0].parent]);
  return way;
}

const short = (token) => (token.length > LONGEST ? `${token.slice(0, LONGEST - 1)}…` : token);
const place = (column, row) => [column * STEP + 30, row * ROW + 16];

function drawn(node, column, row, wins) {
  const [x, y] = place(column, row);
  const [fromX, fromY] = column ? place(column - 1, node.parent) : [0, place(0, 0)[1]];
  const start = column ? fromX + STEP - 34 : 4;
  const way = `M${start} ${fromY}C${(start + x) / 2} ${fromY} ${(start + x) / 2} ${y} ${x - 4} ${y}`;
  const kind = ["node", wins && "wins", node.finished && "finished"].filter(Boolean).join(" ");
  return s(
    "g", { class: kind },
    s("title", {}, t("beam.node", { token: node.token, score: number(node.score) })),
    s("path", { d: way }),
    s("rect", { x, y: y - 14, width: STEP - 34, height: 28, rx: 6 }),
    s("text", { x: x + 7, y: y - 2, class: "token" }, short(node.token)),
    s("text", { x: x + 7, y: y + 9, class: "score" }, number(node.score, 3)),
  );
}
