/** Form fields and other small pieces that several tabs share. */

import { h, unique } from "./dom.js";
import { maybe, t } from "./i18n/index.js";

/** A control under its label, with a hint that screen readers read too. */
export function field(label, control, hint) {
  const id = control.id || unique("field");
  control.id = id;
  const note = hint && h("small", { class: "hint", id: `${id}-hint` }, hint);
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, note);
}

export function textarea(value, attributes = {}) {
  return h("textarea", { rows: "3", spellcheck: "false", ...attributes, value: value ?? "" });
}

export function numeric(value, attributes = {}) {
  return h("input", { type: "number", inputmode: "decimal", ...attributes, value });
}

/** A <select> of [value, text] pairs. */
export function select(options, value, onchange) {
  const items = options.map(([key, text]) => h("option", { value: key, selected: key === value }, text));
  return h("select", { onchange: (event) => onchange?.(event.target.value) }, items);
}

/** One of a few choices, side by side; arrows move between them. */
export function segmented(label, options, value, onchange) {
  const name = unique("choice");
  const choices = options.map(([key, text]) =>
    h(
      "label",
      {},
      h("input", { type: "radio", name, value: key, checked: key === value, onchange: () => onchange(key) }),
      h("span", {}, text),
    ),
  );
  return h("fieldset", { class: "segmented" }, h("legend", {}, label), h("div", {}, choices));
}

/** What the server refused, and what to do. */
export function notice(error) {
  return h(
    "div", { class: "notice", role: "alert" }, h("strong", {}, t("error")), " ", error.message,
    error.place && h("code", {}, error.place),
  );
}

/** Name of a model and what kind it is. */
export function named(model) {
  return [h("span", { class: "name", title: model.title }, model.name), " ", h("span", { class: "badge" }, model.kind)];
}

/** Choice of a model, if there is more than one. */
export function modelField(models, chosen, onchange) {
  if (models.length < 2) return h("p", { class: "only" }, named(models[0]));
  return field(t("model"), select(models.map((model) => [model.name, titled(model)]), chosen.name, onchange));
}

export const titled = (model) => `${model.name} (${model.kind})`;

/** A heading with what the figure below it shows. */
export function headed(title, explained, ...content) {
  return h("section", { class: "block" }, h("h3", {}, title), explained && h("p", { class: "hint" }, explained), content);
}

/** An image or a sound: chosen, or dropped here. Its value is base64 without the head of a data URL. */
export function fileField(type, value, onchange) {
  const shown = h("div", { class: "preview" });
  const id = unique("file");
  const input = h("input", { type: "file", id, class: "hidden", accept: `${type}/*`, name: type, onchange: () => read(input.files[0]) });
  const show = (content) => shown.replaceChildren(...(content ? [preview(type, content)] : []));
  function read(file) {
    if (!file) return;
    const reader = new FileReader();
    reader.onload = () => {
      const content = reader.result.slice(reader.result.indexOf(",") + 1);
      show(content);
      onchange(content);
    };
    reader.readAsDataURL(file);
  }
  show(value);
  return h(
    "div",
    {
      class: "drop",
      ondragover: (event) => event.preventDefault(),
      ondrop: (event) => { event.preventDefault(); read(event.dataTransfer.files[0]); },
    },
    shown, input, h("label", { for: id, class: "choose" }, t(`input.${type}.choose`)), h("span", { class: "hint" }, t("input.drop")),
  );
}

function preview(type, content) {
  if (type === "image") return h("img", { src: imageUrl(content), alt: t("input.image.alt") });
  return h("span", { class: "badge" }, t("input.audio.given"));
}

const SIGNATURES = { "/9j/": "image/jpeg", iVBOR: "image/png", UklGR: "image/webp" };

/** URL of an image in base64, for an <img>. */
export function imageUrl(content) {
  const start = Object.keys(SIGNATURES).find((signature) => content.startsWith(signature));
  return `data:${SIGNATURES[start] ?? "image/png"};base64,${content}`;
}

const FIELDS = {
  text: (part, params, save) => texts(part, params, save),
  words: (part, params, save) => texts(part, params, save),
  pair: (part, params, save) => [
    texts({ ...part, type: "first" }, params, save),
    texts({ ...part, type: "second" }, params, save),
  ],
  image: (part, params, save) => fileField("image", params.image, (image) => save({ image })),
  audio: (part, params, save) => fileField("audio", params.audio, (audio) => save({ audio })),
};

function texts(part, params, save) {
  const area = textarea(params[part.type], { oninput: () => save({ [part.type]: area.value }), name: part.type });
  return field(t(`input.${part.type}`), area, maybe(`input.${part.type}.hint`));
}

/** Fields for what a model reads. */
export function inputFields(model, params, save) {
  return model.inputs.map((part) => FIELDS[part.type](part, params, save));
}

const VALUES = {
  text: (params) => params.text || null,
  words: (params) => params.words || null,
  pair: (params) => params.first && params.second && { first: params.first, second: params.second },
  image: (params) => params.image && { image: params.image },
  audio: (params) => params.audio && { audio: params.audio },
};

/** What is asked of a model, as the server takes it; null where something is missing. */
export function inputValue(model, params) {
  const values = model.inputs.map((part) => VALUES[part.type](params));
  if (values.some((value) => !value)) return null;
  if (values.length === 1) return values[0];
  return Object.assign({}, ...values.map((value, place) => (typeof value === "string" ? { [model.inputs[place].type]: value } : value)));
}

/** A form that runs on Enter in a line, Ctrl+Enter in a text, and by its button. */
export function form(button, onrun, ...content) {
  return h(
    "form",
    {
      class: "ask",
      onsubmit: (event) => { event.preventDefault(); onrun(); },
      onkeydown: (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); onrun(); }
      },
    },
    content,
    h("button", { class: "go" }, button),
  );
}
