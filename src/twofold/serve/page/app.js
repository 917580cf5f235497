/** The page: which tab is shown, its state in the address, language and theme. */

import { forget, once, Refused, setKey } from "./api.js";
import { h, redrawCanvases } from "./dom.js";
import { choose, language, languages, t } from "./i18n/index.js";
import { notice } from "./widgets.js";
import { labels } from "./tabs/labels.js";
import { look } from "./tabs/look.js";
import { model } from "./tabs/model.js";
import { rank } from "./tabs/rank.js";
import { search } from "./tabs/search.js";
import { write } from "./tabs/write.js";

const TABS = [rank, search, write, look, labels, model];
const THEME = "twofold.theme";
const THEMES = ["auto", "light", "dark"];
const LONGEST_LINK = 200_000;
const FILES = ["image", "audio"];

const byId = (id) => document.getElementById(id);
const panel = byId("panel");
const remembered = {};
const running = new Map();
let served = { models: [], indexes: [] };
let current = null;
let whatIsLeftOut = [];

/** State in the address: #rank?context=...&lang=ko. */
function readAddress() {
  const [tab, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  const params = Object.fromEntries(new URLSearchParams(query));
  return { tab, params, lang: params.lang };
}

/** Address of a state. A large image or sound does not fit: the address is then without it. */
function address(tab, params) {
  const given = Object.entries({ ...params, lang: language() }).filter(([, value]) => value !== undefined && value !== "");
  const whole = `#${tab}?${new URLSearchParams(given)}`;
  whatIsLeftOut = whole.length < LONGEST_LINK ? [] : given.map(([name]) => name).filter((name) => FILES.includes(name));
  if (!whatIsLeftOut.length) return whole;
  return `#${tab}?${new URLSearchParams(given.filter(([name]) => !FILES.includes(name)))}`;
}

function keepAddress() {
  try {
    history.replaceState(null, "", address(current.id, remembered[current.id]));
  } catch {
    // Safari allows a hundred changes in half a minute; the next change keeps this one too.
  }
}

/** What a tab gets: what is served, its own state, and how to keep, ask and tell. */
function context(tab) {
  return {
    served,
    params: remembered[tab.id],
    save(changes) {
      const params = (remembered[tab.id] = { ...remembered[tab.id], ...changes });
      this.params = params;
      if (current === tab) keepAddress();
    },
    work,
    say,
  };
}

/** Runs a request; a newer one of the same name ends it. Shows what goes wrong where the answer would stand. */
async function work(name, region, task) {
  running.get(name)?.abort();
  const controller = new AbortController();
  running.set(name, controller);
  region.setAttribute("aria-busy", "true");
  byId("busy").hidden = false;
  try {
    return await task(controller.signal);
  } catch (error) {
    if (error.name === "AbortError" || controller.signal.aborted) return null;
    if (!(error instanceof Refused)) throw error;
    region.replaceChildren(notice(error));
    if (error.status === 401) askKey();
    return null;
  } finally {
    if (running.get(name) === controller) {
      running.delete(name);
      region.removeAttribute("aria-busy");
    }
    byId("busy").hidden = running.size === 0;
  }
}

function say(text) {
  byId("said").textContent = text;
}

function offered() {
  return TABS.filter((tab) => tab.offered(served));
}

function drawTabs() {
  byId("tabs").replaceChildren(
    ...offered().map((tab) =>
      h(
        "button",
        {
          type: "button", role: "tab", id: `tab-${tab.id}`, "aria-controls": "panel",
          "aria-selected": String(tab === current), tabindex: tab === current ? "0" : "-1",
          onclick: () => open(tab), onkeydown: (event) => moveTab(event, tab),
        },
        t(`tab.${tab.id}`),
      ),
    ),
  );
}

/** Arrows, Home and End move between tabs, as the tab pattern has it. */
function moveTab(event, tab) {
  const tabs = offered();
  const place = tabs.indexOf(tab);
  const places = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 };
  if (!(event.key in places)) return;
  event.preventDefault();
  open(tabs.at(places[event.key] % tabs.length));
  byId(`tab-${current.id}`).focus();
}

function open(tab, params = remembered[tab.id] ?? {}, push = true) {
  for (const controller of running.values()) controller.abort();
  current = tab;
  remembered[tab.id] = params;
  if (push) history.pushState(null, "", address(tab.id, params));
  drawTabs();
  panel.setAttribute("aria-labelledby", `tab-${tab.id}`);
  document.title = `${t(`tab.${tab.id}`)} · Twofold`;
  panel.replaceChildren();
  tab.mount(panel, context(tab));
}

function openAddress() {
  const { tab, params, lang } = readAddress();
  choose(lang);
  drawTools();
  const { lang: _, ...rest } = params;
  const wanted = offered().find((each) => each.id === tab);
  open(wanted ?? offered()[0], wanted ? rest : {}, false);
}

function drawTools() {
  const theme = localStorage.getItem(THEME) ?? "auto";
  const other = languages().find((name) => name !== language());
  byId("theme").querySelector("span").textContent = t(`theme.${theme}`);
  byId("theme").dataset.shown = theme;
  byId("theme").setAttribute("aria-label", t("theme.label", { theme: t(`theme.${theme}`) }));
  byId("language").textContent = t(`language.${other}`);
  byId("language").lang = other;
  byId("version").textContent = served.version ? `Twofold ${served.version}` : "";
}

function setTheme(theme) {
  localStorage.setItem(THEME, theme);
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  redrawCanvases();
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(localStorage.getItem(THEME) ?? "auto") + 1) % THEMES.length]);
  drawTools();
}

function nextLanguage() {
  choose(languages().find((name) => name !== language()), true);
  drawTools();
  keepAddress();
  open(current, remembered[current.id], false);
}

async function copyLink() {
  const shown = byId("link").querySelector("span");
  keepAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    shown.textContent = t(whatIsLeftOut.length ? "link.without" : "link.copied");
  } catch {
    shown.textContent = t("link.address");
  }
  say(shown.textContent);
  setTimeout(() => (shown.textContent = t("link")), 2500);
}

function askKey() {
  const dialog = byId("key");
  if (!dialog.open) dialog.showModal();
}

function takeKey() {
  setKey(byId("key-value").value);
  byId("key-value").value = "";
  forget();
  start();
}

async function start() {
  const state = await work("state", panel, (signal) => once("/playground/state", null, signal));
  if (!state) return;
  served = state;
  if (state.models.length) openAddress();
  else panel.replaceChildren(h("p", { class: "empty" }, t("empty")));
}

setTheme(localStorage.getItem(THEME) ?? "auto");
choose(readAddress().lang);
drawTools();
byId("theme").addEventListener("click", nextTheme);
byId("language").addEventListener("click", nextLanguage);
byId("link").addEventListener("click", copyLink);
byId("key").addEventListener("close", takeKey);
window.addEventListener("popstate", () => served.models.length && openAddress());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCanvases);
start();
