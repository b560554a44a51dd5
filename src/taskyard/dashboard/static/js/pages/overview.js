/** The overview: is all well, how much comes and goes, and where does it pile up. */
import * as format from "../format.js";
import { html, useState } from "../lib.js";
import { useLive } from "../live.js";
import { to } from "../route.js";
import { look, useStore } from "../store.js";
import { Empty, Figure, Flags, Meter, QueueLink, Section } from "../ui/bits.js";
import { SpanSwitch, useColumns, useHistory } from "../ui/history.js";
import { Plot } from "../ui/plot.js";
import { Table } from "../ui/table.js";

export function Overview() {
  useLive({ sort: "ready", limit: 8 });
  const partly = useStore(look, (seen) => seen !== null && seen.totals === null);
  if (partly) {
    return html`<div class="page-head"><h1 tabindex="-1">Overview</h1></div>
      <p class="callout">The figures of the whole server are for users who may inspect all queues. You see those that you may inspect.</p>
      <${Busiest} />`;
  }
  return html`<div class="page-head"><h1 tabindex="-1">Overview</h1></div>
    <${Now} />
    <${Plots} />
    <div class="columns">
      <${Busiest} />
      <${Health} />
    </div>`;
}

/** The figures of this second. */
function Now() {
  const seen = useStore(look);
  const totals = seen?.totals ?? {};
  const rates = seen?.rates ?? {};
  return html`<div class="figures" role="group" aria-label="Now">
    <${Figure} label="Pushed" value=${format.rate(rates.pushed)} unit="/s" detail=${`${format.short(totals.pushed)} in all`} />
    <${Figure} label="Finished" value=${format.rate(rates.finished)} unit="/s" detail=${`${format.short(totals.finished)} in all`} />
    <${Figure} label="Failed" value=${format.rate(rates.failed)} unit="/s" detail=${`${format.short(totals.failed)} in all`}
      kind=${rates.failed > 0 ? "warn" : ""} />
    <${Figure} label="Ready" value=${format.count(totals.ready)} href="#/queues" detail=${`${format.count(totals.delayed)} delayed`} />
    <${Figure} label="Running" value=${format.count(totals.leased)} href="#/workers" detail=${`${format.count(totals.blocked)} blocked`} />
    <${Figure} label="Dead letters" value=${format.count(totals.dead)} href="#/dead" kind=${totals.dead > 0 ? "bad" : ""}
      detail=${totals.dead > 0 ? "See why" : "None"} />
    <${Figure} label="Wait, p95" value=${format.brief(seen?.wait?.p95)} detail=${`p50 ${format.brief(seen?.wait?.p50)}`}
      hint="From ready to taken, of jobs taken in the last second" />
    <${Figure} label="Run, p95" value=${format.brief(seen?.run?.p95)} detail=${`p50 ${format.brief(seen?.run?.p50)}`}
      hint="From taken to finished, of jobs finished in the last second" />
  </div>`;
}

const SHARES = [
  { label: "p50", colour: "plot-1" },
  { label: "p95", colour: "plot-2", dash: 1 },
  { label: "p99", colour: "plot-3", dash: 2 },
];
const COLOURS = ["plot-1", "plot-2", "plot-3", "plot-4", "plot-5", "plot-6", "plot-7", "plot-8"];

function Plots() {
  const [span, setSpan] = useState(300);
  const { past } = useHistory(span);
  const dialects = Object.keys(past.series)
    .filter((name) => name.startsWith("requests_"))
    .map((name) => name.slice("requests_".length))
    .sort();
  const flow = useColumns(past, ["pushed", "finished", "failed"]);
  const depth = useColumns(past, ["ready", "leased", "dead"]);
  const wait = useColumns(past, ["wait_p50", "wait_p95", "wait_p99"]);
  const run = useColumns(past, ["run_p50", "run_p95", "run_p99"]);
  const traffic = useColumns(past, dialects.map((name) => `requests_${name}`));
  return html`<${Section} title="Activity" aside=${html`<${SpanSwitch} span=${span} onChange=${setSpan} />`}>
    <div class="plots">
      <${Plot} title="Throughput" span=${span} unit="rate" data=${flow} note="No job was pushed or finished in this time."
        series=${[
          { label: "Pushed", colour: "plot-1" },
          { label: "Finished", colour: "plot-2" },
          { label: "Failed", colour: "plot-3", dash: 1 },
        ]} />
      <${Plot} title="Depth" span=${span} unit="count" data=${depth} note="No jobs in this time."
        series=${[
          { label: "Ready", colour: "plot-1", area: true },
          { label: "Running", colour: "plot-4" },
          { label: "Dead", colour: "plot-3", dash: 1 },
        ]} />
      <${Plot} title="Wait until taken" span=${span} unit="seconds" data=${wait} series=${SHARES} note="No job was taken in this time." />
      <${Plot} title="Run time" span=${span} unit="seconds" data=${run} series=${SHARES} note="No job was finished in this time." />
      ${dialects.length > 0 &&
      html`<${Plot} title="Requests by dialect" span=${span} unit="rate" data=${traffic}
        series=${dialects.map((name, at) => ({ label: name, colour: COLOURS[at % COLOURS.length], dash: at >= COLOURS.length ? 1 : 0 }))} />`}
      <${Traffic} />
    </div>
  <//>`;
}

