/** The life of a job, one event after the other, with the time between them. */
import { bytes, duration, exactMoment, moment, plural, visible } from "../format.js";
import { html, useState } from "../lib.js";
import { to } from "../route.js";

const WORDS = {
  push: ["Pushed", "ready"],
  lease: ["Taken by a worker", "leased"],
  batch: ["Taken with a batch", "leased"],
  finish: ["Finished", "succeeded"],
  batch_done: ["Finished with its batch", "succeeded"],
  retry: ["Failed, to be tried again", "delayed"],
  release: ["Given back", "ready"],
  fail: ["Failed for good", "failed"],
  wake: ["Its time has come", "ready"],
  unblock: ["A blocker has ended", "blocked"],
  remove: ["Removed", "gone"],
  move: ["Moved", "ready"],
  rescore: ["Given another priority", "ready"],
  extend: ["Lease extended", "leased"],
  progress: ["Progress", "leased"],
  replay: ["Replayed from the dead letters", "ready"],
};

/** What is worth saying of an event beside its kind. */
function details(event) {
  const told = [];
  const add = (name, value) => value !== undefined && value !== null && value !== "" && told.push([name, value]);
  if (event.event === "push") {
    add("priority", event.priority || undefined);
    add("payload", event.payload_size !== undefined ? bytes(event.payload_size) : undefined);
    add("by", event.dialect);
  }
  add("attempt", event.attempt || undefined);
  if (event.event === "progress") add("done", fraction(event));
  add("reason", event.reason);
  add("until", event.deadline ? moment(event.deadline) : undefined);
  add("cause", event.cause);
  if (event.event === "retry") add("next try", event.run_at ? moment(event.run_at) : "at once");
  if (event.event === "move") add("to", event.to);
  add("dead queue", event.dead_queue);
  if (event.event === "rescore") add("priority", event.priority);
  add("result", event.result_size ? bytes(event.result_size) : undefined);
  add("holder", event.holder);
  add("user", event.user);
  return told;
}

function fraction(event) {
  const share = event.fraction ?? (event.permille !== undefined ? event.permille / 1000 : null);
  return share === null ? undefined : `${Math.round(share * 100)} %`;
}

const SIGNS_OF_LIFE = new Set(["progress", "extend"]);
const FEW = 3; // in a row that are all shown

/** Long rows of progress and extensions become one item with the last of them: [{event, before}]. */
function shortened(events) {
  const items = [];
  for (const event of events) {
    const last = items.at(-1);
    if (SIGNS_OF_LIFE.has(event.event) && last?.row) last.row.push(event);
    else items.push(SIGNS_OF_LIFE.has(event.event) ? { row: [event] } : { event });
  }
  return items.flatMap((item) => {
    if (!item.row) return [item];
    if (item.row.length <= FEW) return item.row.map((event) => ({ event }));
    return [{ event: item.row.at(-1), left: item.row.length - 1 }];
  });
}

export function Timeline({ events }) {
  const [all, setAll] = useState(false);
  const items = all ? events.map((event) => ({ event })) : shortened(events);
  return html`<ol class="timeline">
    ${items.map(({ event, left }, at) => {
      const [words, state] = WORDS[event.event] ?? [event.event, "gone"];
      const before = at > 0 ? (Date.parse(event.time) - Date.parse(items[at - 1].event.time)) / 1000 : null;
      return html`<li key=${event.seq ?? at} class="moment-${state}">
        <div class="moment-when">
          <time dateTime=${event.time} title=${event.time}>${exactMoment(event.time)}</time>
          <span class="faint">${before === null ? "" : `+${duration(before)}`}</span>
        </div>
        <div class="moment-what">
          <div class="moment-details">
            <strong>${words}</strong>
            ${details(event).map(([name, value]) => html`<span key=${name}><span class="faint">${name}</span> ${visible(String(value))}</span>`)}
            ${event.blocker && html`<span><span class="faint">blocker</span> <a href=${to("jobs", event.blocker)}>${String(event.blocker)}</a></span>`}
          </div>
          ${event.message && html`<p class="moment-text">${visible(event.message)}</p>`}
          ${event.error && html`<pre class="moment-text error-text" tabindex="0">${visible(errorText(event.error))}</pre>`}
          ${left && html`<button type="button" class="more" onClick=${() => setAll(true)}>${plural(left, "earlier sign")} of life</button>`}
        </div>
      </li>`;
    })}
  </ol>`;
}

/** Errors come as text, or as content with one of three forms. */
export function errorText(error) {
  if (typeof error === "string") return error;
  if (error.text !== undefined) return error.text;
  if (error.json !== undefined) {
    return typeof error.json === "string" ? error.json : JSON.stringify(error.json, null, 2);
  }
  return error.base64 !== undefined ? `(${bytes(error.size)} of binary)` : "(no longer on disk)";
}

/** The attempts that a list of events tells of. */
export function attemptsOf(events) {
  const attempts = [];
  for (const event of events) {
    if (event.event === "lease" || event.event === "batch") {
      attempts.push({ number: event.attempt ?? attempts.length + 1, holder: event.holder, from: event.time, to: null, end: null });
      continue;
    }
    const last = attempts.at(-1);
    if (last && last.to === null && ["finish", "batch_done", "retry", "fail", "release", "remove"].includes(event.event)) {
      last.to = event.time;
      last.end = event.event;
      last.error = event.error ?? null;
      last.errorLine = event.error_line ?? null;
      last.reason = event.event === "finish" ? null : (event.reason ?? null); // of a finish: its way
    }
  }
  return attempts;
}
