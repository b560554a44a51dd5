/** The past of the server or of one queue, as columns for plots, going on as looks come. */
import { get } from "../api.js";
import { useLoad } from "../hooks.js";
import { plain } from "../json.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { look } from "../store.js";

export const SPANS = [
  { seconds: 300, label: "5 min" },
  { seconds: 3600, label: "1 hour" },
  { seconds: 86_400, label: "24 hours" },
];

const EVERY = { 300: 0, 3600: 10_000, 86_400: 60_000 };

/** The columns of one look, by the names of the history. */
function columnsOf(seen) {
  const columns = {
    ready: seen.totals.ready,
    leased: seen.totals.leased,
    delayed: seen.totals.delayed,
    blocked: seen.totals.blocked,
    dead: seen.totals.dead,
    pushed: seen.rates.pushed,
    finished: seen.rates.finished,
    failed: seen.rates.failed,
  };
  for (const kind of ["wait", "run"]) {
    for (const share of ["p50", "p95", "p99"]) columns[`${kind}_${share}`] = seen[kind]?.[share] ?? null;
  }
  for (const one of seen.dialects ?? []) columns[`requests_${one.dialect}`] = one.requests_rate;
  return columns;
}

/** Put one look behind what is there; what is older than the span goes. */
function append(past, seen) {
  const time = Math.round(seen.at_seconds);
  const last = past.times.at(-1) ?? 0;
  if (time <= last) return past;
  const columns = columnsOf(seen);
  const times = past.times.slice();
  const series = {};
  const gap = last && time - last > 5;
  if (gap) times.push(last + 1);
  times.push(time);
  let old = 0;
  while (times[old] < time - 300) old += 1;
  for (const name of new Set([...Object.keys(past.series), ...Object.keys(columns)])) {
    const line = past.series[name]?.slice() ?? new Array(past.times.length).fill(null);
    if (gap) line.push(null);
    line.push(columns[name] ?? null);
    series[name] = line.slice(old);
  }
  return { step: past.step, times: times.slice(old), series };
}

const NOTHING = { step: 1, times: [], series: {} };

/** @returns {{past: {times: number[], series: Object}, load: object}} */
export function useHistory(span, queue = null) {
  const every = queue ? 10_000 : EVERY[span];
  const load = useLoad((signal) => get("history", { span, queue }, signal).then(inSeconds), [span, queue], every);
  const [past, setPast] = useState(NOTHING);
  const live = span === 300 && !queue;
  const kept = useRef(NOTHING);
  useEffect(() => {
    kept.current = load.data ?? NOTHING;
    setPast(kept.current);
  }, [load.data]);
  useEffect(() => {
    if (!live) return undefined;
    return look.watch((seen) => {
      if (document.hidden || !seen?.totals || !seen.rates) return;
      kept.current = append(kept.current, { ...seen, at_seconds: Date.parse(seen.at) / 1000 });
      setPast(kept.current);
    });
  }, [live]);
  return { past, load };
}

function inSeconds(history) {
  const times = history.times.map((time) => (typeof time === "string" ? Date.parse(time) / 1000 : plain(time)));
  const series = {};
  for (const [name, line] of Object.entries(history.series)) series[name] = line.map(plain);
  for (const [dialect, line] of Object.entries(history.requests ?? {})) series[`requests_${dialect}`] = line.map(plain);
  return { step: history.step, times, series };
}

/** The columns that a plot wants, in its order. */
export function useColumns(past, names) {
  return useMemo(
    () => [past.times, ...names.map((name) => past.series[name] ?? new Array(past.times.length).fill(null))],
    [past, names.join()],
  );
}

export function SpanSwitch({ span, onChange, spans = SPANS }) {
  return html`<div class="segmented" role="group" aria-label="Time span">
    ${spans.map(
      (one) => html`<button type="button" key=${one.seconds} aria-pressed=${one.seconds === span}
        onClick=${() => onChange(one.seconds)}>${one.label}</button>`,
    )}
  </div>`;
}
