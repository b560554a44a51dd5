/** The settings of a queue: what holds, where it comes from, and a form to change it. */
import { at, may, patch } from "../api.js";
import * as format from "../format.js";
import { html, useState } from "../lib.js";
import { Facts, Section } from "../ui/bits.js";
import { Dialog } from "../ui/dialog.js";
import { Choice, Field, fieldError, numberText, useForm } from "../ui/form.js";
import { say } from "../ui/notice.js";

const seconds = (value) => (value === null ? null : value === 0 ? "0 s" : format.span(value));
const perTime = (value) => (value === null || value.count === 0 ? null : `${format.count(value.count)} in ${format.span(value.per)}`);
const slots = (value) => (value === null || value === 0 ? null : format.count(value));
const jobs = (value) => (value === null || value === 0 ? null : format.count(value));

/** name, words, how it is shown, what holds if there is none, how it is edited */
const SETTINGS = [
  ["concurrency", "Running at once", slots, "any number", "whole"],
  ["rate", "Started", perTime, "any number", "rate"],
  ["key_concurrency", "Running at once, each limit key", slots, "any number", "whole"],
  ["key_rate", "Started, each limit key", perTime, "any number", "rate"],
  ["ttr", "Lease", seconds, "the server's default", "seconds"],
  ["retries", "Retries", format.count, "3, or as its protocol says", "whole"],
  ["backoff", "Wait between tries", (value) => value, "exponential, or as its protocol says", "backoff"],
  ["backoff_base", "First wait", seconds, "–", "seconds"],
  ["backoff_cap", "Longest wait", seconds, "–", "seconds"],
  ["result_retention", "Results kept", seconds, "0 s", "seconds"],
  ["dead_retention", "Dead letters kept", seconds, "the server's default", "seconds"],
  ["max_jobs", "Jobs at most", jobs, "the server's default", "whole"],
  ["max_bytes", "Bytes at most", (value) => (value ? format.bytes(value) : null), "the server's default", "whole"],
  ["overflow", "Beyond that", (value) => (value === "dead" ? "to the dead letters" : "refused"), "refused", "overflow"],
  ["idle_expiry", "Deleted when idle for", (value) => (value ? format.span(value) : null), "never", "seconds"],
];
const NEVER_NULL = new Set(["result_retention", "backoff_base", "backoff_cap", "overflow"]);

export function QueueSettings({ view, reload }) {
  const [open, setOpen] = useState(false);
  const { settings, effective } = view;
  const rows = SETTINGS.map(([key, words, show, none]) => {
    const own = settings[key] !== null && !(NEVER_NULL.has(key) && !settings[key]) && settings[key] !== "refuse";
    const value = effective[key] === null || effective[key] === undefined ? null : show(effective[key]);
    const from = own ? "own" : effective[key] !== settings[key] && value !== null ? "configuration" : null;
    return [
      words,
      html`${value ?? html`<span class="faint">${none}</span>`} ${from && html`<span class="tag">${from}</span>`}`,
      key,
    ];
  });
  const edit = html`<button type="button" class="small" disabled=${!may("admin")} onClick=${() => setOpen(true)}>Change settings</button>`;
  return html`<${Section} title="Settings and counters" aside=${edit}>
    <div class="columns">
      <${Facts} rows=${rows} />
      <${Facts} rows=${[
        ["Pushed", format.count(view.counters.pushed)],
        ["Taken", format.count(view.counters.leases)],
        ["Finished", format.count(view.counters.finished)],
        ["Failed", format.count(view.counters.failed)],
        ["Tried again", format.count(view.counters.retried)],
        ["Given back", format.count(view.counters.released)],
        ["Expired", format.count(view.counters.expired)],
        ["Removed", format.count(view.counters.removed)],
        ["Payloads that wait", format.bytes(view.waiting_bytes)],
        ["Dead letters", format.bytes(view.dead_bytes)],
        view.opens_at && ["Its rate lets the next go at", format.moment(view.opens_at)],
      ]} />
    </div>
    ${open && html`<${SettingsDialog} name=${view.name} settings=${settings} onClose=${() => setOpen(false)} onDone=${reload} />`}
  <//>`;
}

function initial(settings) {
  const values = {};
  for (const [key, , , , kind] of SETTINGS) {
    const value = settings[key];
    if (kind === "rate") {
      values[`${key}_count`] = value ? String(value.count) : "";
      values[`${key}_per`] = value ? String(value.per) : "";
    } else values[key] = value === null || value === undefined ? "" : String(value);
  }
  return values;
}

/** Only what has changed, as JSON text. */
function changes(values, before) {
  const parts = [];
  for (const [key, , , , kind] of SETTINGS) {
    const names = kind === "rate" ? [`${key}_count`, `${key}_per`] : [key];
    if (names.every((name) => values[name] === before[name])) continue;
    parts.push(`${JSON.stringify(key)}:${asJson(key, kind, values)}`);
  }
  return parts;
}

function asJson(key, kind, values) {
  if (kind === "rate") {
    const count = numberText(values, `${key}_count`, true);
    return count === null ? "null" : `{"count":${count},"per":${numberText(values, `${key}_per`) ?? "1"}}`;
  }
  if (kind === "backoff" || kind === "overflow") return values[key] ? JSON.stringify(values[key]) : "null";
  return numberText(values, key, kind === "whole") ?? (NEVER_NULL.has(key) ? "0" : "null");
}

/** Also used by the page about limits, which shows the first four. */
export function SettingsDialog({ name, settings, onClose, onDone, only = SETTINGS.length }) {
  const [before] = useState(() => initial(settings));
  const form = useForm(before);
  const send = form.submit(async (values) => {
    const parts = changes(values, before);
    if (!parts.length) throw fieldError("form", "Nothing has changed.");
    await patch(at`queues/${name}`, `{${parts.join(",")}}`);
    say(`Changed ${format.plural(parts.length, "setting")} of queue ${name}.`);
    onClose();
    onDone?.();
  });
  return html`<${Dialog} title=${`Settings of ${name}`} onClose=${onClose} wide>
    <form onSubmit=${send}>
      <p class="dialog-note">Empty: none of its own, so that the configuration or the server's default holds. 0 lifts a limit.</p>
      <div class="dialog-body fields">
        ${SETTINGS.slice(0, only).map(([key, words, , , kind]) => html`<${Setting} key=${key} name=${key} words=${words} kind=${kind} form=${form} />`)}
      </div>
      ${form.wrong.form && html`<p class="wrong" role="alert">${form.wrong.form}</p>`}
      <footer class="dialog-foot">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${form.busy}>Save</button>
      </footer>
    </form>
  <//>`;
}

function Setting({ name, words, kind, form }) {
  if (kind === "rate") {
    return html`<fieldset class="field pair">
      <legend>${words}</legend>
      <${Field} label="Jobs" name=${`${name}_count`} form=${form} inputmode="numeric" />
      <${Field} label="in seconds" name=${`${name}_per`} form=${form} inputmode="decimal" />
    </fieldset>`;
  }
  if (kind === "backoff") {
    return html`<${Choice} label=${words} name=${name} form=${form}
      options=${[["", "default"], ["none", "none"], ["quartic", "quartic"], ["exponential", "exponential"]]} />`;
  }
  if (kind === "overflow") {
    return html`<${Choice} label=${words} name=${name} form=${form} options=${[["refuse", "refuse"], ["dead", "to the dead letters"]]} />`;
  }
  return html`<${Field} label=${words} name=${name} form=${form} inputmode="decimal" hint=${kind === "seconds" ? "seconds" : undefined} />`;
}
