/** Addresses of the pages: everything is behind the #, so the server serves one page only. */
import { Store } from "./store.js";

/** {path: [parts], query: URLSearchParams, text} */
export const route = new Store(read());

function read() {
  const text = location.hash.replace(/^#/, "") || "/";
  const [path, query = ""] = split(text, "?");
  return {
    text,
    path: path.split("/").filter(Boolean).map(decode),
    query: new URLSearchParams(query),
  };
}

function split(text, sign) {
  const at = text.indexOf(sign);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function listen() {
  addEventListener("hashchange", () => route.set(read()));
}

/** An address: link("queues", name, {state: "ready"}). */
export function to(...parts) {
  const last = parts.at(-1);
  const query = typeof last === "object" && last !== null ? parts.pop() : null;
  const path = parts.map((part) => encodeURIComponent(String(part))).join("/");
  return `#/${path}${query ? asQuery(query) : ""}`;
}

/** "?a=1&b=2" of what has a value. */
export function asQuery(values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `?${text}` : "";
}

export function go(address) {
  location.hash = address.replace(/^#/, "");
}

/** Another query at the same page, without a new step in the browser's history. */
export function requery(values) {
  const path = route.value.path.map(encodeURIComponent).join("/");
  history.replaceState(null, "", `#/${path}${asQuery(values)}`);
  route.set(read());
}
