/** Schedules: when each comes next, and what can be done with it. */
import { all, at, get, may, post, remove } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { Ago, Do, Empty, Facts, JobLink, Moment, QueueLink, Section, State, Waiting } from "../ui/bits.js";
import { Content } from "../ui/content.js";
import { confirm, Dialog } from "../ui/dialog.js";
import { say } from "../ui/notice.js";
import { ordered, Table, useSort } from "../ui/table.js";
import { ScheduleDialog } from "../ui/schedule_form.js";

export function Schedules({ query }) {
  const load = useLoad((signal) => all("schedules", "schedules", {}, 5000, signal), ["schedules"], 3000);
  const [match, setMatch] = useState(query.get("match") ?? "");
  const [sort, onSort] = useSort("next_at", false);
  const [open, setOpen] = useState(null);
  if (load.data === null) return html`<div class="page-head"><h1 tabindex="-1">Schedules</h1></div><${Waiting} load=${load} what="schedules" />`;
  const { items } = load.data;
  const text = match.trim().toLowerCase();
  const rows = ordered(items.filter((one) => `${one.name} ${one.queue} ${one.job_name}`.toLowerCase().includes(text)), sort);
  return html`<div class="page-head">
      <h1 tabindex="-1">Schedules</h1>
      <span class="faint tabular">${format.plural(items.length, "schedule")}</span>
      <div class="page-actions">
        ${items.length > 0 && html`<input type="search" class="filter" placeholder="Filter" aria-label="Filter schedules" value=${match} onInput=${(event) => setMatch(event.target.value)} />`}
        <button type="button" class="primary" disabled=${!may("push")} onClick=${() => setOpen({ kind: "new" })}>New schedule</button>
      </div>
    </div>
    ${items.length === 0
      ? html`<${Empty} title="No schedules yet.">
          <p>A schedule is a job that the server pushes by itself, by the clock: each night at three, every five minutes.</p>
        <//>`
      : rows.length
        ? html`<${Section} title="All schedules" kind="bare"><${Table} label="Schedules" columns=${columns(load.reload, (name) => setOpen({ kind: "show", name }))}
            rows=${rows.slice(0, 500)} rowKey=${(row) => row.name} sort=${sort} onSort=${onSort} /><//>`
        : html`<${Empty} title="No schedule fits." />`}
    ${open?.kind === "new" && html`<${ScheduleDialog} onClose=${() => setOpen(null)} onDone=${load.reload} />`}
    ${open?.kind === "show" && html`<${One} name=${open.name} onClose=${() => setOpen(null)} />`}`;
}

function when(schedule) {
  return schedule.cron === null
    ? `every ${format.span(schedule.every)}`
    : html`<code>${schedule.cron}</code> <span class="faint">${schedule.timezone}</span>`;
}

function columns(reload, show) {
  return [
    { key: "name", label: "Schedule", head: true, sort: true, cell: (row) => html`<button type="button" class="link-button" onClick=${() => show(row.name)}>${format.visible(row.name)}</button>
        ${row.paused && html` <${State} state="paused" word="Paused" />`}${row.refused && html` <span class="bad-text" title=${row.refused}>refused</span>`}` },
    { key: "cron", label: "When", cell: when },
    { key: "queue", label: "Queue", sort: true, cell: (row) => html`<${QueueLink} name=${row.queue} />` },
    { key: "next_at", label: "Next", number: true, sort: true, cell: (row) => html`<${Ago} time=${row.next_at} />` },
    { key: "last_at", label: "Last", number: true, sort: true, wide: true, cell: (row) => html`<${Ago} time=${row.last_at} />` },
    { key: "last_job", label: "Last job", number: true, wide: true, cell: (row) => (row.last_job === null ? "–" : html`<${JobLink} id=${row.last_job} />`) },
    { key: "runs", label: "Runs", number: true, sort: true, wide: true, cell: (row) => format.count(row.runs) },
    { key: "missed_ticks", label: "Missed", number: true, wide: true, cell: (row) => format.count(row.missed_ticks + row.skipped), hint: "Ticks that no run was for, or while the last job had not ended" },
    { key: "actions", label: "Actions", quiet: true, cell: (row) => html`<${Actions} row=${row} reload=${reload} />` },
  ];
}

function Actions({ row, reload }) {
  const allowed = may("push");
  const run = async () => {
    const pushed = await post(at`schedules/${row.name}/run`);
    say(pushed?.id ? `Pushed job ${pushed.id} to ${row.queue}.` : `Ran ${row.name}: a job was pushed to ${row.queue}.`);
    await reload();
  };
  const pause = async () => {
    await post(at`schedules/${row.name}/${row.paused ? "resume" : "pause"}`);
    say(row.paused ? `Schedule ${row.name} goes on.` : `Schedule ${row.name} is paused: no ticks come.`);
    await reload();
  };
  const drop = async () => {
    const yes = await confirm({
      title: `Delete schedule ${row.name}?`,
      text: `It pushes nothing more. The ${format.plural(row.runs, "job")} that it has pushed stay as they are.`,
      action: "Delete the schedule",
    });
    if (!yes) return;
    await remove(at`schedules/${row.name}`);
    say(`Deleted schedule ${row.name}.`);
    await reload();
  };
  return html`<span class="buttons">
    <${Do} kind="small" run=${run} disabled=${!allowed} label=${`Run ${row.name} now`}>Run<//>
    <${Do} kind="small" run=${pause} disabled=${!allowed} label=${`${row.paused ? "Resume" : "Pause"} ${row.name}`}>${row.paused ? "Resume" : "Pause"}<//>
    <${Do} kind="small danger-quiet" run=${drop} disabled=${!allowed} label=${`Delete ${row.name}`}>Delete<//>
  </span>`;
}

function One({ name, onClose }) {
  const load = useLoad((signal) => get(at`schedules/${name}`, null, signal), [name], 3000);
  const view = load.data;
  return html`<${Dialog} title=${`Schedule ${name}`} onClose=${onClose} wide>
    <div class="dialog-body">
      ${view === null
        ? html`<${Waiting} load=${load} what="the schedule" />`
        : html`<${Facts} rows=${[
              ["When", when(view)],
              ["Next", html`<${Moment} time=${view.next_at} />`],
              ["Last", html`<${Moment} time=${view.last_at} />`],
              ["Last job", view.last_job === null ? "–" : html`<${JobLink} id=${view.last_job} />`],
              ["Queue", html`<${QueueLink} name=${view.queue} />`],
              ["Job name", format.visible(view.job_name)],
              ["Priority", format.count(view.priority)],
              ["Late ticks", { once: "one run for all of them", skip: "no run", all: "a run for each" }[view.missed]],
              ["While the last job has not ended", view.overlap === "allow" ? "a tick pushes" : "a tick is skipped"],
              ["Runs", format.count(view.runs)],
              ["Skipped", format.count(view.skipped)],
              ["Missed", format.count(view.missed_ticks)],
              view.set_by && ["Set by", view.set_by],
              view.refused && ["Refused", view.refused],
            ]} />
            <h3>Payload</h3>
            <${Content} content=${view.payload} file=${`schedule-${name}`} />`}
    </div>
    <footer class="dialog-foot"><button type="button" onClick=${onClose}>Close</button></footer>
  <//>`;
}
