/** The server itself: journal, disk, listeners, and who reads and consumes. */
import { all, get, mayEverywhere, post } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { plain } from "../json.js";
import { html } from "../lib.js";
import { useLive } from "../live.js";
import { look, useStore } from "../store.js";
import { Ago, Do, Facts, Figure, Meter, Moment, Section, State, Waiting } from "../ui/bits.js";
import { confirm } from "../ui/dialog.js";
import { say } from "../ui/notice.js";
import { Table } from "../ui/table.js";

export function Server() {
  useLive({ limit: 1 });
  const load = useLoad((signal) => get("server", null, signal), ["server"], 2000);
  const seen = useStore(look);
  if (load.data === null) return html`<div class="page-head"><h1 tabindex="-1">Server</h1></div><${Waiting} load=${load} what="the server" />`;
  const server = load.data;
  return html`<div class="page-head">
      <h1 tabindex="-1">Server</h1>
      <${State} state=${server.accepting ? "succeeded" : "failed"} word=${server.accepting ? "Takes pushes" : "Refuses pushes"} />
      <div class="page-actions"><${Drain} server=${server} reload=${load.reload} /></div>
    </div>
    ${server.refusing && html`<p class="callout" role="alert"><strong>No pushes are taken:</strong> ${format.visible(server.refusing)}.
      ${server.unfinished !== null && html` ${format.plural(server.unfinished, "job has", "jobs have")} not ended.`}</p>`}
    <div class="figures" role="group" aria-label="The server now">
      <${Figure} label="Jobs" value=${format.count(server.jobs)} />
      <${Figure} label="Queues" value=${format.count(server.queues)} />
      <${Figure} label="Memory" value=${format.bytes(server.memory.resident)} />
      <${Figure} label="Up for" value=${format.duration(plain(server.uptime))} />
      <${Figure} label="Event loop, p99" value=${format.duration(seen?.loop_lag_p99)} hint="How late it comes to what is due" />
      <${Figure} label="Connections" value=${format.count(Object.values(server.connections).reduce((sum, one) => sum + one, 0))} />
    </div>
    <div class="columns">
      <${Journal} server=${server} seen=${seen} />
      <${Section} title="About"><${Facts} rows=${[
        ["Version", server.version],
        ["Form", server.form],
        ["Durability", server.durability],
        ["Started", html`<${Moment} time=${server.started_at} />`],
        ["Starts on this directory", format.count(server.epoch)],
        ["Users", server.users ? format.count(server.users) : "none: everybody may do everything"],
        ["Recently finished jobs kept", format.count(server.recently_finished)],
      ]} /><//>
    </div>
    <${Listeners} server=${server} />
    <div class="columns"><${Readers} /><${Consumers} /></div>
    <${Segments} />`;
}

function Drain({ server, reload }) {
  const drain = async () => {
    const yes = await confirm({
      title: "Drain the whole server?",
      text: "It refuses every push, in all dialects, and hands out what it has. Load balancers that ask /readyz send producers elsewhere. A restart ends it.",
      action: "Drain the server",
    });
    if (!yes) return;
    const told = await post("server/drain");
    say(`The server drains: ${format.plural(told.unfinished ?? 0, "job has", "jobs have")} not ended.`);
    await reload();
  };
  const undrain = async () => {
    await post("server/undrain");
    say("The server takes pushes again.");
    await reload();
  };
  return server.draining
    ? html`<${Do} kind="primary" run=${undrain} disabled=${!mayEverywhere("admin")}>Stop draining<//>`
    : html`<${Do} run=${drain} disabled=${!mayEverywhere("admin")}>Drain …<//>`;
}

function Journal({ server, seen }) {
  const journal = seen?.journal;
  const disk = seen?.disk;
  const used = disk ? 1 - disk.free / disk.total : 0;
  return html`<${Section} title="Journal and disk"><${Facts} rows=${[
    ["On disk", `${format.bytes(server.journal.bytes)} in ${format.plural(server.journal.segments, "segment")}`],
    ["Live", format.bytes(server.journal.live_bytes), "About what it would take written anew"],
    ["Records", format.count(server.journal.records)],
    ["Commits", html`${format.count(server.journal.commits)} <span class="faint">${format.rate(journal?.commits_rate)}/s</span>`],
    journal && ["Written", `${format.bytes(Math.round(journal.bytes_rate ?? 0))}/s`],
    journal && ["Flush", `p50 ${format.duration(journal.flush?.p50)}, p99 ${format.duration(journal.flush?.p99)}`],
    disk && ["Disk", html`${format.bytes(disk.free)} free of ${format.bytes(disk.total)}
      <${Meter} part=${used} kind=${used < 0.9 ? "" : "bad"} label=${`${Math.round(used * 100)} % used`} />`],
    ["Timeline", html`<span class="id">${server.journal.timeline}</span>`],
  ]} /><//>`;
}

