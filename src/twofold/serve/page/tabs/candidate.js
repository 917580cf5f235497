/** What makes the score of one candidate, ranker by ranker: words, codes, matches, the joined reading. */

import { once } from "../api.js";
import { h } from "../dom.js";
import { data, number } from "../format.js";
import { t } from "../i18n/index.js";
import { bars } from "../draw/bars.js";
import { matrix, scale, largest, words } from "../draw/heat.js";
import { headed, named, segmented } from "../widgets.js";

const MOST_WORDS = 80;
const MOST_CODES = 8;

/** Draws a card for each ranker. hits: [model, hit] pairs of one candidate. */
export async function candidate(region, app, context, hits) {
  if (!hits.length) return region.replaceChildren();
  const title = h("h2", {}, t("candidate.title"), " ", h("q", {}, hits[0][1].text));
  const cards = hits.map(([model]) => h("article", { class: "card", "data-model": model.name }, h("h3", {}, named(model))));
  region.replaceChildren(title, h("p", { class: "hint" }, t("candidate.lead")), h("div", { class: "cards" }, cards));
  await Promise.all(hits.map(([model, hit], place) => explained(cards[place], app, model, context, hit)));
  return undefined;
}

async function explained(card, app, model, context, hit) {
  const body = h("div", { class: "body" });
  card.append(body);
  const influence = [context].flat().concat(hit.text).join(" ").split(/\s+/).length <= MOST_WORDS;
  const content = { model: model.name, context, candidates: [{ id: hit.id, text: hit.text }], influence };
  const answer = await app.work(`explain ${model.name}`, body, (signal) => once("/explain", content, signal));
  if (answer) draw(body, app, model, answer.explanation);
}

function draw(body, app, model, explanation) {
  const [best] = explanation.candidates;
  const parts = best.parts ?? {};
  body.replaceChildren(
    h("p", { class: "total" }, t("score"), " ", data(best.score)),
    ...(parts.compared === undefined ? [] : [compared(best.score, parts.compared)]),
    ...(parts.codes ? [codes(app, model, explanation.tokens, parts.codes)] : []),
    ...(parts.matches ? [matches(explanation.tokens, best.tokens, parts.matches)] : []),
    ...influences(best),
  );
}

/** Words of the context and of the candidate, by what the score loses without each. */
function influences(best) {
  const sides = [["context", best.context_influence], ["candidate", best.candidate_influence]].filter(([, found]) => found);
  if (!sides.length) return [h("p", { class: "hint" }, t("influence.long", { most: MOST_WORDS }))];
  const most = largest(sides.flatMap(([, found]) => found.values.map(([value]) => value)));
  const drawn = sides.map(([side, found]) => [
    h("h4", {}, t(`influence.${side}`)),
    words(found.words, found.values.map(([value]) => value), { most, label: t(`influence.${side}`) }),
  ]);
  return [headed(t("influence"), t("influence.hint"), drawn, scale(most, true))];
}

/** A cross-encoder that compares: the score, and the part of it that needs no joined reading. */
function compared(score, part) {
  const names = [t("compared.alone"), t("compared.whole")];
  return headed(t("compared"), t("compared.hint"), bars(names, [part, score]));
}

/** Codes by their weight; the chosen one shows where it looks in the context. */
function codes(app, model, tokens, found) {
  const region = h("div", {});
  const key = `codes.${model.name}`;
  let [head, all] = [0, false];
  const redraw = () => {
    const order = found.weights[head].map((weight, place) => [weight, place]).sort((one, other) => other[0] - one[0]);
    const sorted = order.map(([, place]) => place);
    const wanted = Number(app.params[key]);
    const chosen = app.params[key] && sorted.includes(wanted) ? wanted : sorted[0];
    const listed = all ? sorted : sorted.filter((place, rank) => rank < MOST_CODES || place === chosen);
    region.replaceChildren(
      found.weights.length > 1 ? heads(found.weights.length, head, (value) => { head = value; redraw(); }) : "",
      codeList(found, head, listed, chosen, (place) => { app.save({ [key]: String(place) }); redraw(); region.querySelector("[aria-pressed=true]")?.focus(); }),
      listed.length < sorted.length ? h("button", { type: "button", class: "quiet", onclick: () => { all = true; redraw(); } }, t("codes.all", { count: sorted.length })) : "",
      h("h4", {}, t("codes.looks", { code: chosen + 1 })),
      words(tokens, found.attention[chosen], { label: t("codes.looks", { code: chosen + 1 }) }),
      scale(largest(found.attention[chosen])),
      everyCode(tokens, found, sorted),
    );
  };
  redraw();
  return headed(t("codes"), t("codes.hint"), region);
}

function heads(many, head, change) {
  const names = Array.from({ length: many }, (_, place) => [String(place), String(place + 1)]);
  return segmented(t("head"), names, String(head), (value) => change(Number(value)));
}

function codeList(found, head, listed, chosen, pick) {
  const weights = listed.map((place) => found.weights[head][place]);
  const names = listed.map((place) => [t("codes.code", { code: place + 1 }), " ", h("small", {}, "s = ", data(found.parts[head][place]))]);
  return bars(names, weights, {
    label: t("codes"), picked: listed.indexOf(chosen), pick: (row) => pick(listed[row]), shown: (value) => number(value, 3),
  });
}

function everyCode(tokens, found, sorted) {
  const rows = sorted.map((place) => t("codes.code", { code: place + 1 }));
  const figure = h("details", {}, h("summary", {}, t("codes.every")));
  figure.addEventListener("toggle", () => {
    if (figure.open && figure.children.length === 1) {
      figure.append(matrix(rows, tokens, sorted.map((place) => found.attention[place]), { label: t("codes.every") }));
    }
  });
  return figure;
}

/** Late interaction: the best match of each token of the context. */
function matches(tokens, other, found) {
  const vectors = found.vectors.map((positions) => positions.map((position) => other[position]).join(" "));
  const names = found.best.map((column, row) => [h("b", {}, tokens[row]), " → ", vectors[column]]);
  const values = found.best.map((column, row) => found.similarities[row][column]);
  const figure = h("details", {}, h("summary", {}, t("matches.all")));
  figure.append(matrix(tokens, vectors, found.similarities, { label: t("matches.all"), marks: found.best }));
  return headed(t("matches"), t("matches.hint"), bars(names, values, { label: t("matches") }), figure);
}
