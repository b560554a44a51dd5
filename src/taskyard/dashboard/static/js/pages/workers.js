/** Who works on what: leases in flight, by holder or one by one. */
import { all } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { plain } from "../json.js";
import { html, useMemo, useState } from "../lib.js";
import { requery } from "../route.js";
import { Ago, Empty, JobLink, Meter, QueueLink, Section, Waiting } from "../ui/bits.js";
import { LongTable, ordered, Table, useSort } from "../ui/table.js";

const MOST = 5000; // leases that are fetched

/** One entry for each holder, as the server names it. */
function byHolder(leases) {
  const holders = new Map();
  for (const held of leases) {
    const name = held.lease.holder;
    const entry = holders.get(name) ?? { holder: name, leases: 0, queues: new Map(), oldest: 0, due: null };
    entry.leases += 1;
    entry.queues.set(held.queue, (entry.queues.get(held.queue) ?? 0) + 1);
    entry.oldest = Math.max(entry.oldest, held.lease.age);
    const deadline = held.lease.deadline;
    if (deadline && (entry.due === null || deadline < entry.due)) entry.due = deadline;
    holders.set(name, entry);
  }
  return [...holders.values()];
}

export function Workers({ query }) {
  const load = useLoad((signal) => all("leases", "leases", {}, MOST, signal), ["leases"], 2000);
  const only = query.get("holder");
  if (load.data === null) return html`<div class="page-head"><h1 tabindex="-1">Workers</h1></div><${Waiting} load=${load} what="leases" />`;
  const { items, more } = load.data;
  const holders = byHolder(items);
  return html`<div class="page-head">
      <h1 tabindex="-1">Workers</h1>
      <span class="faint tabular">${format.plural(holders.length, "worker")} with ${more ? "more than " : ""}${format.plural(items.length, "job")}</span>
    </div>
    ${items.length === 0
      ? html`<${Empty} title="No job is being worked on.">
          <p>A worker of any dialect shows here while it has a job. To run the tasks of a Python app:</p>
          <pre class="sample">taskyard work mail.tasks:app</pre>
        <//>`
      : html`<${Holders} holders=${holders} only=${only} /><${Leases} leases=${items} only=${only} />`}`;
}

function Holders({ holders, only }) {
  const [sort, onSort] = useSort("leases");
  const rows = ordered(holders, sort).slice(0, 200);
  const columns = [
    { key: "holder", label: "Worker", head: true, sort: true, cell: (row) => html`<button type="button" class="link-button cut" aria-pressed=${only === row.holder}
        onClick=${() => requery(only === row.holder ? {} : { holder: row.holder })}>${format.visible(row.holder || "(unnamed)")}</button>` },
    { key: "leases", label: "Jobs", number: true, sort: true, cell: (row) => format.count(row.leases) },
    { key: "queues", label: "Queues", cell: (row) => html`<${QueueNames} queues=${row.queues} />` },
    { key: "oldest", label: "Longest", number: true, sort: true, cell: (row) => format.duration(row.oldest) },
    { key: "due", label: "First lease ends", number: true, sort: true, wide: true, cell: (row) => (row.due ? html`<${Ago} time=${row.due} />` : html`<span class="faint">with its connection</span>`) },
  ];
  return html`<${Section} title="Workers with jobs">
    <${Table} label="Workers" columns=${columns} rows=${rows} rowKey=${(row) => row.holder} sort=${sort} onSort=${onSort} />
    ${holders.length > rows.length && html`<p class="faint">${format.count(holders.length - rows.length)} more are not shown.</p>`}
  <//>`;
}

function QueueNames({ queues }) {
  const names = [...queues].sort((a, b) => b[1] - a[1]);
  return html`${names.slice(0, 3).map(([name], at) => html`${at > 0 && ", "}<${QueueLink} key=${name} name=${name} />`)}${names.length > 3 && ` and ${names.length - 3} more`}`;
}

const FIELDS = { age: (row) => row.lease.age, holder: (row) => row.lease.holder, progress: (row) => plain(row.progress?.fraction ?? null) };

const COLUMNS = [
  { key: "id", label: "Job", head: true, sort: true, kind: "narrow", cell: (row) => html`<${JobLink} id=${row.id} />` },
  { key: "queue", label: "Queue", sort: true, cell: (row) => html`<${QueueLink} name=${row.queue} />` },
  { key: "name", label: "Name", sort: true, wide: true, cell: (row) => html`<span class="cut">${format.visible(row.name)}</span>` },
  { key: "holder", label: "Worker", sort: true, wide: true, cell: (row) => html`<span class="cut">${format.visible(row.lease.holder)}</span>` },
  { key: "attempts", label: "Attempt", number: true, sort: true, wide: true, kind: "narrow", cell: (row) => format.count(row.attempts) },
  { key: "progress", label: "Progress", sort: true, cell: (row) => html`<${Progress} progress=${row.progress} />` },
  { key: "age", label: "For", number: true, sort: true, kind: "narrow", cell: (row) => format.duration(row.lease.age) },
  { key: "deadline", label: "Lease ends", number: true, wide: true, cell: (row) => (row.lease.deadline ? html`<${Ago} time=${row.lease.deadline} />` : html`<span class="faint">with connection</span>`) },
];

function Progress({ progress }) {
  if (!progress) return html`<span class="faint">–</span>`;
  const share = plain(progress.fraction);
  const words = `${Math.round(share * 100)} %`;
  return html`<span class="progress-cell" title=${format.visible(progress.message || "")}><${Meter} part=${share} label=${words} /><span class="tabular">${words}</span></span>`;
}

function Leases({ leases, only }) {
  const [sort, onSort] = useSort("age");
  const [match, setMatch] = useState("");
  const rows = useMemo(() => {
    const text = match.trim().toLowerCase();
    const fit = leases.filter(
      (row) => (!only || row.lease.holder === only) && (!text || `${row.id} ${row.queue} ${row.name} ${row.lease.holder}`.toLowerCase().includes(text)),
    );
    return ordered(fit, sort, (row, key) => (FIELDS[key] ? FIELDS[key](row) : row[key]));
  }, [leases, only, sort, match]);
  const aside = html`<input type="search" class="filter" placeholder="Filter" aria-label="Filter leases" value=${match} onInput=${(event) => setMatch(event.target.value)} />`;
  const title = only ? `Jobs of ${format.visible(only)}` : "Jobs in flight";
  return html`<${Section} title=${title} aside=${aside}>
    ${rows.length
      ? html`<${LongTable} label="Jobs in flight" columns=${COLUMNS} total=${rows.length} rowAt=${(at) => rows[at]} rowKey=${(row) => String(row.id)} sort=${sort} onSort=${onSort} />`
      : html`<${Empty} title="No job in flight fits." />`}
  <//>`;
}
