/** Lines between columns of ranks, and from earlier ranks to present ones. */

import { s } from "../dom.js";

/** Lines between two columns: [{from, to, id}] of places from 0; a place of null is below the last row. */
export function slopes(lines, rows, chosen) {
  return drawn("gutter", rows, lines, (line) => (line.id === chosen ? "line chosen" : "line"));
}

/**
 * Lines from places now, on the left, to places before, within one column.
 * through: rows whose line goes on to the next column
 */
export function ghosts(lines, rows, through, chosen) {
  const straight = through.map((id, place) => ({ from: place, to: place, id, style: id === chosen ? "line chosen" : "line" }));
  const dashed = lines.filter((line) => line.from !== line.to).map((line) => ({ ...line, style: line.id === chosen ? "line ghost chosen" : "line ghost" }));
  return drawn("ghosts", rows, [...straight, ...dashed], (line) => line.style, 46);
}

function drawn(name, rows, lines, style, turn = 100) {
  const paths = lines.map((line) => {
    const [from, to] = [line.from ?? rows + 0.5, line.to ?? rows + 0.5].map((place) => place + 0.5);
    const way = `M0 ${from}C${turn * 0.45} ${from} ${turn * 0.55} ${to} ${turn} ${to}H100`;
    return s("path", { class: style(line), d: way, "data-id": line.id });
  });
  const attributes = { viewBox: `0 0 100 ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true" };
  return s("svg", { class: name, ...attributes }, paths);
}
