/** All queues. The server sends only the rows that can be seen, in the order that was asked for. */
import { may } from "../api.js";
import * as format from "../format.js";
import { useSettled } from "../hooks.js";
import { html, useRef, useState } from "../lib.js";
import { useLive } from "../live.js";
import { requery } from "../route.js";
import { look, useStore } from "../store.js";
import { Empty, Flags, QueueLink } from "../ui/bits.js";
import { PushDialog } from "../ui/push.js";
import { LongTable } from "../ui/table.js";

const PORTION = 100; // rows asked for, in steps of half of it

const number = (key, label, more = {}) => ({ key, label, number: true, cell: (row) => format.count(row[key]), ...more });
const rate = (key, label, more = {}) => ({ key, label, number: true, sort: true, cell: (row) => format.rate(row[key]), ...more });
const COLUMNS = [
  { key: "name", label: "Queue", head: true, sort: true, kind: "col-name", cell: (row) => html`<${QueueLink} name=${row.name} /> <${Flags} row=${row} />` },
  number("ready", "Ready", { sort: true }),
  number("leased", "Running", { sort: true }),
  number("delayed", "Delayed", { wide: true }),
  number("blocked", "Blocked", { wide: true }),
  number("dead", "Dead", { sort: true, cell: (row) => (row.dead ? html`<span class="bad-text">${format.count(row.dead)}</span>` : "0") }),
  rate("pushed_rate", "In/s", { wide: true }),
  rate("done_rate", "Out/s"),
  rate("failed_rate", "Fails/s", { wide: true }),
  { key: "wait_p95", label: "Wait p95", number: true, wide: true, cell: (row) => format.brief(row.wait_p95), hint: "From ready to taken" },
  { key: "run_p95", label: "Run p95", number: true, wide: true, cell: (row) => format.brief(row.run_p95), hint: "From taken to finished" },
  { key: "oldest_age", label: "Oldest", number: true, wide: true, cell: (row) => format.brief(row.oldest_age), hint: "How long the next job has been ready" },
];

export function Queues({ query }) {
  const sort = query.get("sort") ?? "ready";
  const [match, setMatch] = useState(query.get("match") ?? "");
  const [offset, setOffset] = useState(0);
  const [pushing, setPushing] = useState(query.has("push"));
  const settled = useSettled(match.trim(), 250);
  const asked = { sort, limit: PORTION, match: settled, offset: offset || undefined };
  useLive(asked);
  const seen = useStore(look);
  // A look that another page has asked for has other rows, and perhaps another total.
  const queues = seen?.asked.limit === PORTION ? { ...seen.queues, offset: seen.asked.offset ?? 0 } : null;
  const order = (key) => {
    setOffset(0);
    requery({ sort: key, match });
  };
  const filter = (text) => {
    setMatch(text);
    setOffset(0);
  };
  return html`<div class="page-head">
      <h1 tabindex="-1">Queues</h1>
      <span class="faint tabular">${queues ? format.plural(queues.total, "queue") : ""}</span>
      <div class="page-actions">
        <input type="search" class="filter" placeholder="Filter by name" aria-label="Filter queues by name" value=${match}
          onInput=${(event) => filter(event.target.value)} />
        <button type="button" class="primary" disabled=${!may("push")} onClick=${() => setPushing(true)}>Push a job</button>
      </div>
    </div>
    ${queues === null
      ? html`<div class="loading" role="status"><span class="hidden">Loading the queues</span></div>`
      : queues.total === 0
        ? html`<${None} match=${settled} />`
        : html`<${Rows} queues=${queues} sort=${sort} onSort=${order} offset=${offset} setOffset=${setOffset} />`}
    ${pushing && html`<${PushDialog} onClose=${() => setPushing(false)} />`}`;
}

function None({ match }) {
  return match
    ? html`<${Empty} title=${`No queue has “${match}” in its name.`} />`
    : html`<${Empty} title="No queues yet.">
        <p>A queue begins with its first job, in whatever dialect it is pushed.</p>
        <pre class="sample">taskyard push mail '{"to": "ada@example.com"}'</pre>
      <//>`;
}

function Rows({ queues, sort, onSort, setOffset }) {
  const start = queues.offset ?? 0;
  const hovered = useRef(false);
  const held = useRef([]);
  const rows = held.current.length && hovered.current ? keepOrder(held.current, queues.shown) : queues.shown;
  held.current = rows.map((row) => row.name);
  const watch = (first, count) => {
    const half = PORTION / 2;
    const wanted = Math.max(0, Math.floor((first + count / 2) / half) * half - half / 2);
    if (first < start || first + count > start + PORTION) setOffset(wanted);
  };
  return html`<${LongTable} label="Queues" columns=${COLUMNS} total=${queues.total}
    rowAt=${(index) => rows[index - start]} rowKey=${(row) => row.name}
    sort=${{ key: sort, down: sort !== "name" }} onSort=${onSort} onWindow=${watch}
    onHover=${(over) => { hovered.current = over; }} />`;
}

/** Under the pointer, rows keep their places: nobody wants to click on what has just jumped there. */
function keepOrder(names, rows) {
  const place = new Map(names.map((name, at) => [name, at]));
  return [...rows].sort((one, other) => (place.get(one.name) ?? names.length) - (place.get(other.name) ?? names.length));
}
