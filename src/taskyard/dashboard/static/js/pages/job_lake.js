/** A job that the server no longer knows, as the lake remembers it. */
import { at, get } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { html } from "../lib.js";
import { Empty, Facts, Section } from "../ui/bits.js";
import { Content } from "../ui/content.js";
import { attemptsOf, Timeline } from "../ui/timeline.js";
import { Attempts } from "./job_life.js";

export function LakeJob({ id }) {
  const load = useLoad((signal) => get(at`lake/jobs/${id}`, null, signal), [id]);
  if (load.data) return html`<${Found} id=${id} told=${load.data} />`;
  if (load.error === null) {
    return html`<div class="loading" role="status">The server does not have it any more. Looking in the lake …</div>`;
  }
  const noLake = load.error.is?.("no-lake");
  return html`<${Empty} title="This job is not known.">
    <p>It never was, or it ended so long ago that the ring of recently finished jobs has dropped it.</p>
    ${noLake
      ? html`<p>Jobs that ended are kept for good by a lake: start the server with <code>--lake DIRECTORY</code>.</p>`
      : html`<p>${load.error.status === 404 ? "The lake does not have it either. What has happened lately comes there with some delay." : load.error.message}</p>`}
  <//>`;
}

const CONTENTS = ["payload", "result", "error"]; // where the lake keeps them

function Found({ id, told }) {
  const events = (told.events ?? []).map(asEvent);
  const rows = [...(told.runs ?? []), ...(told.open ? [told.open] : [])];
  const attempts = attemptsOf(events);
  return html`<p class="callout">This job has ended and the server has dropped it. What follows is from the lake.</p>
    <div class="columns job-columns">
      <div>
        ${rows.length > 0 && CONTENTS.filter((name) => rows.at(-1)[name]?.size !== undefined).map(
          (name) => html`<${Section} key=${name} title=${words(name)}><${Content} content=${rows.at(-1)[name]} file=${`job-${id}-${name}`} /><//>`,
        )}
        ${told.cut && html`<p class="faint">Only the last of its events are shown.</p>`}
        ${events.length > 0 && html`<${Section} title="Timeline"><${Timeline} events=${events} /><//>`}
        ${attempts.length > 0
          ? html`<${Section} title="Attempts"><${Attempts} attempts=${attempts} /><//>`
          : null}
      </div>
      <div>
        ${rows.map((row, index) => html`<${Section} key=${index} title=${rows.length > 1 ? `Life ${index + 1}` : "Facts"}><${Facts} rows=${facts(row)} /><//>`)}
      </div>
    </div>`;
}

/** Rows of the lake name things as the events of the journal do; times may be text. */
function asEvent(row) {
  return { ...row, event: row.event ?? row.kind, time: row.time ?? row.at };
}

function facts(row) {
  return Object.entries(row)
    .filter(([, value]) => value?.size === undefined && value !== null && value !== "" && !(Array.isArray(value) && !value.length))
    .map(([name, value]) => [words(name), shown(name, value)]);
}

function words(name) {
  const text = name.replace(/_seconds$/, " time").replaceAll("_", " ");
  return text[0].toUpperCase() + text.slice(1);
}

function shown(name, value) {
  if (typeof value === "string" && /(_at|time|_until)$/.test(name)) return format.moment(value);
  if (typeof value === "number" && name.endsWith("_seconds")) return format.duration(value);
  if (typeof value === "object") return format.visible(JSON.stringify(value));
  return typeof value === "number" ? format.count(value) : format.visible(String(value));
}
