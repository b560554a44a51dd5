/** The jobs of a queue in one state, page by page. */
import { at, get } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useEffect, useState } from "../lib.js";
import { to } from "../route.js";
import { Empty, Section, STATES, Waiting } from "../ui/bits.js";
import { JobTable } from "../ui/jobs.js";

const TABS = ["ready", "leased", "delayed", "blocked", "limited", "succeeded", "failed"];
const PAGE = 25;
const NOTHING = {
  ready: "Nothing waits to be taken.",
  leased: "No worker has a job of this queue.",
  delayed: "No job waits for its time.",
  blocked: "No job waits for another.",
  limited: "No job is held back by the limit of its key.",
  succeeded: "No results are kept. A job keeps its result if it has a ttl, or the queue a result_retention.",
  failed: "No dead letters.",
};

export function QueueJobs({ name, counts, state }) {
  const shown = TABS.includes(state) ? state : "ready";
  return html`<${Section} title="Jobs">
    <nav class="tabs" aria-label="Jobs by state">
      ${TABS.map(
        (tab) => html`<a key=${tab} href=${to("queues", name, { state: tab })} aria-current=${tab === shown ? "true" : undefined}>
          ${tab === "failed" ? "Dead" : STATES[tab]} <span class="tally">${format.short(counts[tab])}</span>
        </a>`,
      )}
    </nav>
    <${Page} key=${shown} name=${name} state=${shown} />
  <//>`;
}

function Page({ name, state }) {
  const [cursors, setCursors] = useState([null]); // of the pages up to this one
  const cursor = cursors.at(-1);
  const load = useLoad(
    (signal) => get(at`queues/${name}/jobs`, { state, limit: PAGE, cursor }, signal),
    [name, state, cursor],
    3000,
  );
  useEffect(() => setCursors([null]), [name, state]);
  const page = load.data;
  if (page === null) return html`<${Waiting} load=${load} what="jobs" />`;
  const first = cursors.length === 1;
  return html`${page.jobs.length
      ? html`<${JobTable} label=${`Jobs: ${STATES[state]}`} jobs=${page.jobs} state=${state} />`
      : html`<${Empty} title=${first ? NOTHING[state] : "No more of them."} />`}
    ${(!first || page.next !== null) &&
    html`<div class="pager">
      <button type="button" disabled=${first} onClick=${() => setCursors(cursors.slice(0, -1))}>Previous</button>
      <span class="faint tabular">Page ${format.count(cursors.length)}</span>
      <button type="button" disabled=${page.next === null} onClick=${() => setCursors([...cursors, page.next])}>Next</button>
    </div>`}`;
}
