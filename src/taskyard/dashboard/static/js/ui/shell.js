/** What is around every page: navigation, search, the state of the connection. */
import { askSession, remove } from "../api.js";
import { short } from "../format.js";
import { useNow } from "../hooks.js";
import { html, useEffect, useState } from "../lib.js";
import { retryNow } from "../live.js";
import { route } from "../route.js";
import { link, look, session, useStore } from "../store.js";
import { complain } from "./notice.js";
import { showShortcuts } from "./keys.js";
import { SearchBox } from "./searchbox.js";
import { ThemeSwitch } from "./theme.js";

const PLACES = [
  ["", "Overview"],
  ["queues", "Queues", (seen) => seen.totals?.queues],
  ["dead", "Dead letters", (seen) => seen.totals?.dead, "bad"],
  ["workers", "Workers", (seen) => seen.totals?.leased],
  ["schedules", "Schedules"],
  ["limits", "Limits", (seen) => seen.totals?.limited],
  ["lake", "Lake"],
  ["server", "Server"],
];
const WITHIN = { jobs: "queues", search: null };

export function Shell({ at, children }) {
  const [open, setOpen] = useState(false);
  useEffect(() => route.watch(() => setOpen(false)), []);
  const skip = (event) => {
    event.preventDefault();
    document.querySelector("main h1")?.focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <header class="top">
      <button type="button" class="plain icon menu" aria-label="Menu" aria-expanded=${open} aria-controls="places"
        onClick=${() => setOpen(!open)}><span aria-hidden="true">☰</span></button>
      <a class="brand" href="#/"><img src="assets/icon.svg" alt="" width="22" height="22" /> Taskyard</a>
      <${SearchBox} />
      <div class="top-end">
        <${LinkState} />
        <button type="button" class="plain icon only-wide" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)"
          onClick=${showShortcuts}><span aria-hidden="true">?</span></button>
        <${ThemeSwitch} />
        <${Who} />
      </div>
    </header>
    <${LinkBar} />
    <div class="frame">
      <nav id="places" class=${open ? "places open" : "places"} aria-label="Pages"><${Places} at=${at} /></nav>
      <main id="main">${children}</main>
    </div>`;
}

function Places({ at }) {
  const seen = useStore(look);
  const here = Object.hasOwn(WITHIN, at) ? WITHIN[at] : at;
  return html`<ul>
    ${PLACES.map(([path, name, figure, kind]) => {
      const value = seen && figure ? figure(seen) : null;
      return html`<li key=${path}>
        <a href=${`#/${path}`} aria-current=${here === path ? "page" : undefined}>
          <span>${name}</span>
          ${value > 0 && html`<span class="tally ${kind ?? ""}">${short(value)}</span>`}
        </a>
      </li>`;
    })}
  </ul>`;
}

const LINK_WORDS = { starting: "Connecting", open: "Live", lost: "Offline", asleep: "Paused" };

function LinkState() {
  const state = useStore(link, (value) => value.state);
  return html`<span class="link link-${state}" title="The stream of figures from the server">
    <span class="link-sign" aria-hidden="true"></span>${LINK_WORDS[state]}
  </span>`;
}

/** Says that the server is away, and when it is tried again. */
export function LinkBar() {
  const value = useStore(link);
  const seen = useStore(look, (now) => now?.server ?? null);
  return html`<div class="bars" role="status" aria-live="polite">
    ${value.state === "lost" && html`<${Lost} until=${value.retryAt} />`}
    ${value.state === "open" && seen?.refusing &&
    html`<p class="bar bar-warn"><strong>No pushes are taken</strong>: ${seen.refusing}. <a href="#/server">See the server</a></p>`}
  </div>`;
}

function Lost({ until }) {
  const now = useNow();
  const seconds = Math.max(0, Math.ceil((until - now) / 1000));
  return html`<p class="bar bar-bad">
    <strong>Connection lost.</strong>
    <span> What you see is as it was. Trying again<span aria-hidden="true">${seconds ? ` in ${seconds} s` : " now"}</span>. </span>
    <button type="button" class="small" onClick=${retryNow}>Try now</button>
  </p>`;
}

function Who() {
  const who = useStore(session);
  if (!who) return null;
  if (!who.user) return who.users && !who.may.admin ? html`<a class="button" href="#/login">Log in</a>` : null;
  const leave = async () => {
    try {
      await remove("session");
    } catch (error) {
      complain(error);
    }
    await askSession();
  };
  return html`<span class="who"><span class="only-wide faint">${who.user}</span>
    <button type="button" class="small" onClick=${leave}>Log out</button></span>`;
}