/** Who speaks what. */
function Traffic() {
  const dialects = useStore(look, (seen) => seen?.dialects ?? null);
  if (!dialects) return null;
  const most = Math.max(1, ...dialects.map((one) => one.requests_rate ?? 0));
  return html`<div class="plot traffic">
    <p class="plot-title">Traffic by dialect</p>
    <table aria-label="Traffic by dialect">
      <thead><tr><th scope="col">Dialect</th><th scope="col" class="num">Clients</th><th scope="col" class="num">Requests/s</th><th scope="col"><span class="hidden">Share</span></th></tr></thead>
      <tbody>
        ${dialects.map(
          (one) => html`<tr key=${one.dialect}>
            <th scope="row">${one.dialect}</th>
            <td class="num">${format.count(one.clients)}</td>
            <td class="num">${format.rate(one.requests_rate)}</td>
            <td class="bar-cell"><${Meter} part=${(one.requests_rate ?? 0) / most} label=${`${format.rate(one.requests_rate)} requests a second`} /></td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

const COLUMNS = [
  { key: "name", label: "Queue", head: true, cell: (row) => html`<${QueueLink} name=${row.name} /> <${Flags} row=${row} />` },
  { key: "ready", label: "Ready", number: true, cell: (row) => format.count(row.ready) },
  { key: "leased", label: "Running", number: true, cell: (row) => format.count(row.leased) },
  { key: "pushed_rate", label: "In/s", number: true, wide: true, cell: (row) => format.rate(row.pushed_rate) },
  { key: "done_rate", label: "Out/s", number: true, cell: (row) => format.rate(row.done_rate) },
  { key: "dead", label: "Dead", number: true, wide: true, cell: (row) => format.count(row.dead) },
  { key: "oldest_age", label: "Oldest", number: true, wide: true, cell: (row) => format.brief(row.oldest_age), hint: "How long the next job has been ready" },
];

function Busiest() {
  const queues = useStore(look, (seen) => seen?.queues ?? null);
  const aside = queues && html`<a href="#/queues">All ${format.count(queues.total)}</a>`;
  return html`<${Section} title="Longest queues" aside=${aside}>
    ${queues === null
      ? html`<div class="loading" role="status"><span class="hidden">Loading</span></div>`
      : queues.shown.length
        ? html`<${Table} label="Longest queues" columns=${COLUMNS} rows=${queues.shown} rowKey=${(row) => row.name} />`
        : html`<${Empty} title="No queues yet.">
            <p>A queue begins with its first job. Push one here, or from a terminal:</p>
            <pre class="sample">taskyard push mail '{"to": "ada@example.com"}'</pre>
            <a class="button" href=${to("queues", { push: 1 })}>Push a job</a>
          <//>`}
  <//>`;
}

function Health() {
  const seen = useStore(look);
  if (!seen?.server) return html`<${Section} title="Health"><div class="loading"></div><//>`;
  const { server, journal, disk, lake } = seen;
  const used = disk ? 1 - disk.free / disk.total : 0;
  return html`<${Section} title="Health" aside=${html`<a href="#/server">Details</a>`}>
    <ul class="checks">
      <${Check} well=${server.accepting} name="Pushes" value=${server.accepting ? "are taken" : `refused: ${server.refusing}`} />
      <${Check} well=${!journal?.flush || journal.flush.p99 < 0.25} name="Journal"
        value=${`${format.bytes(journal?.used_bytes ?? journal?.bytes)} in ${format.plural(journal?.segments ?? 0, "segment")}; flush p99 ${format.duration(journal?.flush?.p99)}`} />
      <${Check} well=${used < 0.9} name="Disk" value=${disk ? `${format.bytes(disk.free)} free of ${format.bytes(disk.total)}` : "not known"}>
        ${disk && html`<${Meter} part=${used} kind=${used < 0.9 ? "" : "bad"} label=${`${Math.round(used * 100)} % used`} />`}
      <//>
      <${Check} well=${!(seen.loop_lag_p99 > 0.1)} name="Event loop" value=${`p99 ${format.duration(seen.loop_lag_p99)} late`} />
      <${Check} well=${true} name="Memory" value=${format.bytes(seen.memory)} />
      <${Check} well=${!lake || (lake.running && !lake.error)} name="Lake"
        value=${lake ? `${format.count(lake.lag_records)} records, ${format.duration(lake.lag_seconds)} behind` : "not set up"} />
      <${Check} well=${true} name="Server" value=${`${server.version}, ${server.form}, durability ${server.durability}, up ${format.duration(server.uptime)}`} />
    </ul>
  <//>`;
}

function Check({ well, name, value, children }) {
  return html`<li class=${well ? "check well" : "check ill"}>
    <span class="check-sign" aria-hidden="true">${well ? "✓" : "!"}</span>
    <span class="check-name">${name}<span class="hidden">${well ? ", well:" : ", needs attention:"}</span></span>
    <span class="check-value">${value}${children}</span>
  </li>`;
}
