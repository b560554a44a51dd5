/** Plots over time, each with its figures in words and as a table for who does not see it. */
import * as format from "../format.js";
import { html, loadPlot, useEffect, useRef, useState } from "../lib.js";
import { theme } from "./theme.js";

const HEIGHT = 150;
const ROWS = 20; // of the table beside a plot

const WHOLE = [1, 2, 5].flatMap((step) => Array.from({ length: 13 }, (_, power) => step * 10 ** power)).sort((a, b) => a - b);
const fine = new Intl.NumberFormat("en-US", { maximumFractionDigits: 2 });

export const UNITS = {
  rate: { axis: (value) => (value < 10 ? fine.format(value) : format.short(value)), value: (value) => `${format.rate(value)}/s` },
  count: { axis: format.short, value: format.count, steps: WHOLE },
  seconds: { axis: shortDuration, value: format.duration },
  bytes: { axis: format.bytes, value: format.bytes },
};

function shortDuration(seconds) {
  if (seconds === 0) return "0";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1e5) / 100} ms`;
  if (seconds < 120) return `${Math.round(seconds * 100) / 100} s`;
  return `${Math.round(seconds / 6) / 10} min`;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function options(series, unit, sync, width, range, onCursor) {
  const axis = {
    stroke: () => colour("muted"),
    grid: { stroke: () => colour("grid"), width: 1 },
    ticks: { stroke: () => colour("grid"), width: 1, size: 4 },
    font: "11px system-ui, sans-serif",
  };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    // uPlot keeps its groups in a plain object, which a queue's name must not be a key of as it is.
    cursor: { sync: { key: `of ${sync}` }, drag: { x: false, y: false }, points: { size: 6 } },
    padding: [6, 22, 0, 0],
    scales: { x: { range }, y: { range: (_plot, _low, high) => [0, high > 0 ? Math.max(high * 1.08, unit.steps ? 2 : 0) : unit.steps ? 4 : 1] } },
    axes: [
      { ...axis, size: 26, space: 70, values: clockLabels },
      { ...axis, size: 58, space: 24, incrs: unit.steps, values: (_plot, values) => values.map(unit.axis) },
    ],
    series: [
      {},
      ...series.map((one, index) => ({
        label: one.label,
        stroke: () => colour(one.colour),
        fill: one.area ? () => `${colour(one.colour)}22` : undefined,
        width: 1.5,
        dash: [[], [5, 3], [2, 3]][one.dash ?? 0],
        points: { size: 4, space: 14 },
        spanGaps: false,
        key: index,
      })),
    ],
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx)] },
  };
}

/** From the first time that something is known of, but some minutes at least. */
function stretch(data, span) {
  const [times, ...lines] = data;
  const last = times.at(-1) ?? Date.now() / 1000;
  const first = times.find((_time, at) => lines.some((line) => line[at] !== null && line[at] !== undefined)) ?? last;
  return [Math.max(last - span, Math.min(first, last - Math.min(span / 5, 300))), last];
}

function clockLabels(_plot, values, _axis, _space, step) {
  return values.map((value) => {
    const time = new Date(value * 1000);
    const parts = [time.getHours(), time.getMinutes()];
    if (step < 60) parts.push(time.getSeconds());
    return parts.map((part) => String(part).padStart(2, "0")).join(":");
  });
}

/**
 * @param {{title: string, series: {label: string, colour: string, area?: boolean, dash?: number}[],
 *   data: (number|null)[][], span: number, unit: keyof UNITS, sync?: string, note?: string}} props
 *   `data`: the times, then one list for each of the series. `span`: seconds that are shown.
 */
export function Plot({ title, series, data, span, unit = "count", sync = "all", note }) {
  const box = useRef(null);
  const plot = useRef(null);
  const fresh = useRef(data);
  const [at, setAt] = useState(null);
  fresh.current = data;
  const latestSpan = useRef(span);
  latestSpan.current = span;
  const kind = UNITS[unit];
  const names = series.map((one) => one.label).join();

  useEffect(() => {
    let gone = false;
    let watcher = null;
    loadPlot().then((uPlot) => {
      if (gone || box.current === null) return; // the page is another one by now
      const width = Math.max(200, box.current.clientWidth);
      plot.current = new uPlot(options(series, kind, sync, width, () => stretch(fresh.current, latestSpan.current), setAt), fresh.current, box.current);
      watcher = new ResizeObserver(([entry]) => {
        plot.current.setSize({ width: Math.max(200, Math.floor(entry.contentRect.width)), height: HEIGHT });
      });
      watcher.observe(box.current);
    });
    const unwatch = theme.watch(() => plot.current?.redraw(false, true));
    return () => {
      gone = true;
      unwatch();
      watcher?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [names]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);

  const index = at ?? lastKnown(data);
  return html`<figure class="plot" aria-label=${title}>
    <figcaption>
      <span class="plot-title">${title}</span>
      <span class="legend">
        ${series.map(
          (one, place) => html`<span key=${one.label} class="legend-item">
            <span class="legend-line line-${one.colour} dash-${one.dash ?? 0}" aria-hidden="true"></span>
            <span class="legend-name">${one.label}</span>
            <span class="legend-value">${index === null ? "–" : kind.value(data[place + 1]?.[index])}</span>
          </span>`,
        )}
      </span>
    </figcaption>
    <div class="plot-box" ref=${box} role="img" aria-label=${summary(title, series, data, kind)}></div>
    ${index === null && html`<p class="plot-empty">${note ?? "Nothing has happened yet."}</p>`}
    <${AsTable} title=${title} series=${series} data=${data} kind=${kind} />
  </figure>`;
}

function lastKnown(data) {
  for (let at = data[0].length - 1; at >= 0; at -= 1) {
    for (let line = 1; line < data.length; line += 1) {
      if (data[line][at] !== null && data[line][at] !== undefined) return at;
    }
  }
  return null;
}

/** What the plot shows, in a sentence. */
function summary(title, series, data, kind) {
  const parts = series.map((one, place) => {
    const known = data[place + 1].filter((value) => value !== null && value !== undefined);
    if (!known.length) return `${one.label}: nothing known`;
    const most = known.reduce((a, b) => (a > b ? a : b));
    return `${one.label} now ${kind.value(known.at(-1))}, at most ${kind.value(most)}`;
  });
  return `${title}. ${parts.join("; ")}.`;
}

function AsTable({ title, series, data, kind }) {
  const [open, setOpen] = useState(false);
  const from = Math.max(0, data[0].length - ROWS);
  const times = open ? data[0].slice(from) : [];
  return html`<details class="as-table" onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary>Figures<span class="hidden"> of ${title}</span></summary>
    ${open &&
    html`<div class="scroller" tabindex="0" role="region" aria-label=${`Figures of ${title}`}>
      <table>
        <thead>
          <tr><th scope="col">Time</th>${series.map((one) => html`<th key=${one.label} scope="col" class="num">${one.label}</th>`)}</tr>
        </thead>
        <tbody>
          ${times.map(
            (time, row) => html`<tr key=${time}>
              <th scope="row">${format.moment(time * 1000)}</th>
              ${series.map((one, place) => html`<td key=${one.label} class="num">${kind.value(data[place + 1][from + row])}</td>`)}
            </tr>`,
          ).reverse()}
        </tbody>
      </table>
    </div>`}
  </details>`;
}
