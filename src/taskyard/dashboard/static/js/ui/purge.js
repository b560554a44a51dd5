/** The dialog that removes the jobs of a queue, by state. */
import { at, post } from "../api.js";
import { count, plural } from "../format.js";
import { html, useState } from "../lib.js";
import { STATES } from "./bits.js";
import { Dialog } from "./dialog.js";
import { complain, say } from "./notice.js";

const ORDER = ["ready", "delayed", "blocked", "limited", "leased", "succeeded", "failed"];

export function PurgeDialog({ name, counts, onClose, onDone }) {
  const [chosen, setChosen] = useState(() => new Set(counts.ready ? ["ready"] : []));
  const [busy, setBusy] = useState(false);
  const sum = [...chosen].reduce((all, state) => all + (counts[state] ?? 0), 0);
  const turn = (state) =>
    setChosen((was) => {
      const now = new Set(was);
      if (!now.delete(state)) now.add(state);
      return now;
    });
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const { removed } = await post(at`queues/${name}/purge`, { states: [...chosen] });
      say(`Removed ${plural(removed, "job")} of queue ${name}.`);
      onClose();
      onDone?.();
    } catch (error) {
      complain(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${`Purge queue ${name}`} onClose=${onClose}>
    <form onSubmit=${send}>
      <div class="dialog-body">
        <p>The jobs in these states are removed for good. Jobs that wait for them fail.</p>
        <fieldset class="ticks">
          <legend class="hidden">States</legend>
          ${ORDER.map(
            (state) => html`<label key=${state} class="tick">
              <input type="checkbox" checked=${chosen.has(state)} onChange=${() => turn(state)} />
              <span>${state === "failed" ? "Dead letters" : STATES[state]}</span><span class="tick-count">${count(counts[state] ?? 0)}</span>
            </label>`,
          )}
        </fieldset>
        ${chosen.has("leased") && html`<p class="warn-text">Running jobs are taken away from their workers.</p>`}
      </div>
      <footer class="dialog-foot">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="danger" disabled=${busy || chosen.size === 0}>${busy ? "Removing …" : `Remove about ${plural(sum, "job")}`}</button>
      </footer>
    </form>
  <//>`;
}
