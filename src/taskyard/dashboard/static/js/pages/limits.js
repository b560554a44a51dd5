/** Queues with limits: how much of them is used, and who is held back. */
import { all, may } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { to } from "../route.js";
import { Ago, Empty, Meter, QueueLink, Section, Waiting } from "../ui/bits.js";
import { ordered, Table, useSort } from "../ui/table.js";
import { SettingsDialog } from "./queue_settings.js";

const MOST = 10_000; // queues that are looked through
const SHOWN = 500;

function isLimited({ effective }) {
  return Boolean(effective.concurrency || effective.rate?.count || effective.key_concurrency || effective.key_rate?.count);
}

const speed = (rate) => (rate?.count ? `${format.count(rate.count)} in ${format.span(rate.per)}` : "–");

/** Of the largest servers the whole list is some megabytes: it is read seldom. */
export function Limits() {
  const load = useLoad((signal) => all("queues", "queues", {}, MOST, signal), ["limits"], 10_000);
  const [sort, onSort] = useSort("name", false);
  const [open, setOpen] = useState(null);
  if (load.data === null) return html`<div class="page-head"><h1 tabindex="-1">Limits</h1></div><${Waiting} load=${load} what="limits" />`;
  const limited = load.data.items.filter(isLimited);
  const rows = ordered(limited, sort, valueOf).slice(0, SHOWN);
  return html`<div class="page-head">
      <h1 tabindex="-1">Limits</h1>
      <span class="faint tabular">${format.plural(limited.length, "queue")} of ${format.count(load.data.items.length)}${load.data.more ? "+" : ""} with limits</span>
    </div>
    ${limited.length === 0
      ? html`<${Empty} title="No queue has limits.">
          <p>A queue may say how many of its jobs run at once and how fast they start, in all or for each limit key.</p>
          <p>Set that on the page of a queue, with “Change settings”.</p>
        <//>`
      : html`<${Section} title="Queues with limits" kind="bare"><${Table} label="Limits" columns=${columns(setOpen)} rows=${rows} rowKey=${(row) => row.name} sort=${sort} onSort=${onSort} /><//>`}
    ${open && html`<${SettingsDialog} name=${open.name} settings=${open.settings} only=${4} onClose=${() => setOpen(null)} onDone=${load.reload} />`}`;
}

function valueOf(row, key) {
  if (key === "used") return row.effective.concurrency ? row.counts.leased / row.effective.concurrency : -1;
  return { name: row.name, leased: row.counts.leased, limited: row.counts.limited, ready: row.counts.ready }[key];
}

function columns(edit) {
  return [
    { key: "name", label: "Queue", head: true, sort: true, cell: (row) => html`<${QueueLink} name=${row.name} />` },
    { key: "used", label: "Running at once", sort: true, cell: (row) => html`<${Used} row=${row} />` },
    { key: "rate", label: "Started", number: true, cell: (row) => speed(row.effective.rate) },
    { key: "opens_at", label: "Next may go", number: true, wide: true, cell: (row) => (row.opens_at ? html`<${Ago} time=${row.opens_at} />` : "now") },
    { key: "key_concurrency", label: "Each key", number: true, cell: (row) => (row.effective.key_concurrency ? format.count(row.effective.key_concurrency) : "–"), hint: "Running at once, of each limit key" },
    { key: "key_rate", label: "Started, each key", number: true, wide: true, cell: (row) => speed(row.effective.key_rate) },
    { key: "ready", label: "Ready", number: true, sort: true, wide: true, cell: (row) => format.count(row.counts.ready) },
    { key: "limited", label: "Held back", number: true, sort: true, hint: "Ready, but the limit of their key holds them",
      cell: (row) => (row.counts.limited ? html`<a href=${to("queues", row.name, { state: "limited" })}>${format.count(row.counts.limited)}</a>` : "0") },
    { key: "edit", label: "Change", quiet: true, cell: (row) => html`<button type="button" class="small" disabled=${!may("admin")}
        aria-label=${`Change the limits of ${row.name}`} onClick=${() => edit(row)}>Change</button>` },
  ];
}

function Used({ row }) {
  const most = row.effective.concurrency;
  if (!most) return html`<span class="tabular">${format.count(row.counts.leased)} <span class="faint">of any number</span></span>`;
  const words = `${format.count(row.counts.leased)} of ${format.count(most)}`;
  return html`<span class="progress-cell"><${Meter} part=${row.counts.leased / most} label=${words} kind=${row.counts.leased >= most ? "warn" : ""} /><span class="tabular">${words}</span></span>`;
}
