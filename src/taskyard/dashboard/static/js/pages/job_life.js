/** What happened to a job, and which jobs it waits for. */
import { at, get } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useEffect, useState } from "../lib.js";
import { Do, JobLink, Section, State, Waiting } from "../ui/bits.js";
import { Graph } from "../ui/graph.js";
import { Table } from "../ui/table.js";
import { attemptsOf, errorText, Timeline } from "../ui/timeline.js";

const CALLS = 20; // of a search that goes on by itself

/** All events, following the cursor as long as the server says that there may be more. */
async function allEvents(id, signal) {
  const events = [];
  let cursor = null;
  let page = null;
  for (let call = 0; call < CALLS; call += 1) {
    page = await get(at`jobs/${id}/events`, { cursor }, signal);
    events.push(...page.events);
    cursor = page.next;
    if (cursor === null) break;
  }
  return { ...page, events };
}

/** `onEnd` is told the last event of a job that has ended. */
export function Life({ job, onEnd }) {
  // What changes when something happens to the job: then its events are read anew.
  const stamp = [job.state, job.attempts, job.fails, job.losses, String(job.priority), job.queue, job.progress?.at, job.lease?.deadline].join();
  const load = useLoad((signal) => allEvents(job.id, signal), [String(job.id), stamp]);
  const [kept, setKept] = useState(null);
  useEffect(() => {
    if (!load.data) return;
    setKept(load.data);
    onEnd?.(load.data.next === null ? (load.data.events.at(-1)?.event ?? null) : null);
  }, [load.data]);
  const shown = load.data ?? kept;
  if (shown === null) return html`<${Section} title="Timeline"><${Waiting} load=${load} what="events" /><//>`;
  const attempts = attemptsOf(shown.events);
  return html`<${Section} title="Timeline">
      ${!shown.complete &&
      html`<p class="faint">${shown.next ? "There may be more: the journal was not read to its end." : "Earlier events are no longer in the journal."}</p>`}
      ${shown.events.length ? html`<${Timeline} events=${shown.events} />` : html`<p class="faint">The journal has nothing more about it.</p>`}
      ${shown.next && html`<${Do} run=${load.reload}>Look again<//>`}
    <//>
    ${attempts.length > 0 && html`<${Section} title="Attempts"><${Attempts} attempts=${attempts} /><//>`}`;
}

const ENDS = {
  finish: ["succeeded", "Finished"],
  batch_done: ["succeeded", "Finished"],
  retry: ["delayed", "Failed"],
  fail: ["failed", "Failed for good"],
  release: ["ready", "Given back"],
  remove: ["gone", "Removed"],
};

const COLUMNS = [
  { key: "number", label: "Attempt", head: true, number: true, cell: (row) => format.count(row.number) },
  { key: "end", label: "End", cell: (row) => (row.end ? html`<${State} state=${ENDS[row.end][0]} word=${ENDS[row.end][1]} />` : html`<${State} state="leased" />`) },
  { key: "from", label: "Began", cell: (row) => format.exactMoment(row.from) },
  { key: "took", label: "Took", number: true, cell: (row) => (row.to ? format.duration((Date.parse(row.to) - Date.parse(row.from)) / 1000) : "–") },
  { key: "holder", label: "Worker", cell: (row) => html`<span class="cut">${format.visible(row.holder ?? "–")}</span>` },
  { key: "error", label: "Error", cell: (row) => html`<span class="cut">${row.error ? format.glance(row.errorLine ?? errorText(row.error)) : row.reason ? format.visible(row.reason) : "–"}</span>` },
];

export function Attempts({ attempts }) {
  return html`<${Table} label="Attempts" columns=${COLUMNS} rows=${attempts} rowKey=${(row) => row.from + row.number} />`;
}

export function Dependencies({ job }) {
  const related = job.blocked_by.length > 0 || job.dependents > 0;
  const load = useLoad((signal) => get(at`jobs/${job.id}/graph`, null, signal), [String(job.id), job.state, job.dependents], related ? 5000 : 0);
  const graph = load.data;
  if (!related && (graph === null || graph.nodes.length < 2)) return null;
  return html`<${Section} title="Blockers and dependents">
    ${job.blocked_by.length > 0 &&
    html`<p>Waits for ${job.blocked_by.slice(0, 10).map((id, index) => html`${index > 0 && ", "}<${JobLink} key=${String(id)} id=${id} />`)}${job.blocked_by.length > 10 && ` and ${job.blocked_by.length - 10} more`}.</p>`}
    ${job.dependents > 0 && html`<p>${format.plural(job.dependents, "job waits", "jobs wait")} for it.</p>`}
    ${graph && graph.nodes.length > 1 ? html`<${Graph} graph=${graph} here=${job.id} />` : load.error && html`<p class="faint">${load.error.message}</p>`}
  <//>`;
}
