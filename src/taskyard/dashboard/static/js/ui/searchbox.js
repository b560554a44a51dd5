/** The search box: results as one types, a page of them on Enter. */
import { get } from "../api.js";
import { visible } from "../format.js";
import { useSettled } from "../hooks.js";
import { html, useEffect, useState } from "../lib.js";
import { go, to } from "../route.js";
import { State } from "./bits.js";

const MOST = 6; // of each kind

/** The answer of the server as one list of {href, words, kind}. */
function listed(found) {
  const jobs = (found.jobs ?? []).map((job) => ({ kind: "Job", words: `${job.id} ${job.name}`, state: job.state, href: to("jobs", job.id) }));
  const queues = (found.queues ?? []).map((name) => ({ kind: "Queue", words: named(name), href: to("queues", named(name)) }));
  const names = (found.names ?? []).map((name) => ({ kind: "Name", words: named(name), href: to("search", { name: named(name) }) }));
  const schedules = (found.schedules ?? []).map((name) => ({ kind: "Schedule", words: named(name), href: to("schedules", { match: named(name) }) }));
  return [jobs, queues, names, schedules].flatMap((part) => part.slice(0, MOST));
}

function named(item) {
  return typeof item === "string" ? item : item.name;
}

function useFound(text) {
  const settled = useSettled(text.trim(), 150);
  const [found, setFound] = useState(null);
  useEffect(() => {
    if (!settled) {
      setFound(null);
      return undefined;
    }
    const own = new AbortController();
    get("search", { q: settled, limit: MOST }, own.signal)
      .then((answer) => setFound(listed(answer)))
      .catch(() => !own.signal.aborted && setFound([]));
    return () => own.abort();
  }, [settled]);
  return found;
}

export function SearchBox() {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const found = useFound(text);
  useEffect(() => setAt(-1), [found]);
  const shown = open && text.trim() !== "" && found !== null;

  const leave = () => {
    setOpen(false);
    setText("");
    document.activeElement?.blur();
  };
  const choose = (href) => {
    leave();
    go(href);
  };
  const press = (event) => {
    const size = found?.length ?? 0;
    if (event.key === "ArrowDown" && shown && size) setAt((at + 1) % size);
    else if (event.key === "ArrowUp" && shown && size) setAt((at + size - 1) % size);
    else if (event.key === "Escape") leave();
    else if (event.key === "Enter") {
      if (shown && at >= 0) choose(found[at].href);
      else if (text.trim()) choose(to("search", { q: text.trim() }));
    } else return;
    event.preventDefault();
  };
  return html`<search class="search" onFocusOut=${(event) => !event.currentTarget.contains(event.relatedTarget) && setOpen(false)}>
    <input id="search" type="search" role="combobox" placeholder="Search jobs, queues, names" aria-label="Search"
      aria-keyshortcuts="/" aria-expanded=${shown} aria-controls="found" aria-autocomplete="list" autocomplete="off" spellcheck=${false}
      aria-activedescendant=${shown && at >= 0 ? `found-${at}` : undefined}
      value=${text} onInput=${(event) => { setText(event.target.value); setOpen(true); }}
      onFocus=${() => setOpen(true)} onKeyDown=${press} />
    <kbd class="search-key" aria-hidden="true">/</kbd>
    <ul id="found" class="found" role="listbox" aria-label="Found" hidden=${!shown}>
      ${shown && found.map(
        (item, index) => html`<li key=${item.href + item.kind} id=${`found-${index}`} role="option" aria-selected=${index === at}
          onMouseDown=${(event) => { event.preventDefault(); choose(item.href); }}>
          <span class="found-kind">${item.kind}</span><span class="found-words">${visible(item.words)}</span>
          ${item.state && html`<${State} state=${item.state} />`}
        </li>`,
      )}
      ${shown && !found.length && html`<li class="faint" role="option" aria-selected="false" aria-disabled="true">Nothing found. Enter looks further.</li>`}
    </ul>
  </search>`;
}
