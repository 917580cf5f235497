/** Numbers as people read them. The full value stays in the attribute `value` of a <data> element. */

import { h } from "./dom.js";
import { language, t } from "./i18n/index.js";

const formats = new Map();

function format(options) {
  const key = language() + JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(language(), options));
  return formats.get(key);
}

const MINUS = /^-/;

export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  return format({ maximumSignificantDigits: digits }).format(value).replace(MINUS, "−");
}

export const count = (value) => format({}).format(value);

export const percent = (value) =>
  value === null || value === undefined ? "–" : format({ style: "percent", maximumFractionDigits: 1 }).format(value);

export const milliseconds = (value) => `${format({ maximumSignificantDigits: 3 }).format(value)} ms`;

const UNITS = ["B", "KB", "MB", "GB", "TB"];

export function bytes(value) {
  const power = value > 0 ? Math.min(Math.floor(Math.log10(value) / 3), UNITS.length - 1) : 0;
  return `${format({ maximumSignificantDigits: 3 }).format(value / 1000 ** power)} ${UNITS[power]}`;
}

/** Shows a number, with all its digits in `value`. */
export function data(value, shown = number(value), attributes = {}) {
  return h("data", { value: String(value), ...attributes }, shown);
}

/** Letter of a candidate: A to Z, then numbers. */
export const letter = (place) => (place < 26 ? String.fromCharCode(65 + place) : String(place + 1));

/** Text of an answer, whatever its type. */
export function plain(value) {
  if (Array.isArray(value)) return value.length ? value.map(plain).join(", ") : t("none");
  return typeof value === "number" ? number(value) : String(value);
}
