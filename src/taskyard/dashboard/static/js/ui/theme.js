/** Light or dark: as the system has it, or as the person has chosen. */
import { html } from "../lib.js";
import { Store, useStore } from "../store.js";

const KEY = "taskyard-theme";
const CHOICES = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };

export const theme = new Store(document.documentElement.dataset.colours);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const watcher of theme.watchers) watcher(theme.value);
});

function choose(value) {
  document.documentElement.dataset.colours = value;
  document.documentElement.dispatchEvent(new Event("colours")); // for theme.js
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // Storage may be forbidden: the choice then holds for this visit.
  }
  theme.set(value);
}

export function ThemeSwitch() {
  const now = useStore(theme);
  const next = CHOICES[(CHOICES.indexOf(now) + 1) % CHOICES.length];
  return html`<button type="button" class="plain icon" aria-label=${`Colours: ${now}. Switch to ${next}`}
    title=${`Colours: ${now}`} onClick=${() => choose(next)}>
    <span aria-hidden="true">${SIGNS[now]}</span>
  </button>`;
}
