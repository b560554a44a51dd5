/** Small pieces that every page uses. */
import * as format from "../format.js";
import { useNow } from "../hooks.js";
import { html, useState } from "../lib.js";
import { to } from "../route.js";
import { complain } from "./notice.js";

/** The words of the engine as people say them. */
export const STATES = {
  ready: "Ready",
  leased: "Running",
  delayed: "Delayed",
  blocked: "Blocked",
  limited: "Limited",
  succeeded: "Succeeded",
  failed: "Dead",
  dead: "Dead",
  gone: "Ended",
};

/** A state: a sign of its own shape beside the word, so that colour is not all there is. */
const SIGNS = {
  ready: "●",
  leased: "▶",
  delayed: "◔",
  blocked: "◆",
  limited: "▣",
  succeeded: "✓",
  failed: "✕",
  dead: "✕",
  gone: "■",
  paused: "❚❚",
  draining: "↧",
};

export function State({ state, word }) {
  return html`<span class="state state-${state}"
    ><span class="state-sign" aria-hidden="true">${SIGNS[state] ?? "●"}</span>${word ?? STATES[state] ?? state}</span
  >`;
}

export function Flags({ row }) {
  return html`${row.paused && html`<${State} state="paused" word="Paused" />`}
  ${row.draining && html`<${State} state="draining" word="Draining" />`}`;
}

/** A time: how long ago, with the exact one as a tooltip. */
export function Ago({ time }) {
  const now = useNow();
  if (!time) return html`<span class="faint">–</span>`;
  return html`<time dateTime=${time} title=${time}>${format.relative(time, now)}</time>`;
}

export function Moment({ time }) {
  if (!time) return html`<span class="faint">–</span>`;
  return html`<time dateTime=${time} title=${time}>${format.moment(time)}</time>`;
}

export function QueueLink({ name }) {
  return html`<a class="name" href=${to("queues", name)} title=${name}>${format.visible(name)}</a>`;
}

export function JobLink({ id }) {
  return html`<a class="id" href=${to("jobs", id)}>${String(id)}</a>`;
}

/** One figure with its name. */
export function Figure({ label, value, unit, hint, href, kind = "", detail }) {
  const body = html`<span class="figure-label">${label}</span>
    <span class="figure-value">${value}${unit && html`<span class="unit"> ${unit}</span>`}</span>
    ${detail !== undefined && html`<span class="figure-detail">${detail}</span>`}`;
  const classes = `figure ${kind}`;
  return href
    ? html`<a class=${classes} href=${href} title=${hint}>${body}</a>`
    : html`<div class=${classes} title=${hint}>${body}</div>`;
}

/** A button that is busy while what it does is under way; errors become notices. */
export function Do({ run, children, kind = "", disabled = false, label, title }) {
  const [busy, setBusy] = useState(false);
  // A button that is disabled loses the focus, so one that is busy only does nothing.
  const click = async () => {
    if (busy) return;
    setBusy(true);
    try {
      await run();
    } catch (error) {
      complain(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class=${kind} disabled=${disabled} aria-disabled=${busy} aria-busy=${busy}
    aria-label=${label} title=${title} onClick=${click}>${children}</button>`;
}

/** What is shown where nothing is. */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<div>${children}</div>`}</div>`;
}

/** Something is being loaded, or could not be. */
export function Waiting({ load, what = "this page" }) {
  if (load.error) return html`<${Failed} error=${load.error} retry=${load.reload} />`;
  return html`<div class="loading" role="status"><span class="hidden">Loading ${what}</span></div>`;
}

export function Failed({ error, retry }) {
  const denied = error.status === 403;
  return html`<div class="empty" role="alert">
    <p class="empty-title">${denied ? "Not for this user" : (error.title ?? "That did not work")}</p>
    <p>${error.message}</p>
    ${retry && !denied && html`<${Do} run=${retry}>Try again<//>`}
  </div>`;
}

/** A part of a page with a heading of its own. */
export function Section({ title, aside, children, kind = "" }) {
  return html`<section class="panel ${kind}" aria-label=${title}>
    <header class="panel-head"><h2>${title}</h2>${aside}</header>
    ${children}
  </section>`;
}

/** Names and values beside each other. */
export function Facts({ rows }) {
  return html`<dl class="facts">
    ${rows
      .filter((row) => row)
      .map(([name, value, hint]) => html`<div key=${name}><dt title=${hint}>${name}</dt><dd>${value ?? "–"}</dd></div>`)}
  </dl>`;
}

/** How much of a whole, with the words beside it. */
export function Meter({ part, label, kind = "" }) {
  const share = Math.max(0, Math.min(1, part || 0));
  return html`<span class="meter ${kind}" role="img" aria-label=${label}
    ><span class="meter-part" style=${{ width: `${(share * 100).toFixed(1)}%` }}></span
  ></span>`;
}
