/** A model as a diagram: X → f → H → g → Y, with what passes between the parts and its shape. */

import { h } from "../dom.js";
import { count } from "../format.js";
import { t } from "../i18n/index.js";

/** parts: in the order of the summary; inputs with their encoders first, then decoders with their outputs. */
export function diagram(parts) {
  const towers = rowsOf(parts, ["X", "f"]);
  const joined = towers.some((row) => row.length !== 2);
  const reading = joined ? [rowsOf(parts, ["X"]), rowsOf(parts, ["f"])] : [towers];
  const sides = [...reading, rowsOf(parts, ["g", "Y"])];
  return h("div", { class: "diagram" }, sides.map((rows, place) => h("div", { class: "side" }, rows.map((row) => line(row, place < sides.length - 1)))));
}

/** Parts with these letters, cut into rows, each of which begins with the first letter. */
function rowsOf(parts, letters) {
  const rows = [];
  for (const part of parts.filter((each) => letters.includes(each.letter))) {
    if (part.letter === letters[0] || !rows.length) rows.push([]);
    rows.at(-1).push(part);
  }
  return rows;
}

function line(row, open) {
  const last = row.length - 1;
  return h("div", { class: "line" }, row.map((part, place) => [box(part), (place < last || open) && flow(part.gives)]));
}

function box(part) {
  const facts = Object.entries(part.shown).filter(([name]) => name !== "name" || part.letter !== "Y");
  return h(
    "section", { class: `part ${part.letter.toLowerCase()}`, "aria-label": `${part.letter}: ${part.name}` },
    h("header", {}, h("i", {}, part.letter), h("strong", {}, part.kind)),
    h("p", { class: "role" }, part.name),
    facts.map(([name, value]) => h("p", { class: "fact" }, `${name} `, h("b", {}, shown(value)))),
    part.vocabulary && h("p", { class: "fact" }, t("diagram.vocabulary", { count: count(part.vocabulary) })),
    part.classes && h("p", { class: "fact" }, t("diagram.classes", { count: count(part.classes) })),
  );
}

const shown = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));

/** An arrow with the names and shapes of what passes along it. */
function flow(gives) {
  const texts = gives.map(({ name, shape }) => [h("span", {}, name), shape.length > 0 && h("code", {}, `(${shape.join(", ")})`)]);
  return h("div", { class: "flow" }, h("div", { class: "what" }, texts), h("span", { class: "arrow", "aria-hidden": "true" }));
}
