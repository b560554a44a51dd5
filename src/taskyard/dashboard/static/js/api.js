/** Calls of the JSON API. Errors are `Problem`s with words that can be shown. */
import { parseExact } from "./json.js";
import { asQuery } from "./route.js";
import { session } from "./store.js";

const BASE = "api/v1/";

export class Problem extends Error {
  constructor(status, type, title, detail, more = {}) {
    super(detail || title);
    this.status = status;
    this.type = type;
    this.title = title;
    this.field = more.field ?? null;
    this.done = more.done ?? null;
  }

  is(name) {
    return this.type === `urn:taskyard:problem:${name}`;
  }
}

/** A path of encoded parts: at`queues/${name}/jobs`. */
export function at(strings, ...values) {
  return strings.reduce((text, piece, index) => {
    const value = index < values.length ? encodeURIComponent(String(values[index])) : "";
    return text + piece + value;
  }, "");
}

async function call(method, path, { body, query, signal } = {}) {
  const request = { method, signal, headers: { Accept: "application/json" }, cache: "no-store" };
  if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    request.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(`${BASE}${path}${query ? asQuery(query) : ""}`, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "", "No answer", "The server does not answer. Is it running?");
  }
  const text = await answer.text();
  if (answer.ok) return text ? parseExact(text) : null;
  throw refused(answer.status, text);
}

function refused(status, text) {
  let told = {};
  try {
    told = JSON.parse(text);
  } catch {
    told = { detail: text.slice(0, 300) };
  }
  if (status === 401) askSession();
  return new Problem(status, told.type ?? "", told.title ?? `Error ${status}`, told.detail, told);
}

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, body) => call("POST", path, { body });
export const put = (path, body) => call("PUT", path, { body });
export const patch = (path, body) => call("PATCH", path, { body });
export const remove = (path, query) => call("DELETE", path, { query });

let asking = null;

/** Who we are, for the server. Many may ask at once; one call is made. */
export function askSession() {
  asking ??= get("session")
    .then((told) => session.set(told))
    .catch(() => {}) // the bar about the connection says what is wrong
    .finally(() => {
      asking = null;
    });
  return asking;
}

/** All pages of a list, up to `most` items: {items, more}. */
export async function all(path, field, query = {}, most = 2000, signal = undefined) {
  const items = [];
  let cursor = null;
  do {
    const page = await get(path, { limit: 1000, ...query, cursor }, signal);
    items.push(...page[field]);
    cursor = page.next;
  } while (cursor !== null && items.length < most);
  return { items, more: cursor !== null };
}

/** May this user do that to some queue at least? Of a certain one the server has the last word. */
export function may(what) {
  return session.value?.may_somewhere?.[what] ?? true;
}

/** May this user do that to the server, and to all queues? */
export function mayEverywhere(what) {
  return session.value?.may?.[what] ?? true;
}
