/** Attention of all layers and heads: thumbnails to choose from, and the chosen one as a matrix, over an image, or over a sound. */

import { h } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n/index.js";
import { headed, imageUrl, segmented } from "../widgets.js";
import { largest, matrix, painted } from "./heat.js";

const MOST_OPEN = 64;

/**
 * explanation: as the server gives it; image: base64 of what the model reads, or null
 * chosen: {part, layer, head}; change(changes) keeps a choice
 */
export function attention(explanation, image, chosen, change) {
  const parts = explanation.attention ?? [];
  if (!parts.length) return null;
  const part = parts.find((each) => each.name === chosen.part) ?? parts[0];
  const layer = Math.min(Number(chosen.layer ?? part.weights.length - 1), part.weights.length - 1);
  const head = Math.min(Number(chosen.head ?? 0), part.weights[layer].length - 1);
  const choice = parts.length > 1 && segmented(t("attention.part"), parts.map((each) => [each.name, t(`attention.${each.name}`)]), part.name, (name) => change({ part: name, layer: undefined, head: undefined }));
  const weights = part.weights[layer][head];
  return headed(
    t("attention"), t(`attention.hint.${part.name}`), choice,
    h(
      "div", { class: "attention" },
      thumbnails(part, layer, head, change),
      h("div", {}, h("h4", {}, t("attention.chosen", { layer: layer + 1, head: head + 1 })), drawn(explanation, image, part, weights)),
    ),
  );
}

/** All heads of all layers, a row for each layer. */
function thumbnails(part, layer, head, change) {
  if (part.weights.length * part.weights[0].length < 2) return null;
  const rows = part.weights.map((heads, y) => {
    const buttons = heads.map((weights, x) =>
      h(
        "button",
        {
          type: "button", class: "thumb", "aria-pressed": String(y === layer && x === head),
          "aria-label": t("attention.chosen", { layer: y + 1, head: x + 1 }),
          onclick: () => change({ part: part.name, layer: String(y), head: String(x) }),
        },
        painted(weights, largest(weights.flat()), { "aria-hidden": "true" }),
      ),
    );
    return h("div", { class: "thumbs" }, h("span", {}, t("attention.layer", { layer: y + 1 })), buttons);
  });
  return h("div", { class: "heads" }, rows);
}

function drawn(explanation, image, part, weights) {
  const queries = names(part.queries, weights.length, explanation);
  const keys = names(part.keys, weights[0].length, explanation);
  const whole = matrix(queries, keys, weights, { label: t(`attention.${part.name}`) });
  const { grid, timeline } = explanation;
  if (part.name === "cross" && grid && image) {
    const few = keys.length <= MOST_OPEN;
    return [overImage(queries, weights, grid, image), h("details", { open: few }, h("summary", {}, t("attention.matrix")), whole)];
  }
  return part.name === "cross" && timeline ? [overSound(queries, weights, timeline), whole] : [whole];
}

/** Names of tokens; positions of images and sounds have none, so their places stand for them. */
function names(tokens, many, { grid, timeline }) {
  const given = tokens ?? [];
  const places = Array.from({ length: many - given.length }, (_, place) => {
    if (grid) return t("attention.place", { row: Math.floor(place / grid[1]) + 1, column: (place % grid[1]) + 1 });
    return timeline ? `${number((place * timeline.seconds) / many, 3)} s` : String(place + 1);
  });
  return [...places, ...given];
}

const rowsOf = (values, width) => Array.from({ length: values.length / width }, (_, y) => values.slice(y * width, (y + 1) * width));

/** The image once for each word, lit where the word attends. */
function overImage(queries, weights, [rows, columns], image) {
  const figures = queries.map((token, place) => {
    const lit = weights[place].slice(0, rows * columns);
    return h(
      "figure", { class: "lit" },
      h("div", { class: "stack" }, h("img", { src: imageUrl(image), alt: "" }), shade(rowsOf(lit, columns))),
      h("figcaption", {}, token),
    );
  });
  return h("div", { class: "strip", role: "img", "aria-label": t("attention.image") }, figures);
}

/** Darkens what is not attended to. */
function shade(values) {
  const most = largest(values.flat());
  const canvas = h("canvas", { width: values[0].length, height: values.length, class: "shade" });
  const image = new ImageData(canvas.width, canvas.height);
  values.flat().forEach((value, place) => image.data.set([10, 12, 20, 195 * (1 - value / (most || 1))], 4 * place));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** The spectrogram above one line of attention for each token. */
function overSound(queries, weights, timeline) {
  const bands = timeline.values.toReversed();
  const least = Math.min(...bands.flat());
  const shifted = bands.map((band) => band.map((value) => value - least));
  const rows = queries.map((token, place) => [h("span", {}, token), painted([weights[place]], largest(weights[place]))]);
  return h("div", { class: "sound" }, h("span", {}, `${number(timeline.seconds, 3)} s`), painted(shifted, largest(shifted.flat())), rows);
}
