/** Talks to the server: JSON in, JSON out, errors as one line. */

import { t } from "./i18n/index.js";

const KEY = "twofold.key";
const MOST_KEPT = 60;
const kept = new Map();

/** Error that the server answered with, or that kept it from answering. */
export class Refused extends Error {
  constructor(message, status = 0, place = null) {
    super(message);
    this.status = status;
    this.place = place;
  }
}

export const setKey = (key) => sessionStorage.setItem(KEY, key);

async function ask(path, body, signal) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...(body && { "Content-Type": "application/json" }), ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(t("error.unreachable"));
  }
  const content = await response.json().catch(() => null);
  if (response.ok && content !== null) return content;
  throw refusal(response, content?.error ?? content?.detail);
}

function refusal(response, error) {
  const message = typeof error === "string" ? error : error?.message;
  const wait = response.headers.get("Retry-After");
  if (response.status === 429) return new Refused(t("error.busy", { seconds: wait ?? "1" }), 429);
  return new Refused(message ?? t("error.status", { status: response.status }), response.status, error?.place);
}

/** Asks once: the same question again is answered from memory, so that a change of language asks nothing. */
export async function once(path, content, signal) {
  const body = content && JSON.stringify(content);
  const question = `${path} ${body ?? ""}`;
  const known = kept.get(question);
  if (known) return known;
  const answer = await ask(path, body, signal);
  kept.set(question, answer);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
  return answer;
}

/** Forgets what was answered, so that the next questions reach the server. */
export const forget = () => kept.clear();
