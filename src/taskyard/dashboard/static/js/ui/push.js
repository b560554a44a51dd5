/** The form that pushes a job. */
import { at, post } from "../api.js";
import { html } from "../lib.js";
import { Dialog } from "./dialog.js";
import { Area, Choice, Field, fieldError, numberText, useForm } from "./form.js";
import { say } from "./notice.js";

const KINDS = [
  ["payload", "JSON"],
  ["text", "Text"],
  ["base64", "Binary, as base64"],
];

/** The body as text: a payload or priority must not pass through JavaScript's numbers. */
function bodyOf(values) {
  const parts = [`${JSON.stringify(values.kind)}:${contentOf(values)}`];
  const put = (name, text) => text !== null && parts.push(`${JSON.stringify(name)}:${text}`);
  const text = (name) => put(name, values[name].trim() ? JSON.stringify(values[name].trim()) : null);
  text("name");
  text("limit_key");
  put("priority", numberText(values, "priority", true));
  for (const name of ["delay", "ttr", "ttl"]) put(name, numberText(values, name));
  put("max_fails", numberText(values, "max_fails", true));
  put("blocked_by", blockers(values.blocked_by));
  return `{${parts.join(",")}}`;
}

function contentOf(values) {
  if (values.kind !== "payload") return JSON.stringify(values.content);
  if (!values.content.trim()) return "null";
  try {
    JSON.parse(values.content);
  } catch (error) {
    throw fieldError("content", `This is not JSON: ${error.message}`);
  }
  return values.content;
}

function blockers(text) {
  const ids = text.split(/[\s,]+/).filter(Boolean);
  if (ids.some((id) => !/^\d+$/.test(id))) throw fieldError("blocked_by", "Give ids of jobs, separated by commas.");
  return ids.length ? `[${ids.join(",")}]` : null;
}

export function PushDialog({ queue = "", onClose, onPushed }) {
  const form = useForm({
    queue, kind: "payload", content: "{}", name: "", priority: "", delay: "", ttr: "", ttl: "", max_fails: "", limit_key: "", blocked_by: "",
  });
  const send = form.submit(async (values) => {
    const target = values.queue.trim();
    if (!target) throw fieldError("queue", "Name a queue.");
    const pushed = await post(at`queues/${target}/jobs`, bodyOf(values));
    say(`Pushed job ${pushed.id} to ${target}: it is ${pushed.state}.`);
    onClose();
    onPushed?.(pushed);
  });
  return html`<${Dialog} title=${queue ? `Push a job to ${queue}` : "Push a job"} onClose=${onClose} wide>
    <form onSubmit=${send}>
      <div class="dialog-body fields">
        ${!queue && html`<${Field} label="Queue" name="queue" form=${form} required hint="It begins with this job if there is none of this name." />`}
        <${Choice} label="Payload is" name="kind" form=${form} options=${KINDS} />
        <${Area} label="Payload" name="content" form=${form} />
        <${Field} label="Name" name="name" form=${form} hint="What to run; the queue's name if empty" />
        <${Field} label="Priority" name="priority" form=${form} inputmode="numeric" hint="Higher first; 0 if empty" />
        <${Field} label="Delay" name="delay" form=${form} inputmode="decimal" hint="Seconds before it is ready" />
        <details class="field-wide more-fields">
          <summary>More</summary>
          <div class="fields">
            <${Field} label="Lease (ttr)" name="ttr" form=${form} inputmode="decimal" hint="Seconds that one attempt may take" />
            <${Field} label="Lifetime (ttl)" name="ttl" form=${form} inputmode="decimal" hint="Seconds until it is forgotten" />
            <${Field} label="Failures" name="max_fails" form=${form} inputmode="numeric" hint="Which failure is final" />
            <${Field} label="Limit key" name="limit_key" form=${form} hint="Whose limits it counts for" />
            <${Field} label="Blocked by" name="blocked_by" form=${form} wide hint="Ids of jobs that must succeed first" />
          </div>
        </details>
      </div>
      ${form.wrong.form && html`<p class="wrong" role="alert">${form.wrong.form}</p>`}
      <footer class="dialog-foot">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${form.busy}>Push</button>
      </footer>
    </form>
  <//>`;
}