function Listeners({ server }) {
  const rows = Object.entries(server.listeners).map(([dialect, one]) => ({ dialect, ...one, clients: server.connections[dialect] }));
  const columns = [
    { key: "dialect", label: "Dialect", head: true },
    { key: "address", label: "Address", cell: (row) => html`<code>${row.host.includes(":") ? `[${row.host}]` : row.host}:${row.port}</code>` },
    { key: "tls", label: "TLS", cell: (row) => (row.tls ? "yes" : "no") },
    { key: "clients", label: "Connections", number: true, cell: (row) => format.count(row.clients) },
  ];
  return html`<${Section} title="Listeners and connections"><${Table} label="Listeners" columns=${columns} rows=${rows} rowKey=${(row) => row.dialect} /><//>`;
}

function Readers() {
  const load = useLoad((signal) => all("readers", "readers", {}, 1000, signal), ["readers"], 5000);
  const columns = [
    { key: "name", label: "Reader", head: true, cell: (row) => format.visible(row.name) },
    { key: "behind", label: "Behind", number: true, cell: (row) => format.count(row.behind) },
    { key: "missed", label: "Missed", number: true, cell: (row) => format.count(row.missed) },
    { key: "lease_until", label: "Kept until", number: true, cell: (row) => html`<${Ago} time=${row.lease_until} />` },
  ];
  return html`<${Section} title="Readers of the journal"><${Rows} load=${load} columns=${columns} label="Readers" none="Nobody reads the journal." /><//>`;
}

function Consumers() {
  const load = useLoad((signal) => all("consumers", "consumers", {}, 1000, signal), ["consumers"], 5000);
  const columns = [
    { key: "name", label: "Consumer", head: true, cell: (row) => format.visible(row.name) },
    { key: "batch", label: "Batch", number: true, cell: (row) => format.count(row.batch) },
    { key: "jobs", label: "Jobs", number: true, cell: (row) => format.count(row.jobs) },
    { key: "open", label: "State", cell: (row) => (row.expired ? html`<span class="bad-text">expired</span>` : row.open ? "out" : "done") },
  ];
  return html`<${Section} title="Consumers of batches"><${Rows} load=${load} columns=${columns} label="Consumers" none="Nobody takes jobs in numbered batches." /><//>`;
}

function Rows({ load, columns, label, none }) {
  if (load.data === null) return html`<${Waiting} load=${load} what=${label} />`;
  if (!load.data.items.length) return html`<p class="faint">${none}</p>`;
  return html`<${Table} label=${label} columns=${columns} rows=${load.data.items} rowKey=${(row) => row.name} />`;
}

const SEGMENTS = 50;

function Segments() {
  const load = useLoad((signal) => get("journal", null, signal), ["journal"], 10_000);
  if (load.data === null) return load.error ? null : html`<${Waiting} load=${load} what="segments" />`;
  const rows = load.data.segments.slice(-SEGMENTS).reverse();
  const columns = [
    { key: "base", label: "Segment", head: true, cell: (row) => html`<code>${String(row.base)}</code>` },
    { key: "first_seq", label: "First record", number: true, cell: (row) => format.count(row.first_seq) },
    { key: "last_seq", label: "Last record", number: true, cell: (row) => format.count(row.last_seq) },
    { key: "bytes", label: "Size", number: true, cell: (row) => format.bytes(row.bytes) },
    { key: "created_at", label: "Begun", number: true, cell: (row) => html`<${Ago} time=${row.created_at} />` },
  ];
  return html`<${Section} title="Segments of the journal"><${Table} label="Segments" columns=${columns} rows=${rows} rowKey=${(row) => String(row.base)} /><//>`;
}
