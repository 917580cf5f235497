/** Rank: one context, the same candidates, every ranker in a column; lines show how ranks change. */

import { forget, once } from "../api.js";
import { h } from "../dom.js";
import { bytes, count, data, letter, milliseconds, number } from "../format.js";
import { t } from "../i18n/index.js";
import { ghosts, slopes } from "../draw/slopes.js";
import { field, form, named, numeric, segmented, select, textarea, titled } from "../widgets.js";
import { candidate } from "./candidate.js";

const MOST = 10;

const rankers = (served) =>
  served.models.filter((model) => model.tab === "rank" && model.inputs.every((part) => part.type === "text"));

export const rank = { id: "rank", offered: (served) => rankers(served).length > 0, mount };

function mount(panel, app) {
  if (app.params.context === undefined) {
    app.save({ context: t("rank.example.context"), candidates: t("rank.example.candidates") });
  }
  const view = {
    app,
    answers: {},
    earlier: {},
    words: h("div", { class: "chips" }),
    columns: h("div", { class: "stage" }),
    detail: h("div", { class: "detail", tabindex: "-1" }),
  };
  const ask = form(t("rank.go"), () => { forget(); run(view); }, fields(view));
  panel.replaceChildren(h("div", { class: "lead" }, h("h1", {}, t("rank.title")), h("p", {}, t("rank.lead"))), ask, view.words, view.columns, view.detail);
  run(view);
}

function fields(view) {
  const { app } = view;
  const context = textarea(app.params.context, { name: "context", oninput: () => app.save({ context: context.value, out: "" }) });
  const parts = [field(t("rank.context"), context, t("rank.context.hint"))];
  const source = h("div", { class: "field" });
  const redraw = () => source.replaceChildren(...candidateFields(app, redraw));
  redraw();
  parts.push(source);
  if (rankers(app.served).length > 1) parts.push(choices(view));
  return parts;
}

function candidateFields(app, redraw) {
  const { served, params } = app;
  const typed = textarea(params.candidates, {
    name: "candidates", rows: "8", oninput: () => app.save({ candidates: typed.value, before: "", pick: "" }),
  });
  const parts = [];
  if (served.indexes.length) {
    const sources = [["typed", t("rank.typed")], ["index", t("rank.index")]];
    const change = (chosen) => {
      app.save({ source: chosen === "typed" ? "" : served.indexes[0].name, before: "", pick: "" });
      redraw();
    };
    parts.push(segmented(t("rank.candidates"), sources, params.source ? "index" : "typed", change));
  }
  if (!params.source) return [...parts, field(t("rank.candidates"), typed, t("rank.candidates.hint"))];
  const names = served.indexes.map((index) => [index.name, t("index.named", { name: index.name, count: count(index.candidates) })]);
  const most = numeric(params.k || MOST, { min: 1, max: 100, name: "k", oninput: () => app.save({ k: most.value, before: "" }) });
  return [...parts, field(t("index"), select(names, params.source, (source) => app.save({ source, before: "" }))), field(t("k"), most)];
}

/** Which rankers are shown. */
function choices(view) {
  const { app } = view;
  const boxes = rankers(app.served).map((model) => {
    const change = (event) => {
      const rest = hidden(app).filter((name) => name !== model.name);
      app.save({ hide: (event.target.checked ? rest : [...rest, model.name]).join(",") });
      run(view);
    };
    const box = h("input", { type: "checkbox", checked: !hidden(app).includes(model.name), onchange: change });
    return h("label", {}, box, named(model));
  });
  return h("fieldset", { class: "checks" }, h("legend", {}, t("rank.models")), boxes);
}

const hidden = (app) => (app.params.hide || "").split(",").filter(Boolean);
const shown = (app) => rankers(app.served).filter((model) => !hidden(app).includes(model.name));
const leftOut = (app) => new Set((app.params.out || "").split(",").filter(Boolean).map(Number));
const lines = (text) => (text || "").split("\n").map((line) => line.trim()).filter(Boolean);

/** The context without the words that are left out; turns on lines of their own. */
function asked(app) {
  let place = 0;
  const out = leftOut(app);
  const kept = lines(app.params.context).map((line) => line.split(/\s+/).filter(() => !out.has(place++)).join(" "));
  return kept.filter(Boolean).join("\n");
}

