/** Write: a generated text, what else could stand at each place, where the model looked, and the search for it. */

import { forget, once } from "../api.js";
import { h } from "../dom.js";
import { data, number, percent } from "../format.js";
import { t } from "../i18n/index.js";
import { attention } from "../draw/attention.js";
import { bars } from "../draw/bars.js";
import { beam } from "../draw/beam.js";
import { largest, scale, words } from "../draw/heat.js";
import { field, form, headed, inputFields, inputValue, modelField, numeric } from "../widgets.js";

const writers = (served) => served.models.filter((model) => model.tab === "write");

export const write = { id: "write", offered: (served) => writers(served).length > 0, mount };

function mount(panel, app) {
  const model = writers(app.served).find((each) => each.name === app.params.model) ?? writers(app.served)[0];
  const result = h("div", { class: "stage" });
  const view = { app, model, result };
  const change = (name) => { app.save({ model: name, prefix: "", step: "", part: "", layer: "", head: "" }); mount(panel, app); };
  const save = (changes) => app.save({ ...changes, prefix: "", step: "" });
  const go = () => { forget(); app.save({ prefix: "", step: "" }); run(view); };
  const lead = h("div", { class: "lead" }, h("h1", {}, t("write.title")), h("p", {}, t("write.lead")));
  const ask = form(t("write.go"), go, modelField(writers(app.served), model, change), inputFields(model, app.params, save), options(app));
  panel.replaceChildren(lead, ask, result);
  run(view);
}

function options(app) {
  const keep = (name) => (event) => app.save({ [name]: event.target.value, prefix: "" });
  const number = (name, given, limits) => field(t(`write.${name}`), numeric(app.params[name] || given, { name, ...limits, oninput: keep(name) }));
  return h(
    "div", { class: "row" },
    number("beam", 3, { min: 1, max: 16 }),
    number("length_penalty", 1, { min: 0, max: 5, step: 0.1 }),
    number("max_length", 40, { min: 1, max: 200 }),
  );
}

function question(view) {
  const { app, model } = view;
  const input = inputValue(model, app.params);
  if (!input) return null;
  const { beam: width = 3, length_penalty: penalty = 1, max_length: longest = 40 } = app.params;
  const options = { beam: Number(width || 3), length_penalty: Number(penalty || 1), max_length: Number(longest || 40) };
  return { model: model.name, input, options, influence: typeof input === "string", ...(prefix(app).length && { prefix: prefix(app) }) };
}

const prefix = (app) => (app.params.prefix ? JSON.parse(app.params.prefix) : []);

async function run(view) {
  const asked = question(view);
  if (!asked) return view.result.replaceChildren(h("p", { class: "empty" }, t("input.missing")));
  view.answer = await view.app.work("write", view.result, (signal) => once("/explain", asked, signal));
  if (!view.answer) return undefined;
  draw(view);
  return view.app.say(String(view.answer.explanation.output));
}

function draw(view) {
  const { app, answer } = view;
  const { explanation, shown } = answer;
  const step = Math.min(Number(app.params.step || 0), explanation.written.length - 1);
  const save = (changes) => { app.save(changes); draw(view); };
  view.result.replaceChildren(
    h("div", { class: "halves" }, text(view, explanation, step, save), next(view, explanation, step)),
    ...influence(explanation, step),
    ...[attention(explanation, shown?.image?.png ?? app.params.image ?? null, app.params, save)].filter(Boolean),
    ...(explanation.beam?.length ? [headed(t("beam"), t("beam.hint"), beam(explanation.beam, explanation.written))] : []),
  );
}

/** The text, each token shaded by its probability. */
function text(view, explanation, step, save) {
  const forced = prefix(view.app).length;
  const pick = (place) => { save({ step: String(place) }); view.result.querySelectorAll(".words button")[place]?.focus(); };
  const clear = () => { view.app.save({ prefix: "", step: "" }); run(view); };
  return headed(
    t("write.text"), t("write.text.hint"),
    h("p", { class: "output" }, String(explanation.output)),
    words(explanation.written, explanation.choices.map((choice) => choice.probability), { most: 1, pick, picked: step, label: t("write.text") }),
    h("p", { class: "hint" }, t("write.score"), " ", data(explanation.score)),
    forced > 0 && h("p", { class: "forced" }, t("write.forced", { tokens: prefix(view.app).join(" ") }), " ", h("button", { type: "button", class: "quiet", onclick: clear }, t("write.free"))),
  );
}

/** The ten most likely tokens at a step; clicking one forces it and writes on from there. */
function next(view, explanation, step) {
  const choice = explanation.choices[step];
  const tokens = choice.alternatives.map(([token]) => token);
  const force = (place) => {
    view.app.save({ prefix: JSON.stringify([...explanation.written.slice(0, step), tokens[place]]), step: String(step) });
    run(view);
  };
  const title = t("write.next", { step: step + 1, count: explanation.written.length });
  const drawn = bars(tokens, choice.alternatives.map(([, value]) => value), {
    most: 1, shown: percent, pick: force, picked: tokens.indexOf(choice.token), label: title,
  });
  return headed(title, t("write.next.hint"), drawn);
}

/** Words of the input by their influence on the chosen token. */
function influence(explanation, step) {
  const found = explanation.influence;
  if (!found) return [];
  const values = found.values.map((row) => row[step] ?? null);
  const title = t("write.influence", { token: found.scores[step] ?? number(step + 1) });
  return [headed(title, t("influence.hint"), words(found.words, values, { label: title }), scale(largest(values), true))];
}
