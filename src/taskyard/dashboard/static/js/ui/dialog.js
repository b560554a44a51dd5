/** Dialogs: the native element keeps the focus inside and gives it back afterwards. */
import { html, useEffect, useRef, useState } from "../lib.js";
import { Store, useStore } from "../store.js";

let shown = 0;

/** A dialog that is open while it is rendered. */
export function Dialog({ title, onClose, children, wide = false }) {
  const element = useRef(null);
  const [id] = useState(() => `dialog-${(shown += 1)}`);
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog.showModal();
    dialog.querySelector("[autofocus], input, select, textarea")?.focus();
    return () => {
      if (dialog.open) dialog.close();
      before?.isConnected && before.focus?.();
    };
  }, []);
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-labelledby=${id} onCancel=${cancel}>
    <header class="dialog-head">
      <h2 id=${id}>${title}</h2>
      <button type="button" class="plain" aria-label="Close" onClick=${onClose}>×</button>
    </header>
    ${children}
  </dialog>`;
}

const question = new Store(null);

/**
 * Ask before something that cannot be undone.
 *
 * @param {{title: string, text: any, action: string, danger?: boolean, type?: string}} asked
 *   `type`: what must be typed first, for the worst ones.
 * @returns {Promise<boolean>}
 */
export function confirm(asked) {
  return new Promise((resolve) => question.set({ ...asked, resolve }));
}

/** Where the questions are shown; once in the page. */
export function Questions() {
  const asked = useStore(question);
  const [typed, setTyped] = useState("");
  useEffect(() => setTyped(""), [asked]);
  if (asked === null) return null;
  const answer = (yes) => {
    question.set(null);
    asked.resolve(yes);
  };
  const ready = !asked.type || typed === asked.type;
  const submit = (event) => {
    event.preventDefault();
    if (ready) answer(true);
  };
  return html`<${Dialog} title=${asked.title} onClose=${() => answer(false)}>
    <form onSubmit=${submit}>
      <div class="dialog-body">
        ${typeof asked.text === "string" ? html`<p>${asked.text}</p>` : asked.text}
        ${asked.type &&
        html`<label class="field">
          <span>Type <strong>${asked.type}</strong> to go on</span>
          <input value=${typed} autocomplete="off" spellcheck=${false} autofocus
            onInput=${(event) => setTyped(event.target.value)} />
        </label>`}
      </div>
      <footer class="dialog-foot">
        <button type="button" onClick=${() => answer(false)} autofocus=${!asked.type}>Cancel</button>
        <button type="submit" class=${asked.danger === false ? "primary" : "danger"} disabled=${!ready}>
          ${asked.action}
        </button>
      </footer>
    </form>
  <//>`;
}
