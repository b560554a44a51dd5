/** One queue: its figures, plots, jobs and settings, and what can be done with it. */
import { at, get, may, patch, post, remove } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { useLive } from "../live.js";
import { go, to } from "../route.js";
import { look, useStore } from "../store.js";
import { Do, Empty, Failed, Figure, Flags, Section, Waiting } from "../ui/bits.js";
import { confirm } from "../ui/dialog.js";
import { useColumns, useHistory } from "../ui/history.js";
import { say } from "../ui/notice.js";
import { Plot } from "../ui/plot.js";
import { PushDialog } from "../ui/push.js";
import { PurgeDialog } from "../ui/purge.js";
import { QueueJobs } from "./queue_jobs.js";
import { QueueSettings } from "./queue_settings.js";

export function Queue({ path, query }) {
  const name = path[1];
  const load = useLoad((signal) => get(at`queues/${name}`, null, signal), [name], 5000);
  useLive({ limit: 1, queue: name });
  const row = useStore(look, (seen) => (seen?.queue?.name === name ? seen.queue : null));
  if (load.data === null || (load.error && load.error.status === 404)) {
    return html`<div class="page-head"><h1 tabindex="-1"><span class="crumb"><a href="#/queues">Queues</a> / </span>${format.visible(name)}</h1></div>
      ${missing(load, name)}`;
  }
  const view = load.data;
  const counts = row?.counts ?? view.counts;
  const now = { ...view, ...row };
  return html`<div class="page-head">
      <h1 tabindex="-1"><span class="crumb"><a href="#/queues">Queues</a> / </span>${format.visible(name)}</h1>
      <${Flags} row=${{ paused: now.paused, draining: row ? row.draining : view.effective.draining }} />
      <${Actions} view=${{ ...view, counts, paused: now.paused }} reload=${load.reload} />
    </div>
    ${load.error && html`<${Failed} error=${load.error} />`}
    <${Counts} name=${name} counts=${counts} now=${now} />
    <${Plots} name=${name} />
    <${QueueJobs} name=${name} counts=${counts} state=${query.get("state") ?? "ready"} />
    <${QueueSettings} view=${view} reload=${load.reload} />`;
}

function missing(load, name) {
  if (!load.error?.is?.("queue-not-found")) return html`<${Waiting} load=${load} what="the queue" />`;
  return html`<${Empty} title="There is no such queue.">
    <p>It was deleted, was idle for too long, or never had a job.</p>
    <p><a href=${to("search", { queue: name })}>Look for its jobs</a> or go to <a href="#/queues">all queues</a>.</p>
  <//>`;
}

function Counts({ name, counts, now }) {
  const tile = (state, label) =>
    html`<${Figure} key=${state} label=${label} value=${format.count(counts[state])} href=${to("queues", name, { state })} />`;
  return html`<div class="figures" role="group" aria-label="Jobs and rates">
    ${tile("ready", "Ready")}${tile("leased", "Running")}${tile("delayed", "Delayed")}${tile("blocked", "Blocked")}
    ${counts.limited > 0 && tile("limited", "Limited")}
    <${Figure} label="Dead letters" value=${format.count(counts.failed)} href=${to("dead", { queue: name })} kind=${counts.failed > 0 ? "bad" : ""} />
    <${Figure} label="In" value=${format.rate(now.pushed_rate)} unit="/s" />
    <${Figure} label="Out" value=${format.rate(now.done_rate)} unit="/s" />
    <${Figure} label="Oldest ready" value=${format.brief(now.oldest_age)} hint="How long the next job has been ready" />
    <${Figure} label="Workers waiting" value=${format.count(now.waiting)} hint="Fetches that wait for a job" />
  </div>`;
}

const SHARES = [
  { label: "p50", colour: "plot-1" },
  { label: "p95", colour: "plot-2", dash: 1 },
  { label: "p99", colour: "plot-3", dash: 2 },
];

