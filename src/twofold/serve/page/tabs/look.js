/** Look: the class of every pixel, over the image; two models side by side where two are served. */

import { forget, once } from "../api.js";
import { h } from "../dom.js";
import { percent } from "../format.js";
import { t } from "../i18n/index.js";
import { bars } from "../draw/bars.js";
import { classNumbers, colored, masked, read } from "../draw/mask.js";
import { fileField, form, headed, named } from "../widgets.js";

const OPACITY = 55;

const lookers = (served) => served.models.filter((model) => model.tab === "look");

export const look = { id: "look", offered: (served) => lookers(served).length > 0, mount };

function mount(panel, app) {
  const result = h("div", { class: "stage" });
  const view = { app, result };
  const lead = h("div", { class: "lead" }, h("h1", {}, t("look.title")), h("p", {}, t("look.lead")));
  const image = fileField("image", app.params.image, (content) => { app.save({ image: content, only: "" }); run(view); });
  panel.replaceChildren(lead, form(t("look.go"), () => { forget(); run(view); }, image, models(view)), result);
  run(view);
}

const hidden = (app) => (app.params.hide || "").split(",").filter(Boolean);
const shown = (app) => lookers(app.served).filter((model) => !hidden(app).includes(model.name));

function models(view) {
  const { app } = view;
  const all = lookers(app.served);
  if (all.length < 2) return h("p", { class: "only" }, named(all[0]));
  const boxes = all.map((model) => {
    const change = (event) => {
      const rest = hidden(app).filter((name) => name !== model.name);
      app.save({ hide: (event.target.checked ? rest : [...rest, model.name]).join(",") });
      run(view);
    };
    return h("label", {}, h("input", { type: "checkbox", checked: !hidden(app).includes(model.name), onchange: change }), named(model));
  });
  return h("fieldset", { class: "checks" }, h("legend", {}, t("look.models")), boxes);
}

async function run(view) {
  const { app, result } = view;
  const { image } = app.params;
  if (!image) return result.replaceChildren(h("p", { class: "empty" }, t("look.missing")));
  const ask = (signal) => Promise.all(shown(app).map((model) => once("/explain", { model: model.name, input: { image } }, signal)));
  const answers = await app.work("look", result, ask);
  if (!answers) return undefined;
  draw(view, answers, await Promise.all(answers.map((answer) => figure(answer, image))));
  return app.say(t("look.said", { classes: answers.map(({ shown: found }) => seen(found).map((each) => each.name).join(", ")).join("; ") }));
}

const seen = (found) => found.classes.filter((each) => each.share > 0);

async function figure({ shown: found }, image) {
  const [mask, confidence] = await Promise.all([read(found.mask.png), found.confidence ? read(found.confidence.png) : null]);
  return masked(found.image?.png ?? image, classNumbers(mask, found.classes), confidence, colored(found.classes));
}

function draw(view, answers, figures) {
  const { app, result } = view;
  const columns = shown(app).map((model, place) =>
    h(
      "section", { class: "block", "data-model": model.name },
      h("h3", {}, named(model)), figures[place].element, classes(view, answers[place].shown, figures),
    ),
  );
  const pair = h("div", { class: "halves masks" }, columns);
  result.replaceChildren(controls(app, pair, figures), pair);
  paint(app, figures);
  for (const each of figures) follow(each, figures);
}

/** Slider of the overlay, and shading by confidence. */
function controls(app, pair, figures) {
  const fade = (value) => { pair.style.setProperty("--opacity", value / 100); shownValue.textContent = percent(value / 100); };
  const shownValue = h("output", {});
  const slider = h("input", {
    type: "range", min: 0, max: 100, name: "opacity", id: "opacity", value: app.params.opacity || OPACITY,
    oninput: () => { app.save({ opacity: slider.value }); fade(slider.value); },
  });
  const sure = h("input", { type: "checkbox", name: "sure", checked: app.params.sure === "1", onchange: () => { app.save({ sure: sure.checked ? "1" : "" }); paint(app, figures); } });
  fade(slider.value);
  return h("div", { class: "row controls" }, h("label", { for: "opacity" }, t("look.opacity")), slider, shownValue, h("label", {}, sure, " ", t("look.sure")));
}

function paint(app, figures) {
  const chosen = app.params.only ? Number(app.params.only) : null;
  for (const each of figures) each.only(chosen, app.params.sure === "1");
}

/** Classes with their shares; a click shows one alone. */
function classes(view, found, figures) {
  const { app } = view;
  const all = colored(found.classes);
  const places = all.map((each, place) => place).filter((place) => all[place].share > 0);
  const region = h("div", {});
  const name = (place) => [h("span", { class: "swatch", vars: { "--color": all[place].color } }), all[place].name];
  const pick = (row) => {
    app.save({ only: app.params.only === String(places[row]) ? "" : String(places[row]) });
    paint(app, figures);
    for (const list of view.result.querySelectorAll(".classes")) list.redraw();
    region.querySelectorAll("button")[row].focus();
  };
  region.className = "classes";
  region.redraw = () =>
    region.replaceChildren(
      bars(places.map(name), places.map((place) => all[place].share), {
        most: 1, shown: percent, label: t("look.classes"), pick, picked: app.params.only ? places.indexOf(Number(app.params.only)) : -1,
      }),
    );
  region.redraw();
  return headed(t("look.classes"), t("look.classes.hint"), region);
}

/** The same place is read in all figures, by pointer or arrows. */
function follow(figure, figures) {
  let [x, y] = [0.5, 0.5];
  const show = () => { for (const each of figures) each.point(x, y); };
  const within = (value) => Math.min(0.9999, Math.max(0, value));
  figure.stack.addEventListener("pointermove", (event) => {
    const box = figure.stack.getBoundingClientRect();
    [x, y] = [within((event.clientX - box.left) / box.width), within((event.clientY - box.top) / box.height)];
    show();
  });
  const moves = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  figure.stack.addEventListener("keydown", (event) => {
    if (!(event.key in moves)) return;
    event.preventDefault();
    const [right, down] = moves[event.key];
    [x, y] = [within(x + right / figure.width), within(y + down / figure.height)];
    show();
  });
  figure.stack.addEventListener("focus", show);
}
