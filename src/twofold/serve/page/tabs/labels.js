/** Labels, tags and trees: how sure the model is of each, and which words make it so. */

import { forget, once } from "../api.js";
import { h } from "../dom.js";
import { data, number, percent, plain } from "../format.js";
import { t } from "../i18n/index.js";
import { arcs } from "../draw/arcs.js";
import { attention } from "../draw/attention.js";
import { bars } from "../draw/bars.js";
import { largest, scale, words } from "../draw/heat.js";
import { field, form, headed, inputFields, inputValue, modelField, select } from "../widgets.js";

const MOST = 10;
const HUES = 8;
const OUTSIDE = "O";

const readers = (served) => served.models.filter((model) => model.tab === "labels");

export const labels = { id: "labels", offered: (served) => readers(served).length > 0, mount };

function mount(panel, app) {
  const model = readers(app.served).find((each) => each.name === app.params.model) ?? readers(app.served)[0];
  const result = h("div", { class: "stage" });
  const view = { app, model, result };
  const again = (changes) => { app.save({ ...changes, pick: "" }); mount(panel, app); };
  const go = () => { forget(); app.save({ pick: "" }); run(view); };
  const lead = h("div", { class: "lead" }, h("h1", {}, t("labels.title")), h("p", {}, t("labels.lead")));
  const several = (model.decoders?.length ?? 0) > 1 && field(t("decoder"), select(model.decoders.map(({ name, output }) => [name, `${name} (${output})`]), app.params.decoder, (decoder) => again({ decoder })));
  const fields = [modelField(readers(app.served), model, (name) => again({ model: name, decoder: "", part: "", layer: "", head: "" })), several, inputFields(model, app.params, (changes) => app.save(changes))];
  panel.replaceChildren(lead, form(t("labels.go"), go, fields), result);
  run(view);
}

async function run(view) {
  const { app, model, result } = view;
  const input = inputValue(model, app.params);
  if (!input) return result.replaceChildren(h("p", { class: "empty" }, t("input.missing")));
  const decoder = model.decoders?.find((each) => each.name === app.params.decoder)?.name;
  const asked = { model: model.name, input, influence: true, ...(decoder && { decoder }) };
  view.answer = await app.work("labels", result, (signal) => once("/explain", asked, signal));
  if (!view.answer) return undefined;
  draw(view);
  return app.say(t("labels.said"));
}

/** The form of an answer tells how it is drawn. */
function draw(view) {
  const { explanation, shown } = view.answer;
  const { output } = explanation;
  const drawn = output?.tags ? tags : output?.heads ? tree : typeof output === "number" ? figure : probabilities;
  const save = (changes) => { view.app.save(changes); draw(view); };
  const pick = (place) => { save({ pick: String(place) }); view.result.querySelector("[aria-pressed=true]")?.focus(); };
  view.result.replaceChildren(
    ...drawn(explanation, view.app.params.pick ? Number(view.app.params.pick) : null, pick),
    ...[attention(explanation, shown?.image?.png ?? null, view.app.params, save)].filter(Boolean),
  );
}

const named = (explanation, name) => explanation.probabilities?.find((each) => each.name === name);

/** Labels with their probabilities; the influence of words is that on the chosen label. */
function probabilities(explanation, picked, pick) {
  const { columns, values: [values] } = explanation.probabilities[0];
  const order = values.map((value, place) => place).sort((one, other) => values[other] - values[one]);
  const chosen = picked ?? order[0];
  const listed = order.filter((place, rank) => rank < MOST || place === chosen);
  const given = new Set([explanation.output].flat());
  const list = bars(listed.map((place) => columns[place]), listed.map((place) => values[place]), {
    most: 1, shown: percent, label: t("labels.probabilities"), picked: listed.indexOf(chosen), pick: (row) => pick(listed[row]),
    marks: listed.flatMap((place, row) => (given.has(columns[place]) ? [row] : [])),
  });
  const more = listed.length < order.length && h("p", { class: "hint" }, t("labels.more", { count: order.length - listed.length }));
  const title = t("labels.answer", { answer: plain(explanation.output) });
  return [headed(title, t("labels.probabilities.hint"), list, more), ...influence(explanation, chosen, columns[chosen])];
}

function figure(explanation) {
  const total = h("p", { class: "total" }, data(explanation.output, number(explanation.output)));
  return [headed(t("labels.number"), null, total), ...influence(explanation, 0, t("labels.number"))];
}

/** Words by their influence on one score, which each loses when the word is left out. */
function influence(explanation, column, name) {
  const found = explanation.influence;
  if (!found) return [];
  const values = found.values.map((row) => row[column] ?? null);
  const title = t("labels.influence", { name });
  return [headed(title, t("influence.hint"), words(found.words, values, { label: title }), scale(largest(values), true))];
}

/** Words with their tags; those of one entity make one colored span. */
function tags(explanation, picked, pick) {
  const { words: texts, tags: given } = explanation.output;
  const chosen = picked ?? 0;
  const kinds = [...new Set(given.map(kindOf))].filter((kind) => kind !== OUTSIDE);
  const word = (place) => h("button", { type: "button", class: "tag", "aria-pressed": String(place === chosen), title: given[place], onclick: () => pick(place) }, texts[place]);
  const spans = spansOf(given).map(({ kind, places }) => {
    if (kind === OUTSIDE) return places.map(word);
    const hue = { "--hue": `var(--hue-${kinds.indexOf(kind) % HUES})` };
    return h("span", { class: "span", vars: hue }, h("span", {}, places.map(word)), h("small", {}, kind));
  });
  const decision = named(explanation, "tags");
  return [
    headed(t("labels.tags"), t("labels.tags.hint"), h("div", { class: "spans" }, spans)),
    h("div", { class: "halves" }, decided(decision, chosen, texts[chosen], decision?.columns.indexOf(given[chosen])), influence(explanation, chosen, texts[chosen])),
  ];
}

const kindOf = (tag) => tag.replace(/^[BI]-/, "");

/** Neighbors of one entity: I- goes on where a word of the same kind stands before it. */
function spansOf(given) {
  const spans = [];
  given.forEach((tag, place) => {
    const last = spans.at(-1);
    if (tag.startsWith("I-") && last?.kind === kindOf(tag)) last.places.push(place);
    else spans.push({ kind: kindOf(tag), places: [place] });
  });
  return spans;
}

/** Probabilities of one word's choices; those of the same name are told apart by their places. */
function decided(found, row, name, answer) {
  if (!found) return null;
  const { columns, values: { [row]: values } } = found;
  const order = columns.map((_, place) => place).sort((one, other) => values[other] - values[one]).slice(0, MOST);
  const title = t(`labels.${found.name}.of`, { name });
  const text = (place) => [columns[place], columns.indexOf(columns[place]) !== columns.lastIndexOf(columns[place]) && h("small", {}, ` ${place}`)];
  return headed(title, null, bars(order.map(text), order.map((place) => values[place]), {
    most: 1, shown: percent, label: title, marks: [order.indexOf(answer)],
  }));
}

function tree(explanation, picked, pick) {
  const { words: texts, heads, relations } = explanation.output;
  const chosen = picked ?? 0;
  const relation = named(explanation, "relations");
  return [
    headed(t("labels.tree"), t("labels.tree.hint"), arcs(explanation.output, chosen, pick)),
    h(
      "div", { class: "halves" },
      decided(named(explanation, "heads"), chosen, texts[chosen], heads[chosen]),
      decided(relation, chosen, texts[chosen], relation?.columns.indexOf(relations[chosen])),
    ),
    ...influence(explanation, chosen, texts[chosen]),
  ];
}
