/** Heat maps: words shaded by a weight, and matrices of weights. More is further from the background, in grey too. */

import { h, rgb } from "../dom.js";
import { data, number } from "../format.js";
import { t } from "../i18n/index.js";

const STRONG = 0.6;
const LARGEST_LABELLED = 64;

export const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value ?? 0)), 0);

/**
 * Words, each shaded by its value. Negative ones are hatched.
 * options: pick(place) makes them buttons; picked is the place of the chosen one
 */
export function words(texts, values, options = {}) {
  const most = options.most ?? largest(values);
  const items = texts.map((text, place) => word(text, values[place], most, place, options));
  return h("div", { class: "words", role: "list", "aria-label": options.label }, items);
}

function word(text, value, most, place, options) {
  const weight = most > 0 && value !== null && value !== undefined ? Math.abs(value) / most : 0;
  const classes = ["word", value < 0 && "minus", weight > STRONG && "strong"].filter(Boolean).join(" ");
  const attributes = { class: classes, vars: { "--w": weight.toFixed(3) }, title: `${text}  ${number(value)}` };
  const content = [h("span", { class: "text" }, text), data(value, number(value, 2), { class: "small" })];
  if (!options.pick) return h("span", { ...attributes, role: "listitem" }, content);
  const pressed = { type: "button", "aria-pressed": String(options.picked === place), onclick: () => options.pick(place) };
  return h("span", { role: "listitem" }, h("button", { ...attributes, ...pressed }, content));
}

/** Scale under a heat map; none where nothing has a value. */
export function scale(most, signed = false) {
  if (!most) return "";
  const ends = signed ? [-most, 0, most] : [0, most];
  const bar = h("span", { class: signed ? "scale signed" : "scale", "aria-hidden": "true" });
  return h("p", { class: "legend" }, h("span", {}, number(ends[0], 3)), bar, h("span", {}, number(ends.at(-1), 3)));
}

/** Paints values, one pixel each, into a canvas that CSS enlarges. */
export function painted(values, most, attributes = {}) {
  const canvas = h("canvas", { width: values[0].length, height: values.length, ...attributes });
  canvas.redraw = () => {
    const [red, green, blue] = rgb("--heat");
    const image = new ImageData(canvas.width, canvas.height);
    values.forEach((row, y) =>
      row.forEach((value, x) => {
        const alpha = most > 0 ? (255 * Math.max(0, value ?? 0)) / most : 0;
        image.data.set([red, green, blue, alpha], 4 * (y * canvas.width + x));
      }),
    );
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
  canvas.redraw();
  return canvas;
}

/**
 * A matrix with names of rows and columns; arrows, the mouse and touch read its cells.
 * options: label, marks (columns to outline, one a row), pick(row), most
 */
export function matrix(rows, columns, values, options = {}) {
  const most = options.most ?? largest(values.flat());
  const labelled = Math.max(rows.length, columns.length) <= LARGEST_LABELLED;
  const readout = h("output", { class: "readout", "aria-live": "polite" }, t("matrix.hint"));
  const cursor = h("span", { class: "cursor", hidden: true });
  const marks = (options.marks ?? []).map((column, row) => h("span", { class: "mark", vars: { "--x": column, "--y": row } }));
  const cells = h(
    "div",
    { class: "cells", tabindex: "0", role: "application", "aria-roledescription": t("matrix"), "aria-label": options.label },
    painted(values, most), marks, cursor,
  );
  const names = (texts, kind) => h("div", { class: kind, "aria-hidden": "true" }, texts.map((text) => h("span", {}, text)));
  readCells(cells, cursor, readout, rows, columns, values, options.pick);
  const plot = h(
    "div",
    { class: labelled ? "matrix" : "matrix dense", vars: { "--rows": rows.length, "--columns": columns.length } },
    labelled && [h("span"), names(columns, "across"), names(rows, "along")], cells,
  );
  return h("div", { class: "figure" }, h("div", { class: "scrolls" }, plot), readout, scale(most));
}

/** Moves the cursor of a matrix and says what is under it. */
function readCells(cells, cursor, readout, rows, columns, values, pick) {
  let [y, x] = [0, 0];
  const show = () => {
    cursor.hidden = false;
    cursor.style.setProperty("--x", x);
    cursor.style.setProperty("--y", y);
    const shown = data(values[y][x]);
    readout.replaceChildren(h("span", {}, `${rows[y]} → ${columns[x]}`), " ", shown);
  };
  const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  cells.addEventListener("keydown", (event) => {
    if (event.key === "Enter") return pick?.(y);
    if (!(event.key in moves)) return undefined;
    event.preventDefault();
    y = Math.min(rows.length - 1, Math.max(0, y + moves[event.key][0]));
    x = Math.min(columns.length - 1, Math.max(0, x + moves[event.key][1]));
    return show();
  });
  const point = (event) => {
    const box = cells.getBoundingClientRect();
    x = Math.min(columns.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * columns.length)));
    y = Math.min(rows.length - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * rows.length)));
    show();
  };
  cells.addEventListener("pointermove", point);
  cells.addEventListener("click", (event) => { point(event); pick?.(y); });
  cells.addEventListener("focus", show);
}
