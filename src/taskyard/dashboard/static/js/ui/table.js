/** Tables. Of long ones only the rows that can be seen are in the document. */
import { useMedia } from "../hooks.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";

const ROW = 34; // pixels: as --row in app.css
const SPARE = 8; // rows above and below that are ready when one scrolls

/**
 * @typedef {object} Column
 * @property {string} key       of the row, and of the order
 * @property {string} label
 * @property {(row: any) => any} [cell]
 * @property {boolean} [number] aligned to the right
 * @property {boolean} [wide]   left out on narrow screens
 * @property {boolean} [sort]   can be ordered by
 * @property {boolean} [head]   names the row
 */

function Head({ columns, sort, onSort }) {
  return html`<thead>
    <tr>
      ${columns.map((column) => {
        const sorted = sort && sort.key === column.key;
        const order = sorted ? (sort.down ? "descending" : "ascending") : undefined;
        return html`<th key=${column.key} scope="col" class=${classes(column)} aria-sort=${order} title=${column.hint}>
          ${column.sort && onSort
            ? html`<button type="button" class="sorter" onClick=${() => onSort(column.key)}>
                ${column.label}<span class="sort-sign" aria-hidden="true">${sorted ? (sort.down ? "▾" : "▴") : ""}</span>
              </button>`
            : column.quiet
              ? html`<span class="hidden">${column.label}</span>`
              : column.label}
        </th>`;
      })}
    </tr>
  </thead>`;
}

/** Those that there is room for: as in app.css, narrow screens leave out the wide ones. */
function useRoom(columns) {
  const narrow = useMedia("(max-width: 760px)");
  return narrow ? columns.filter((column) => !column.wide) : columns;
}

function classes(column) {
  return [column.number && "num", column.kind].filter(Boolean).join(" ");
}

function Cells({ columns, row }) {
  return columns.map((column) => {
    const value = column.cell ? column.cell(row) : row[column.key];
    return column.head
      ? html`<th key=${column.key} scope="row" class=${classes(column)}>${value}</th>`
      : html`<td key=${column.key} class=${classes(column)}>${value}</td>`;
  });
}

/** A table with all its rows; `after(row)` may give a further row of full width below one. */
export function Table({ label, columns: all, rows, rowKey, sort, onSort, after, rowClass }) {
  const columns = useRoom(all);
  return html`<div class="scroller" tabindex="0" role="region" aria-label=${`${label}, scrollable`}>
    <table aria-label=${label}>
      <${Head} columns=${columns} sort=${sort} onSort=${onSort} />
      <tbody>
        ${rows.map((row) => {
          const more = after?.(row);
          return html`<tr key=${rowKey(row)} class=${rowClass?.(row)}><${Cells} columns=${columns} row=${row} /></tr>
            ${more && html`<tr key=${`${rowKey(row)}+`} class="after"><td colspan=${columns.length}>${more}</td></tr>`}`;
        })}
      </tbody>
    </table>
  </div>`;
}

/**
 * A table of `total` rows of which only some are drawn. `rowAt(index)` gives a row, or undefined
 * while it is not there yet; `onWindow(first, count)` is told what can be seen.
 */
export function LongTable({ label, columns: all, total, rowAt, rowKey, sort, onSort, onWindow, onHover }) {
  const columns = useRoom(all);
  const box = useRef(null);
  const [span, setSpan] = useState({ first: 0, count: 40 });
  const measure = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW) - SPARE);
    const count = Math.ceil(element.clientHeight / ROW) + 2 * SPARE;
    setSpan((was) => (was.first === first && was.count === count ? was : { first, count }));
  };
  useLayoutEffect(measure, [total]);
  useEffect(() => {
    const watcher = new ResizeObserver(measure);
    watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  const first = Math.min(span.first, Math.max(0, total - 1));
  const last = Math.min(total, first + span.count);
  useEffect(() => onWindow?.(first, last - first), [first, last]);
  const indexes = Array.from({ length: Math.max(0, last - first) }, (_, at) => first + at);
  return html`<div class="scroller tall" tabindex="0" role="region" aria-label=${`${label}, scrollable`}
    ref=${box} onScroll=${measure}
    onPointerEnter=${() => onHover?.(true)} onPointerLeave=${() => onHover?.(false)}>
    <table class="fixed" aria-label=${label} aria-rowcount=${total + 1}>
      <${Head} columns=${columns} sort=${sort} onSort=${onSort} />
      <tbody>
        <${Gap} rows=${first} columns=${columns} />
        ${indexes.map((index) => {
          const row = rowAt(index);
          return row === undefined
            ? html`<tr key=${`at-${index}`} aria-rowindex=${index + 2} class="pending">
                <td colspan=${columns.length}><span class="hidden">Loading</span></td>
              </tr>`
            : html`<tr key=${rowKey(row)} aria-rowindex=${index + 2}><${Cells} columns=${columns} row=${row} /></tr>`;
        })}
        <${Gap} rows=${total - last} columns=${columns} />
      </tbody>
    </table>
  </div>`;
}

/** Stands for the rows that are not drawn. */
function Gap({ rows, columns }) {
  if (rows <= 0) return null;
  return html`<tr class="gap" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${rows * ROW}px` }}></td></tr>`;
}

/** The state of an order by columns: click again to turn it round. */
export function useSort(key, down = true) {
  const [sort, setSort] = useState({ key, down });
  const onSort = (chosen) =>
    setSort((was) => (was.key === chosen ? { key: chosen, down: !was.down } : { key: chosen, down: true }));
  return [sort, onSort];
}

/** Rows in the order of a column. */
export function ordered(rows, sort, value = (row, key) => row[key]) {
  const turn = sort.down ? -1 : 1;
  return [...rows].sort((one, other) => {
    const a = value(one, sort.key);
    const b = value(other, sort.key);
    if (a === b) return 0;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    return (a < b ? -1 : 1) * turn;
  });
}
