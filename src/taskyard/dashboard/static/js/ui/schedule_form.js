/** The form for a new schedule. */
import { at, put } from "../api.js";
import { html } from "../lib.js";
import { Dialog } from "./dialog.js";
import { Area, Choice, Field, fieldError, numberText, useForm } from "./form.js";
import { say } from "./notice.js";

function bodyOf(values) {
  const parts = [`"queue":${JSON.stringify(values.queue.trim())}`];
  if (values.kind === "cron") {
    parts.push(`"cron":${JSON.stringify(values.cron.trim())}`, `"timezone":${JSON.stringify(values.timezone.trim() || "UTC")}`);
  } else {
    const every = numberText(values, "every");
    if (every === null) throw fieldError("every", "Give a number of seconds.");
    parts.push(`"every":${every}`);
  }
  if (values.name.trim()) parts.push(`"name":${JSON.stringify(values.name.trim())}`);
  parts.push(`"missed":${JSON.stringify(values.missed)}`, `"overlap":${JSON.stringify(values.overlap)}`);
  if (values.payload.trim()) {
    try {
      JSON.parse(values.payload);
    } catch (error) {
      throw fieldError("payload", `This is not JSON: ${error.message}`);
    }
    parts.push(`"payload":${values.payload}`);
  }
  return `{${parts.join(",")}}`;
}

export function ScheduleDialog({ onClose, onDone }) {
  const form = useForm({
    schedule: "", queue: "", kind: "cron", cron: "0 3 * * *", timezone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
    every: "300", name: "", missed: "once", overlap: "allow", payload: "{}",
  });
  const send = form.submit(async (values) => {
    const name = values.schedule.trim();
    if (!name) throw fieldError("schedule", "Name the schedule.");
    if (!values.queue.trim()) throw fieldError("queue", "Name a queue.");
    const made = await put(at`schedules/${name}`, bodyOf(values));
    say(`Schedule ${name} is set.${made?.next_at ? ` It comes first at ${new Date(made.next_at).toLocaleString()}.` : ""}`);
    onClose();
    onDone?.();
  });
  return html`<${Dialog} title="New schedule" onClose=${onClose} wide>
    <form onSubmit=${send}>
      <div class="dialog-body fields">
        <${Field} label="Schedule" name="schedule" form=${form} required hint="Its name; one that is there becomes this" />
        <${Field} label="Queue" name="queue" form=${form} required />
        <${Choice} label="Comes" name="kind" form=${form} options=${[["cron", "by a cron expression"], ["every", "every so many seconds"]]} />
        ${form.values.kind === "cron"
          ? html`<${Field} label="Cron" name="cron" form=${form} hint="Minute, hour, day, month, weekday" />
              <${Field} label="Time zone" name="timezone" form=${form} />`
          : html`<${Field} label="Every" name="every" form=${form} inputmode="decimal" hint="Seconds" />`}
        <${Field} label="Job name" name="name" form=${form} hint="The queue's name if empty" />
        <${Choice} label="Late ticks" name="missed" form=${form} options=${[["once", "one run for all"], ["skip", "no run"], ["all", "a run for each"]]} />
        <${Choice} label="If the last job has not ended" name="overlap" form=${form} options=${[["allow", "push"], ["skip", "skip the tick"]]} />
        <${Area} label="Payload (JSON)" name="payload" form=${form} rows=${4} />
      </div>
      ${form.wrong.form && html`<p class="wrong" role="alert">${form.wrong.form}</p>`}
      <footer class="dialog-foot">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${form.busy}>Set schedule</button>
      </footer>
    </form>
  <//>`;
}