const turns = (text) => (text.includes("\n") ? text.split("\n") : text);

async function run(view) {
  const { app } = view;
  const context = asked(app);
  if (!context || (!app.params.source && !lines(app.params.candidates).length)) {
    return view.columns.replaceChildren(h("p", { class: "empty" }, t("rank.missing")));
  }
  drawWords(view);
  if (view.asked !== undefined && view.asked !== context && app.params.before !== "") app.save({ before: view.asked });
  else if (app.params.before === "") app.save({ before: undefined });
  if (app.params.before === context) app.save({ before: undefined });
  view.asked = context;
  const answered = await app.work("rank", view.columns, (signal) => askAll(view, context, signal));
  if (!answered) return undefined;
  draw(view);
  app.say(t("rank.said", { count: shown(app).length }));
  return drawDetail(view);
}

async function askAll(view, context, signal) {
  view.answers = await answersTo(view.app, context, signal);
  view.earlier = view.app.params.before ? await answersTo(view.app, view.app.params.before, signal) : {};
  return true;
}

/** Answers of all rankers by their names; an index is searched once, and its hits are ranked by the others. */
async function answersTo(app, context, signal) {
  const answers = {};
  const index = app.served.indexes.find((each) => each.name === app.params.source);
  let candidates = lines(app.params.candidates);
  if (index) {
    const found = await once("/search", { index: index.name, context: turns(context), k: Number(app.params.k || MOST) }, signal);
    answers[index.model] = found;
    candidates = found.hits.map(({ id, text }) => ({ id, text }));
  }
  const others = shown(app).filter((model) => !(model.name in answers));
  await Promise.all(
    others.map(async (model) => {
      const content = { model: model.name, context: turns(context), candidates, k: candidates.length };
      answers[model.name] = await once("/rank", content, signal);
    }),
  );
  return answers;
}

/** The words of the context as switches: without a word, what moves? */
function drawWords(view) {
  const { app } = view;
  const out = leftOut(app);
  const texts = lines(app.params.context).flatMap((line) => line.split(/\s+/));
  const toggle = (place) => {
    if (!out.delete(place)) out.add(place);
    app.save({ out: [...out].join(",") });
    run(view).then(() => view.words.querySelectorAll("button")[place]?.focus());
  };
  view.words.replaceChildren(
    h("p", { class: "hint" }, t("rank.words")),
    ...texts.map((text, place) =>
      h("button", { type: "button", class: "chip", "aria-pressed": String(!out.has(place)), onclick: () => toggle(place) }, text),
    ),
  );
}

/** Places by candidate of one answer. */
const places = (answer) => new Map((answer?.hits ?? []).map((hit, place) => [hit.id, place]));

function draw(view) {
  const { app, answers, earlier } = view;
  const models = shown(app).filter((model) => answers[model.name]);
  const rows = Math.max(0, ...models.map((model) => answers[model.name].hits.length));
  const letters = lettersOf(view, models);
  const slowest = Math.max(...models.map((model) => answers[model.name].cost?.milliseconds ?? 0));
  const parts = models.flatMap((model, number) => [
    number > 0 && gutter(answers[models[number - 1].name], answers[model.name], rows, chosenId(view)),
    column(view, model, answers[model.name], earlier[model.name], { letters, slowest, rows, last: number === models.length - 1 }),
  ]);
  const grid = h("div", { class: "columns", vars: { "--models": models.length, "--rows": rows } }, parts);
  grid.style.gridTemplateColumns = models.map(() => "minmax(0, 1fr)").join(" var(--gap) ");
  view.columns.replaceChildren(legend(letters, answers, models), grid, ...compared(app));
}

/** Letters by candidate: in the order in which they were typed, or in which the index finds them. */
function lettersOf(view, models) {
  const hits = models.flatMap((model) => view.answers[model.name].hits);
  const ids = [...new Set(hits.map((hit) => hit.id))];
  if (!view.app.params.source) ids.sort((one, other) => one - other);
  return new Map(ids.map((id, place) => [id, letter(place)]));
}

/** Texts beside their letters, where columns are too narrow for texts. */
function legend(letters, answers, models) {
  const texts = new Map(models.flatMap((model) => answers[model.name].hits.map((hit) => [hit.id, hit.text])));
  const items = [...letters].map(([id, name]) => h("li", {}, h("b", {}, name), " ", texts.get(id)));
  return h("ul", { class: "letters" }, items);
}

