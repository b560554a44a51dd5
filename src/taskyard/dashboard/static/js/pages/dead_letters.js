/** The single letters of one group, page by page. */
import { at, get } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { Ago, JobLink, Waiting } from "../ui/bits.js";
import { Table } from "../ui/table.js";
import { errorText } from "../ui/timeline.js";

const PAGE = 50;

/** A page that is as full as can be: the server may give short ones while more follows. */
async function filled(queue, reason, cursor, signal) {
  const jobs = [];
  let next = cursor;
  do {
    const page = await get(at`queues/${queue}/dead/jobs`, { reason: reason || undefined, limit: PAGE, cursor: next }, signal);
    jobs.push(...page.jobs.filter((job) => (job.reason ?? "") === reason));
    next = page.next;
  } while (next !== null && jobs.length < PAGE);
  return { jobs, next };
}

export function Letters({ queue, reason, chosen }) {
  const [cursors, setCursors] = useState([null]);
  const cursor = cursors.at(-1);
  const load = useLoad((signal) => filled(queue, reason, cursor, signal), [queue, reason, cursor], 5000);
  const page = load.data;
  if (page === null) return html`<${Waiting} load=${load} what="dead letters" />`;
  const turn = (job, on) => {
    const letters = new Map(chosen.letters);
    if (on) letters.set(String(job.id), { id: job.id, queue, reason });
    else letters.delete(String(job.id));
    chosen.setLetters(letters);
  };
  const columns = [
    { key: "pick", label: "Select", quiet: true, kind: "pick", cell: (job) => html`<input type="checkbox" aria-label=${`Select job ${job.id}`}
        checked=${chosen.letters.has(String(job.id))} onChange=${(event) => turn(job, event.target.checked)} />` },
    { key: "id", label: "Job", head: true, cell: (job) => html`<${JobLink} id=${job.id} />` },
    { key: "name", label: "Name", cell: (job) => html`<span class="cut">${format.visible(job.name)}</span>` },
    { key: "attempts", label: "Attempts", number: true, wide: true, cell: (job) => format.count(job.attempts) },
    { key: "finished_at", label: "Died", number: true, wide: true, cell: (job) => html`<${Ago} time=${job.finished_at} />` },
    { key: "error", label: "Error", kind: "grow", cell: (job) => html`<span class="cut">${job.error ? format.glance(job.error_line ?? errorText(job.error)) : "–"}</span>` },
  ];
  return html`<div class="inner">
    <${Table} label=${`Letters of ${queue}`} columns=${columns} rows=${page.jobs} rowKey=${(job) => String(job.id)} />
    ${(cursors.length > 1 || page.next !== null) &&
    html`<div class="pager">
      <button type="button" class="small" disabled=${cursors.length === 1} onClick=${() => setCursors(cursors.slice(0, -1))}>Previous</button>
      <span class="faint tabular">Page ${cursors.length}</span>
      <button type="button" class="small" disabled=${page.next === null} onClick=${() => setCursors([...cursors, page.next])}>Next</button>
    </div>`}
  </div>`;
}
