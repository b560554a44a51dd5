/** Hooks that many pages use: loading, polling, the clock. */
import { useCallback, useEffect, useRef, useState } from "./lib.js";
import { link, Store, useStore } from "./store.js";

/**
 * Load something, and again each `every` milliseconds while the page is seen, when `keys` change,
 * and when the server is back after it was away. What was there stays until the new is there.
 *
 * @returns {{data: any, error: Error|null, loading: boolean, reload: () => Promise<void>}}
 */
export function useLoad(load, keys, every = 0) {
  const [state, setState] = useState({ data: null, error: null, loading: true, key: null });
  const again = useStore(link, pickAgain);
  const current = useRef(null);
  const key = JSON.stringify(keys);

  const run = useCallback(async () => {
    current.current?.abort();
    const own = new AbortController();
    current.current = own;
    try {
      const data = await load(own.signal);
      if (!own.signal.aborted) setState({ data, error: null, loading: false, key });
    } catch (error) {
      if (own.signal.aborted || error.name === "AbortError") return;
      // A server that is away for a moment does not blank the page: the bar above tells of it.
      const away = error.status === 0;
      setState((was) => ({
        data: was.key === key ? was.data : null,
        error: away && was.key === key && was.data !== null ? null : error,
        loading: false,
        key,
      }));
    } finally {
      if (current.current === own) current.current = null;
    }
  }, [key]);

  useEffect(() => {
    setState((was) => (was.key === key ? was : { data: null, error: null, loading: true, key: null }));
    run();
    return () => current.current?.abort();
  }, [key, again]);

  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden && current.current === null && link.value.state !== "lost") run();
    }, every);
    return () => clearInterval(timer);
  }, [key, every]);

  return { data: state.data, error: state.error, loading: state.loading, reload: run };
}

function pickAgain(value) {
  return value.again;
}

const second = new Store(Date.now());
let ticking = 0;

/** The time, new each second; one timer for all who look. */
export function useNow() {
  useEffect(() => {
    if (ticking === 0) {
      second.set(Date.now()); // it has stood still while nobody looked
      second.timer = setInterval(() => second.set(Date.now()), 1000);
    }
    ticking += 1;
    return () => {
      ticking -= 1;
      if (ticking === 0) clearInterval(second.timer);
    };
  }, []);
  const told = useStore(second);
  return ticking === 0 ? Date.now() : told;
}

/** The value, once it has not changed for so long. */
export function useSettled(value, pause = 200) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), pause);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** Is a media query true? */
export function useMedia(query) {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const change = () => setMatches(list.matches);
    list.addEventListener("change", change);
    return () => list.removeEventListener("change", change);
  }, [query]);
  return matches;
}
