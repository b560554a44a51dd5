/** Notices: what was done, or what went wrong. Read out by screen readers as they come. */
import { html } from "../lib.js";
import { notices, useStore } from "../store.js";

let last = 0;

function add(kind, text, stay) {
  last += 1;
  const id = last;
  notices.set([...notices.value.slice(-3), { id, kind, text }]);
  setTimeout(() => dismiss(id), stay);
}

export const say = (text) => add("done", text, 8000);

/** An error of a call, or words about one. */
export const complain = (error) =>
  add("error", typeof error === "string" ? error : `${error.title ? `${error.title}: ` : ""}${error.message}`, 15_000);

function dismiss(id) {
  notices.set(notices.value.filter((notice) => notice.id !== id));
}

export function Notices() {
  const shown = useStore(notices);
  return html`<div class="notices" role="status" aria-live="polite" aria-label="Notices">
    ${shown.map(
      (notice) => html`<div key=${notice.id} class="notice notice-${notice.kind}">
        <span class="notice-sign" aria-hidden="true">${notice.kind === "done" ? "✓" : "!"}</span>
        <p><span class="hidden">${notice.kind === "done" ? "Done: " : "Error: "}</span>${notice.text}</p>
        <button type="button" class="plain" aria-label="Dismiss" onClick=${() => dismiss(notice.id)}>×</button>
      </div>`,
    )}
  </div>`;
}
