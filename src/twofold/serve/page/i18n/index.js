/** Words of the page in the language that is chosen. */

import en from "./en.js";
import ko from "./ko.js";

const LANGUAGES = { en, ko };
const STORED = "twofold.language";
let chosen = "en";

export const languages = () => Object.keys(LANGUAGES);
export const language = () => chosen;

/** Chooses the language: the one asked for, the one chosen before, or the browser's first that is here. */
export function choose(wanted, remember = false) {
  const known = (name) => name && name in LANGUAGES;
  const spoken = navigator.languages.map((name) => name.slice(0, 2)).find(known);
  chosen = [wanted, localStorage.getItem(STORED), spoken].find(known) ?? "en";
  if (remember) localStorage.setItem(STORED, chosen);
  document.documentElement.lang = chosen;
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
}

/** Text by its key, with {names} filled in. */
export function t(key, values = {}) {
  const text = LANGUAGES[chosen][key] ?? en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** Text by its key, or null where there is none. */
export const maybe = (key) => (key in en ? t(key) : null);
