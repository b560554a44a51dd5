/** Keys that work everywhere, and the dialog that tells of them. */
import { html, useLayoutEffect } from "../lib.js";
import { go } from "../route.js";
import { Store, useStore } from "../store.js";
import { Dialog } from "./dialog.js";

const PLACES = {
  o: ["Overview", "#/"],
  q: ["Queues", "#/queues"],
  d: ["Dead letters", "#/dead"],
  w: ["Workers", "#/workers"],
  s: ["Schedules", "#/schedules"],
  m: ["Limits", "#/limits"],
  l: ["Lake", "#/lake"],
  v: ["Server", "#/server"],
};

const open = new Store(false);
const PAUSE = 1000; // between the g and what follows

function typing(target) {
  return target.closest?.("input, select, textarea, [contenteditable]") !== null;
}

/**
 * Listen for the keys; once in the page. A layout effect, because an ordinary one runs after a
 * pause: a key that somebody presses as soon as the page is drawn would be lost.
 */
export function useKeys() {
  useLayoutEffect(() => {
    let began = 0;
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      if (document.querySelector("dialog[open]")) return;
      const place = Date.now() - began < PAUSE ? PLACES[event.key] : undefined;
      began = 0;
      if (place) go(place[1]);
      else if (event.key === "g") began = Date.now();
      else if (event.key === "/") document.getElementById("search")?.focus();
      else if (event.key === "?") open.set(true);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

export const showShortcuts = () => open.set(true);

export function Shortcuts() {
  const shown = useStore(open);
  if (!shown) return null;
  const rows = [
    [["/"], "Search"],
    [["?"], "These shortcuts"],
    [["Esc"], "Close a dialog or the results of a search"],
    ...Object.entries(PLACES).map(([key, [name]]) => [["g", key], name]),
  ];
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${() => open.set(false)}>
    <dl class="shortcuts">
      ${rows.map(
        ([keys, words]) => html`<div key=${words}><dt>${keys.map((key) => html`<kbd key=${key}>${key}</kbd>`)}</dt><dd>${words}</dd></div>`,
      )}
    </dl>
  <//>`;
}
