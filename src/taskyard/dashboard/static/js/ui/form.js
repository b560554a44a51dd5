/** Fields of forms. Each has a label, and words about what is wrong with it. */
import { html, useState } from "../lib.js";

let fields = 0;

/** A label, what it is for, and a line of help: `control(attributes)` gives the element itself. */
function Labelled({ label, hint, wrong, wide, control }) {
  const [id] = useState(() => `field-${(fields += 1)}`);
  const about = wrong ?? hint;
  const attributes = {
    id,
    "aria-invalid": wrong ? "true" : undefined,
    "aria-describedby": about ? `${id}-about` : undefined,
  };
  return html`<div class=${`field${wide ? " field-wide" : ""}`}>
    <label for=${id}>${label}</label>
    ${control(attributes)}
    ${about && html`<small id=${`${id}-about`} class=${wrong ? "wrong" : "faint"}>${about}</small>`}
  </div>`;
}

/** @param {{label: string, name: string, form: object, hint?: string, type?: string}} props */
export function Field({ label, name, form, hint, type = "text", wide = false, ...more }) {
  const control = (attributes) => html`<input type=${type} name=${name} value=${form.values[name] ?? ""}
    autocomplete="off" spellcheck=${false} onInput=${(event) => form.set(name, event.target.value)} ...${attributes} ...${more} />`;
  return html`<${Labelled} label=${label} hint=${hint} wrong=${form.wrong[name]} wide=${wide} control=${control} />`;
}

export function Area({ label, name, form, hint, rows = 6 }) {
  const control = (attributes) => html`<textarea name=${name} rows=${rows} value=${form.values[name] ?? ""} spellcheck=${false}
    onInput=${(event) => form.set(name, event.target.value)} ...${attributes}></textarea>`;
  return html`<${Labelled} label=${label} hint=${hint} wrong=${form.wrong[name]} wide control=${control} />`;
}

export function Choice({ label, name, form, options, hint }) {
  const chosen = form.values[name] ?? "";
  const control = (attributes) => html`<select name=${name} value=${chosen} onChange=${(event) => form.set(name, event.target.value)} ...${attributes}>
    ${options.map(([value, words]) => html`<option key=${value} value=${value} selected=${value === chosen}>${words}</option>`)}
  </select>`;
  return html`<${Labelled} label=${label} hint=${hint} wrong=${form.wrong[name]} control=${control} />`;
}

export function Check({ label, name, form }) {
  return html`<label class="tick">
    <input type="checkbox" name=${name} checked=${Boolean(form.values[name])} onChange=${(event) => form.set(name, event.target.checked)} />
    <span>${label}</span>
  </label>`;
}

/** Values, what is wrong with them, and whether they are being sent. */
export function useForm(initial) {
  const [values, setValues] = useState(initial);
  const [wrong, setWrong] = useState({});
  const [busy, setBusy] = useState(false);
  const set = (name, value) => {
    setValues((was) => ({ ...was, [name]: value }));
    setWrong((was) => ({ ...was, [name]: undefined, form: undefined }));
  };
  /** Run `send`; an error that names a field is shown there, others under `form`. */
  const submit = (send) => async (event) => {
    event.preventDefault();
    setBusy(true);
    setWrong({});
    try {
      await send(values);
    } catch (error) {
      const field = error.field && error.field in values ? error.field : "form";
      setWrong({ [field]: error.message });
    } finally {
      setBusy(false);
    }
  };
  return { values, wrong, busy, set, submit };
}

/** An error of the form's own making, at one field. */
export function fieldError(field, message) {
  return Object.assign(new Error(message), { field });
}

/** The value as JSON text, or nothing if the field is empty. */
export function numberText(values, name, whole = false) {
  const text = (values[name] ?? "").trim();
  if (!text) return null;
  if (!(whole ? /^-?\d+$/ : /^-?\d+(\.\d+)?$/).test(text)) {
    throw fieldError(name, whole ? "Give a whole number." : "Give a number.");
  }
  return text.replace(/^(-?)0+(?=\d)/, "$1");
}