function Plots({ name }) {
  const { past, load } = useHistory(3600, name);
  const flow = useColumns(past, ["pushed", "finished", "failed"]);
  const depth = useColumns(past, ["ready", "leased", "dead"]);
  const wait = useColumns(past, ["wait_p50", "wait_p95", "wait_p99"]);
  const run = useColumns(past, ["run_p50", "run_p95", "run_p99"]);
  if (load.error) {
    return html`<${Section} title="The last hour"><p class="faint">${load.error.message}</p><//>`;
  }
  return html`<${Section} title="The last hour">
    <div class="plots">
      <${Plot} title="Throughput" span=${3600} unit="rate" data=${flow} sync=${name} note="Nothing is known of this hour yet."
        series=${[{ label: "Pushed", colour: "plot-1" }, { label: "Finished", colour: "plot-2" }, { label: "Failed", colour: "plot-3", dash: 1 }]} />
      <${Plot} title="Depth" span=${3600} unit="count" data=${depth} sync=${name} note="Nothing is known of this hour yet."
        series=${[{ label: "Ready", colour: "plot-1", area: true }, { label: "Running", colour: "plot-4" }, { label: "Dead", colour: "plot-3", dash: 1 }]} />
      <${Plot} title="Wait until taken" span=${3600} unit="seconds" data=${wait} sync=${name} series=${SHARES} note="No job was taken in this hour." />
      <${Plot} title="Run time" span=${3600} unit="seconds" data=${run} sync=${name} series=${SHARES} note="No job was finished in this hour." />
    </div>
  <//>`;
}

function Actions({ view, reload }) {
  const [open, setOpen] = useState(null);
  const { name } = view;
  const allowed = may("admin");
  const draining = view.effective.draining;
  const done = async (text) => {
    say(text);
    await reload();
  };
  const pause = async () => {
    await post(at`queues/${name}/${view.paused ? "resume" : "pause"}`);
    await done(view.paused ? `Queue ${name} hands out jobs again.` : `Queue ${name} is paused: it takes pushes, and hands out nothing.`);
  };
  const drain = async () => {
    await patch(at`queues/${name}`, { draining: !draining });
    await done(draining ? `Queue ${name} takes pushes again.` : `Queue ${name} drains: it refuses pushes, and hands out what it has.`);
  };
  const drop = async () => {
    const jobs = Object.values(view.counts).reduce((sum, one) => sum + one, 0);
    const yes = await confirm({
      title: `Delete queue ${name}?`,
      text: jobs
        ? `All its ${format.plural(jobs, "job")} are removed with it, also those that are running and the dead letters. Jobs that wait for them fail. This cannot be undone.`
        : "It has no jobs. Its settings and counters go.",
      action: "Delete the queue",
      type: jobs ? name : undefined,
    });
    if (!yes) return;
    const gone = await remove(at`queues/${name}`, { purge: true });
    say(`Deleted queue ${name} with ${format.plural(gone?.removed ?? 0, "job")}.`);
    go("#/queues");
  };
  return html`<div class="page-actions" role="group" aria-label="Actions">
    <button type="button" class="primary" disabled=${!may("push")} onClick=${() => setOpen("push")}>Push a job</button>
    <${Do} run=${pause} disabled=${!allowed}>${view.paused ? "Resume" : "Pause"}<//>
    <${Do} run=${drain} disabled=${!allowed}>${draining ? "Stop draining" : "Drain"}<//>
    <button type="button" disabled=${!allowed} onClick=${() => setOpen("purge")}>Purge …</button>
    <${Do} run=${drop} kind="danger-quiet" disabled=${!allowed}>Delete …<//>
    ${open === "push" && html`<${PushDialog} queue=${name} onClose=${() => setOpen(null)} onPushed=${reload} />`}
    ${open === "purge" && html`<${PurgeDialog} name=${name} counts=${view.counts} onClose=${() => setOpen(null)} onDone=${reload} />`}
  </div>`;
}
