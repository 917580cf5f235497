/** Lines between columns of ranks, and from earlier ranks to present ones. */

import { s } from "../dom.js";

/** Lines between two columns: [{from, to, id}] of places from 0; a place of null is below the last row. */
export function slopes(lines, rows, chosen) {
  return drawn("gutter", rows, lines, (line) => (line.id === chosen ? "line chosen" : "line"));
}

/** Lines from places before to places now, within one column. */
export function ghosts(lines, rows) {
  return drawn("ghosts", rows, lines.filter((line) => line.from !== line.to), () => "line ghost");
}

function drawn(name, rows, lines, style) {
  const paths = lines.map((line) => {
    const [from, to] = [line.from ?? rows + 0.5, line.to ?? rows + 0.5].map((place) => place + 0.5);
    return s("path", { class: style(line), d: `M0 ${from}C45 ${from} 55 ${to} 100 ${to}`, "data-id": line.id });
  });
  const attributes = { viewBox: `0 0 100 ${rows}`, preserveAspectRatio: "none", "aria-hidden": "true" };
  return s("svg", { class: name, ...attributes }, paths);
}
