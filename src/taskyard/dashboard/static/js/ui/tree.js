/** JSON as a tree that opens where one looks. Children exist only while they are shown. */
import { count, plural, visible } from "../format.js";
import { Exact } from "../json.js";
import { html, useState } from "../lib.js";

const PORTION = 100; // children shown at a time
const LONG = 600; // characters of a string before "show all"
const LONG_NAME = 120;
const OPEN_CHILDREN = 40; // what is larger is closed at first
const OPEN_DEPTH = 3;

export function Tree({ value }) {
  return html`<div class="tree"><${Node} value=${value} depth=${0} /></div>`;
}

function Node({ name, value, depth }) {
  const label = name === undefined ? null : html`<${Name} name=${name} />`;
  return isBranch(value)
    ? html`<${Branch} label=${label} value=${value} depth=${depth} />`
    : html`<div class="leaf">${label}<${Leaf} value=${value} /></div>`;
}

function isBranch(value) {
  return value !== null && typeof value === "object" && !(value instanceof Exact);
}

function Name({ name }) {
  const shown = typeof name === "number" ? name : visible(name.length > LONG_NAME ? `${name.slice(0, LONG_NAME)}…` : name);
  return html`<span class=${typeof name === "number" ? "tree-index" : "tree-name"}>${shown}</span
    ><span class="tree-colon">: </span>`;
}

function Leaf({ value }) {
  if (typeof value === "string") return html`<${Text} text=${value} />`;
  if (value === null) return html`<span class="tree-null">null</span>`;
  if (typeof value === "boolean") return html`<span class="tree-bool">${String(value)}</span>`;
  return html`<span class="tree-number">${String(value)}</span>`;
}

function Text({ text }) {
  const [all, setAll] = useState(false);
  const cut = !all && text.length > LONG;
  return html`<span class="tree-string">"${visible(cut ? text.slice(0, LONG) : text)}${cut ? "…" : ""}"</span>
    ${cut && html`<button type="button" class="more" onClick=${() => setAll(true)}>all ${count(text.length)} characters</button>`}`;
}

function Branch({ label, value, depth }) {
  const list = Array.isArray(value);
  const names = list ? null : Object.keys(value);
  const size = list ? value.length : names.length;
  const [open, setOpen] = useState(depth < OPEN_DEPTH && size <= OPEN_CHILDREN);
  const [shown, setShown] = useState(PORTION);
  const [from, to] = list ? "[]" : "{}";
  if (size === 0) return html`<div class="leaf">${label}<span class="tree-brace">${from}${to}</span></div>`;
  const indexes = Array.from({ length: Math.min(size, shown) }, (_, at) => at);
  return html`<div class="branch">
    <button type="button" class="twist" aria-expanded=${open} onClick=${() => setOpen(!open)}>
      <span class="twist-sign" aria-hidden="true">${open ? "▾" : "▸"}</span>${label}<span class="tree-brace">${from}</span
      >${!open && html`<span class="tree-size">${plural(size, list ? "item" : "field")}</span><span class="tree-brace">${to}</span>`}
    </button>
    ${open &&
    html`<div class="children">
      ${indexes.map((at) => {
        const name = list ? at : names[at];
        return html`<${Node} key=${at} name=${name} value=${value[name]} depth=${depth + 1} />`;
      })}
      ${size > shown &&
      html`<button type="button" class="more" onClick=${() => setShown(shown + PORTION)}>
        ${count(Math.min(PORTION, size - shown))} more of ${count(size - shown)}
      </button>`}
    </div>
    <span class="tree-brace closing">${to}</span>`}
  </div>`;
}
