/** One job: all that is known of it, from the server or, when it is long gone, from the lake. */
import { at, get, may, patch, post, remove } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { to } from "../route.js";
import { Ago, Do, Facts, Meter, Moment, QueueLink, Section, State, Waiting } from "../ui/bits.js";
import { Content } from "../ui/content.js";
import { confirm, Dialog } from "../ui/dialog.js";
import { Check, Field, fieldError, numberText, useForm } from "../ui/form.js";
import { say } from "../ui/notice.js";
import { plain } from "../json.js";
import { LakeJob } from "./job_lake.js";
import { Dependencies, Life } from "./job_life.js";

export function Job({ path }) {
  const id = path[1] ?? "";
  const load = useLoad((signal) => get(at`jobs/${id}`, null, signal), [id], 2000);
  const [end, setEnd] = useState(null);
  const job = load.data;
  const head = html`<h1 tabindex="-1"><span class="crumb"><a href="#/queues">Queues</a> / </span>Job ${id}</h1>`;
  if (load.error?.status === 404 && job === null) return html`<div class="page-head">${head}</div><${LakeJob} id=${id} />`;
  if (job === null) return html`<div class="page-head">${head}</div><${Waiting} load=${load} what="the job" />`;
  const gone = job.state === "gone" || load.error?.status === 404;
  const troubled = !gone && job.state !== "succeeded"; // then its error is what one looks for
  const error = job.error && html`<${Section} title="Last error"><${Content} content=${job.error} file=${`job-${job.id}-error`} /><//>`;
  return html`<div class="page-head">
      <h1 tabindex="-1"><span class="crumb"><a href=${to("queues", job.queue)}>${format.visible(job.queue)}</a> / </span>Job ${String(job.id)}</h1>
      <${State} state=${gone ? (ENDS[end]?.[0] ?? "gone") : job.state} word=${gone ? ENDS[end]?.[1] : undefined} />
      ${!gone && html`<${Actions} job=${job} reload=${load.reload} />`}
    </div>
    ${job.reason && html`<p class="callout"><strong>Failed for good:</strong> ${format.visible(job.reason)}</p>`}
    <div class="columns job-columns">
      <div>
        ${troubled && error}
        <${Section} title="Payload"><${Content} content=${job.payload} file=${`job-${job.id}-payload`} /><//>
        ${job.result && html`<${Section} title="Result"><${Content} content=${job.result} file=${`job-${job.id}-result`} /><//>`}
        ${!troubled && error}
        <${Dependencies} job=${job} />
        <${Life} job=${job} onEnd=${setEnd} />
      </div>
      <div>
        <${Section} title="Facts"><${JobFacts} job=${job} /><//>
        ${job.lease && html`<${LeaseFacts} job=${job} />`}
      </div>
    </div>`;
}

const ENDS = { finish: ["succeeded", "Finished"], batch_done: ["succeeded", "Finished"], fail: ["failed", "Failed"], remove: ["gone", "Removed"] };

function JobFacts({ job }) {
  return html`<${Facts} rows=${[
    ["Queue", html`<${QueueLink} name=${job.queue} />`],
    ["Name", format.visible(job.name)],
    ["Priority", format.count(job.priority)],
    ["Pushed", html`<${Moment} time=${job.pushed_at} /> <span class="faint">by ${job.dialect}</span>`],
    job.run_at && ["Not before", html`<${Moment} time=${job.run_at} />`],
    job.due_at && ["Due", html`<${Ago} time=${job.due_at} />`],
    job.finished_at && ["Ended", html`<${Moment} time=${job.finished_at} />`],
    job.finished_at && ["Took", format.duration((Date.parse(job.finished_at) - Date.parse(job.pushed_at)) / 1000), "from push to end"],
    ["Attempts", of(job.attempts, job.max_attempts)],
    ["Failures", of(job.fails, job.max_fails)],
    job.losses > 0 && ["Lost by workers", of(job.losses, job.max_losses)],
    job.ttr && ["Lease", format.span(job.ttr)],
    job.expires_at && ["Forgotten", html`<${Ago} time=${job.expires_at} />`],
    job.dead_queue && ["Dead queue", html`<${QueueLink} name=${job.dead_queue} />`],
    job.limit_key !== null && ["Limit key", format.visible(job.limit_key)],
    job.key && ["Key", format.visible(job.key.text ?? (job.key.json !== undefined ? JSON.stringify(job.key.json) : "(binary)"))],
    ["Uid", html`<span class="id">${job.uid}</span>`],
  ]} />`;
}

function of(value, most) {
  return html`${format.count(value)}${most !== null && html`<span class="faint"> of ${format.count(most)}</span>`}`;
}

function LeaseFacts({ job }) {
  const { lease, progress } = job;
  return html`<${Section} title="Running now">
    ${progress &&
    html`<div class="progress">
      <${Meter} part=${plain(progress.fraction)} label=${`${Math.round(plain(progress.fraction) * 100)} % done`} />
      <span class="tabular">${Math.round(plain(progress.fraction) * 100)} %</span>
      ${progress.message && html`<span>${format.visible(progress.message)}</span>`}
    </div>`}
    <${Facts} rows=${[
      ["Worker", format.visible(lease.holder)],
      ["Attempt", format.count(lease.attempt)],
      ["Since", html`<${Moment} time=${lease.since} />`],
      ["For", format.duration(lease.age)],
      ["Ends", lease.deadline ? html`<${Ago} time=${lease.deadline} />` : lease.bound ? "with its connection" : "never"],
    ]} />
  <//>`;
}

