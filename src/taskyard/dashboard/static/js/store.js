/** A value that components can watch: they are drawn again when what they look at has changed. */
import { useEffect, useState } from "./lib.js";

export class Store {
  constructor(value) {
    this.value = value;
    this.watchers = new Set();
  }

  set(value) {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const watcher of [...this.watchers]) watcher(value);
  }

  update(change) {
    this.set({ ...this.value, ...change });
  }

  watch(watcher) {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

const whole = (value) => value;

/** What `pick` takes of the store's value; `pick` must give the same thing for the same value. */
export function useStore(store, pick = whole) {
  const [picked, setPicked] = useState(() => pick(store.value));
  useEffect(() => {
    const look = (value) => {
      const now = pick(value);
      setPicked(() => now);
    };
    look(store.value);
    return store.watch(look);
  }, [store]);
  return picked;
}

/** Who is logged in and what they may do; null until the server has said. */
export const session = new Store(null);

/** The stream: `state` is "starting", "open", "lost" or "asleep"; `again` counts new beginnings. */
export const link = new Store({ state: "starting", retryAt: 0, again: 0, why: "" });

/** The last look at the server, as GET /api/v1/live sends it each second. */
export const look = new Store(null);

/** Messages to the person: {id, kind, text}. */
export const notices = new Store([]);
