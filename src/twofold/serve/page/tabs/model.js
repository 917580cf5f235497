/** Model: the two functions as a diagram, parameters by part, the recipe, and the curves of the training. */

import { once } from "../api.js";
import { h } from "../dom.js";
import { bytes, count, data } from "../format.js";
import { t } from "../i18n/index.js";
import { curve } from "../draw/curve.js";
import { diagram } from "../draw/diagram.js";
import { headed, modelField } from "../widgets.js";

export const model = { id: "model", offered: (served) => served.models.length > 0, mount };

function mount(panel, app) {
  const { models } = app.served;
  const chosen = models.find((each) => each.name === app.params.model) ?? models[0];
  const result = h("div", { class: "stage" });
  const change = (name) => { app.save({ model: name }); mount(panel, app); };
  const lead = h("div", { class: "lead" }, h("h1", {}, t("model.title")), h("p", {}, t("model.lead")));
  panel.replaceChildren(lead, h("div", { class: "ask" }, modelField(models, chosen, change)), result);
  return run(app, chosen, result);
}

async function run(app, chosen, result) {
  const path = `/models/${encodeURIComponent(chosen.name)}`;
  const found = await app.work("model", result, (signal) => once(path, null, signal));
  if (!found) return;
  const { summary, recipe, curves, card } = found;
  result.replaceChildren(
    headed(t("model.functions"), t("model.functions.hint"), diagram(summary.parts), facts(chosen, summary)),
    h("div", { class: "halves" }, sizes(summary), recipe ? headed(t("model.recipe"), t("model.recipe.hint"), h("pre", { class: "recipe", tabindex: "0" }, yaml(recipe))) : headed(t("model.recipe"), t("model.recipe.none"))),
    ...lines(curves),
    ...(card ? [headed(t("model.card"), null, h("pre", { class: "card-text", tabindex: "0" }, card))] : []),
  );
}

function facts(chosen, { candidate, losses, notes }) {
  const kept = candidate && t("model.candidate", { vectors: candidate.vectors ?? "n", width: candidate.width, number: candidate.number, bytes: bytes(candidate.bytes) });
  const rows = [
    [t("model.runtime"), [chosen.runtime, chosen.precision].filter(Boolean).join(", ")],
    [t("model.losses"), losses?.join(", ")],
    [t("model.keeps"), kept],
    [t("model.notes"), notes?.join(" ")],
  ];
  return h("dl", { class: "facts" }, rows.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Parameters by part, and by module inside a part. */
function sizes({ sizes: parts, total }) {
  const most = total.parameters;
  const title = t("model.sizes", { count: count(total.parameters), bytes: bytes(total.bytes) });
  return headed(title, total.frozen ? t("model.frozen", { count: count(total.frozen) }) : null, h("ul", { class: "bars sizes" }, parts.map((part) => size(part, most))));
}

function size(part, most) {
  const width = most ? part.parameters / most : 0;
  const learned = part.parameters ? part.trained / part.parameters : 0;
  const row = h(
    "span", { class: "bar" },
    h("span", { class: "name" }, part.name),
    h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "fill parts", vars: { "--w": width, "--learned": learned } })),
    data(part.parameters, count(part.parameters)),
  );
  if (part.inside.length < 2) return h("li", {}, row);
  return h("li", {}, h("details", {}, h("summary", {}, row), h("ul", { class: "bars sizes" }, part.inside.map((inner) => size(inner, most)))));
}

/** A recipe as it is written. */
function yaml(value, indent = "") {
  return Object.entries(value)
    .map(([name, inner]) => {
      if (inner && typeof inner === "object" && !Array.isArray(inner) && Object.keys(inner).length) {
        return `${indent}${name}:\n${yaml(inner, `${indent}  `)}`;
      }
      return `${indent}${name}: ${inner && typeof inner === "object" ? JSON.stringify(inner) : String(inner)}\n`;
    })
    .join("");
}

/** A curve for every number of the training's log. */
function lines(curves) {
  if (!curves?.length) return [headed(t("model.curves"), t("model.curves.none"))];
  const names = [...new Set(curves.flatMap((each) => Object.keys(each)))].filter((name) => name !== "step");
  const drawn = names
    .map((name) => [name, curves.filter((each) => typeof each[name] === "number").map((each) => [each.step, each[name]])])
    .filter(([, points]) => points.length > 1)
    .map(([name, points]) => h("figure", { class: "curve" }, h("figcaption", {}, h("b", {}, name), " ", data(points.at(-1)[1])), curve(name, points)));
  return [headed(t("model.curves"), t("model.curves.hint"), h("div", { class: "curves" }, drawn))];
}
