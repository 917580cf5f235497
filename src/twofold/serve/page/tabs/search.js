/** Search: hits of an index, and the certificate that no other candidate can be among them. */

import { forget, once } from "../api.js";
import { h } from "../dom.js";
import { count, data, milliseconds, number } from "../format.js";
import { t } from "../i18n/index.js";
import { certificate } from "../draw/curve.js";
import { field, form, headed, numeric, select, textarea, titled } from "../widgets.js";

const K = 10;
const DEPTH = 20;
const SIDE_BY_SIDE = 720;

export const search = { id: "search", offered: (served) => served.indexes.length > 0, mount };

function mount(panel, app) {
  const result = h("div", { class: "stage" });
  const go = () => { forget(); run(app, result); };
  const lead = h("div", { class: "lead" }, h("h1", {}, t("search.title")), h("p", {}, t("search.lead")));
  panel.replaceChildren(lead, form(t("search.go"), go, fields(app, () => mount(panel, app))), result);
  if (app.params.context) run(app, result);
  else result.replaceChildren(h("p", { class: "empty" }, t("search.missing")));
}

function fields(app, again) {
  const { served, params } = app;
  const keep = (name) => (event) => app.save({ [name]: event.target.value });
  const names = served.indexes.map((index) => [index.name, t("index.named", { name: index.name, count: count(index.candidates) })]);
  const context = textarea(params.context, { name: "context", rows: "2", oninput: keep("context") });
  const filter = h("input", { type: "text", name: "filter", value: params.filter ?? "", oninput: keep("filter"), placeholder: 'lang = "en"', spellcheck: "false" });
  const columns = chosen(app).fields ?? [];
  const others = served.models.filter((model) => model.tab === "rank" && model.name !== chosen(app).model);
  const then = select([["", t("search.then.none")], ...others.map((model) => [model.name, titled(model)])], params.then ?? "", (value) => app.save({ then: value }));
  return [
    served.indexes.length > 1 && field(t("index"), select(names, chosen(app).name, (index) => { app.save({ index, filter: "" }); again(); })),
    h("div", { class: "wide" }, field(t("search.context"), context)),
    h(
      "div", { class: "row" },
      field(t("k"), numeric(params.k || K, { min: 1, max: 1000, name: "k", oninput: keep("k") })),
      columns.length > 0 && field(t("search.filter"), filter, t("search.fields", { names: columns.join(", ") })),
      others.length > 0 && field(t("search.then"), then),
    ),
  ];
}

const chosen = (app) => app.served.indexes.find((index) => index.name === app.params.index) ?? app.served.indexes[0];

function question(app) {
  const { context, k, filter, then } = app.params;
  return {
    index: chosen(app).name,
    context,
    k: Number(k || K),
    certificate: true,
    ...(filter && { filter }),
    ...(then && { then: [[then, Math.max(DEPTH, Number(k || K))]] }),
  };
}

async function run(app, result) {
  if (!app.params.context) return result.replaceChildren(h("p", { class: "empty" }, t("search.missing")));
  const found = await app.work("search", result, (signal) => once("/search", question(app), signal));
  if (!found) return undefined;
  result.replaceChildren(h("div", { class: "halves" }, hits(found), proof(found, widthOf(result))));
  return app.say(t("search.said", { count: found.hits.length }));
}

function hits(found) {
  const facts = [t(found.exact ? "search.exact" : "search.approximate"), milliseconds(found.milliseconds)].join(" · ");
  const items = found.hits.map((hit) =>
    h(
      "li", { "data-id": hit.id },
      h("p", {}, hit.text),
      h("p", { class: "hint" }, data(hit.score, number(hit.score), { class: "score" }), ` · ${hit.id}`, extra(hit.fields)),
    ),
  );
  return headed(t("search.hits", { count: found.hits.length }), facts, h("ol", { class: "found" }, items));
}

function extra(fields) {
  return Object.entries(fields ?? {}).map(([name, value]) => [" ", h("span", { class: "badge" }, `${name}: ${value}`)]);
}

/** Pixels that a figure has beside the hits, or below them where it is narrow. */
const widthOf = (region) => (region.clientWidth > SIDE_BY_SIDE ? region.clientWidth / 2 : region.clientWidth) - 48;

function proof(found, width) {
  if (!found.certificate) return headed(t("certificate"), t("certificate.none"));
  const { candidates, scored, floor, bounds } = found.certificate;
  const counts = { candidates: count(candidates), scored: count(scored), floor: number(floor) };
  const why = h("p", { class: "why" }, t(scored < candidates ? "certificate.why" : "certificate.all", counts));
  if (!bounds) return headed(t("certificate"), null, why);
  const marks = ["bounds", "scored", "hit", "never"].map((name) => h("li", { class: `key-${name}` }, t(`certificate.legend.${name}`)));
  return headed(t("certificate"), null, certificate(found.certificate, found.hits, width), h("ul", { class: "key" }, marks), why);
}