function gutter(left, right, rows, chosen) {
  const to = places(right);
  const drawn = left.hits.map((hit, place) => ({ from: place, to: to.get(hit.id) ?? null, id: hit.id }));
  const missing = right.hits.filter((hit) => !places(left).has(hit.id)).map((hit) => ({ from: null, to: to.get(hit.id), id: hit.id }));
  return slopes([...drawn, ...missing].sort((one) => (one.id === chosen ? 1 : -1)), rows, chosen);
}

function column(view, model, answer, before, { letters, slowest, rows, last }) {
  const now = places(answer);
  const then = places(before);
  const moved = before ? [...now].filter(([id, place]) => then.has(id) && then.get(id) !== place) : [];
  const items = answer.hits.map((hit, place) => item(view, model, hit, place, then, letters, before?.hits[place]));
  const drawn = moved.map(([id, place]) => ({ from: place, to: then.get(id), id }));
  const through = last ? [] : answer.hits.map((hit) => hit.id);
  const list = h("ol", { class: moved.length ? "hits moved" : "hits" }, items);
  return h(
    "section", { class: "column", "aria-label": titled(model), "data-model": model.name },
    h("header", {}, h("h2", {}, named(model)), cost(answer, slowest)),
    h("div", { class: "list" }, list, moved.length > 0 && ghosts(drawn, rows, through, chosenId(view))),
  );
}

function item(view, model, hit, place, then, letters, ghost) {
  const before = then.get(hit.id);
  const up = before - place;
  const content = [
    h("b", { class: "letter" }, letters.get(hit.id)),
    h("span", { class: "text" }, hit.text),
    data(hit.score, number(hit.score), { class: "score" }),
    up ? h("span", { class: up > 0 ? "delta up" : "delta down" }, t(up > 0 ? "rank.up" : "rank.down", { by: Math.abs(up) })) : null,
  ];
  const pressed = { "aria-pressed": String(hit.id === chosenId(view)), onclick: () => pick(view, hit.id) };
  const label = t("rank.item", { rank: place + 1, text: hit.text, score: number(hit.score) });
  return h(
    "li", { "data-id": hit.id },
    h("button", { type: "button", class: "hit", title: hit.text, "aria-label": label, ...pressed }, content),
    ghost && ghost.id !== hit.id && h("span", { class: "was", title: t("rank.was", { text: ghost.text }) }, letters.get(ghost.id) ?? "·"),
  );
}

/** What a ranking costs: time, memory of cached vectors, texts that the encoder reads. */
function cost(answer, slowest) {
  const { milliseconds: time = answer.milliseconds, bytes_cached: cached, texts_read: read } = answer.cost ?? {};
  const width = slowest > 0 ? time / slowest : 0;
  return h(
    "div", { class: "cost" },
    h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "fill", vars: { "--w": width } })),
    h("span", { class: "time" }, data(time, milliseconds(time))),
    cached !== undefined && h("span", {}, data(cached, t("cost.cached", { bytes: bytes(cached) }))),
    read !== undefined && h("span", {}, data(read, t("cost.read", { count: count(read) }))),
  );
}

function compared(app) {
  return app.params.before ? [h("p", { class: "hint before" }, t("rank.before", { text: app.params.before.replaceAll("\n", " / ") }))] : [];
}

/** Id of the candidate whose details are shown; the address keeps it as text. */
function chosenId(view) {
  const hits = Object.values(view.answers).flatMap((answer) => answer.hits);
  const wanted = view.app.params.pick;
  return (hits.find((hit) => String(hit.id) === wanted) ?? hits[0])?.id;
}

function pick(view, id) {
  view.app.save({ pick: String(id) });
  const before = document.activeElement?.closest("[data-model]")?.dataset.model;
  draw(view);
  view.columns.querySelector(`[data-model="${CSS.escape(before ?? "")}"] [aria-pressed="true"]`)?.focus();
  drawDetail(view);
}

function drawDetail(view) {
  const { app, answers } = view;
  const id = chosenId(view);
  const hits = shown(app).map((model) => [model, answers[model.name]?.hits.find((hit) => hit.id === id)]);
  return candidate(view.detail, app, turns(asked(app)), hits.filter(([, hit]) => hit));
}
