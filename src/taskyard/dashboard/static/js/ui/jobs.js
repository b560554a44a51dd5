/** A table of jobs, with the columns that their state makes interesting. */
import * as format from "../format.js";
import { plain } from "../json.js";
import { html } from "../lib.js";
import { Ago, JobLink, QueueLink, State } from "./bits.js";
import { Table } from "./table.js";

const id = { key: "id", label: "Job", head: true, cell: (job) => html`<${JobLink} id=${job.id} />` };
const name = { key: "name", label: "Name", cell: (job) => html`<span class="cut">${format.visible(job.name)}</span>` };
const queue = { key: "queue", label: "Queue", cell: (job) => html`<${QueueLink} name=${job.queue} />` };
const state = { key: "state", label: "State", cell: (job) => html`<${State} state=${job.state} />` };
const priority = { key: "priority", label: "Priority", number: true, wide: true, cell: (job) => format.count(job.priority) };
const size = { key: "payload_size", label: "Payload", number: true, wide: true, cell: (job) => format.bytes(job.payload_size) };
const pushed = { key: "pushed_at", label: "Pushed", number: true, cell: (job) => html`<${Ago} time=${job.pushed_at} />` };
const due = { key: "due_at", label: "Due", number: true, cell: (job) => html`<${Ago} time=${job.due_at} />` };
const ended = { key: "finished_at", label: "Ended", number: true, cell: (job) => html`<${Ago} time=${job.finished_at} />` };
const tries = { key: "attempts", label: "Attempts", number: true, wide: true, cell: (job) => format.count(job.attempts) };
const fails = { key: "fails", label: "Failures", number: true, wide: true, cell: (job) => (job.fails ? html`<span class="warn-text">${format.count(job.fails)}</span>` : "0") };
const by = { key: "dialect", label: "By", wide: true };
const holder = { key: "holder", label: "Worker", cell: (job) => html`<span class="cut">${format.visible(job.lease?.holder ?? "–")}</span>` };
const age = { key: "age", label: "For", number: true, cell: (job) => format.duration(job.lease?.age) };
const reason = { key: "reason", label: "Reason", cell: (job) => format.visible(job.reason ?? "–") };
const blockers = { key: "blocked_by", label: "Waits for", cell: (job) => html`<${Blockers} ids=${job.blocked_by} />` };
const key = { key: "limit_key", label: "Limit key", cell: (job) => format.visible(job.limit_key ?? "–") };
const progress = { key: "progress", label: "Done", number: true, wide: true, cell: (job) => (job.progress ? `${Math.round(plain(job.progress.fraction) * 100)} %` : "–") };

const BY_STATE = {
  ready: [id, name, priority, size, fails, by, pushed],
  leased: [id, name, holder, progress, tries, size, age],
  delayed: [id, name, fails, size, by, pushed, due],
  blocked: [id, name, blockers, size, by, pushed],
  limited: [id, name, key, priority, size, pushed],
  succeeded: [id, name, tries, size, by, ended],
  failed: [id, name, reason, tries, fails, ended],
};
const MIXED = [id, queue, name, state, priority, tries, size, pushed];

function Blockers({ ids }) {
  const shown = ids.slice(0, 3);
  return html`${shown.map((one, at) => html`${at > 0 && ", "}<${JobLink} key=${String(one)} id=${one} />`)}${ids.length > 3 && ` and ${ids.length - 3} more`}`;
}

export function JobTable({ label, jobs, state: only }) {
  return html`<${Table} label=${label} columns=${BY_STATE[only] ?? MIXED} rows=${jobs} rowKey=${(job) => String(job.id)} />`;
}