function Actions({ job, reload }) {
  const [open, setOpen] = useState(null);
  const allowed = may("admin");
  const done = async (text) => {
    say(text);
    await reload();
  };
  const retry = async () => {
    await post(at`jobs/${job.id}/retry`);
    await done(job.state === "failed" ? `Job ${job.id} has another life: it is ready, its counts are at zero.` : `Job ${job.id} is ready now.`);
  };
  const cancel = async () => {
    const waiting = job.dependents ? ` ${format.plural(job.dependents, "job")} that wait for it fail.` : "";
    const running = job.state === "leased" ? " It is taken away from its worker." : "";
    const yes = await confirm({ title: `Cancel job ${job.id}?`, text: `The job is removed for good.${running}${waiting}`, action: "Cancel the job" });
    if (!yes) return;
    await remove(at`jobs/${job.id}`);
    await done(`Cancelled job ${job.id}: it is removed from ${job.queue}.`);
  };
  const close = () => setOpen(null);
  return html`<div class="page-actions" role="group" aria-label="Actions">
    <${Do} run=${retry} kind=${job.state === "failed" ? "primary" : ""} disabled=${!allowed || !["delayed", "failed"].includes(job.state)}
      title="Make a delayed or dead job ready now">${job.state === "failed" ? "Replay" : "Retry now"}<//>
    <button type="button" disabled=${!allowed || !["ready", "limited"].includes(job.state)} onClick=${() => setOpen("priority")}>Priority …</button>
    <button type="button" disabled=${!allowed || !["ready", "delayed", "failed", "limited"].includes(job.state)} onClick=${() => setOpen("move")}>Move …</button>
    <${Do} run=${cancel} kind="danger-quiet" disabled=${!allowed}>Cancel …<//>
    ${open === "priority" && html`<${PriorityDialog} job=${job} onClose=${close} done=${done} />`}
    ${open === "move" && html`<${MoveDialog} job=${job} onClose=${close} done=${done} />`}
  </div>`;
}

function PriorityDialog({ job, onClose, done }) {
  const form = useForm({ priority: String(job.priority) });
  const send = form.submit(async (values) => {
    const text = numberText(values, "priority", true);
    if (text === null) throw fieldError("priority", "Give a whole number.");
    await patch(at`jobs/${job.id}`, `{"priority":${text}}`);
    onClose();
    await done(`Job ${job.id} has priority ${text}.`);
  });
  return html`<${Small} title=${`Priority of job ${job.id}`} send=${send} form=${form} onClose=${onClose} action="Set priority">
    <${Field} label="Priority" name="priority" form=${form} inputmode="numeric" hint="Higher goes first. It goes behind those that have it already." />
  <//>`;
}

function MoveDialog({ job, onClose, done }) {
  const form = useForm({ queue: "", front: false });
  const send = form.submit(async (values) => {
    if (!values.queue.trim()) throw fieldError("queue", "Name a queue.");
    await post(at`jobs/${job.id}/move`, { queue: values.queue.trim(), front: values.front });
    onClose();
    await done(`Moved job ${job.id} from ${job.queue} to ${values.queue.trim()}: it is ready there.`);
  });
  return html`<${Small} title=${`Move job ${job.id}`} send=${send} form=${form} onClose=${onClose} action="Move the job">
    <${Field} label="To queue" name="queue" form=${form} required />
    <${Check} label="To the front of it" name="front" form=${form} />
  <//>`;
}

function Small({ title, send, form, onClose, action, children }) {
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${send}>
      <div class="dialog-body fields-one">${children}</div>
      ${form.wrong.form && html`<p class="wrong" role="alert">${form.wrong.form}</p>`}
      <footer class="dialog-foot">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${form.busy}>${action}</button>
      </footer>
    </form>
  <//>`;
}
