/** Dead letters of all queues by reason; groups or single ones are chosen, then replayed or purged. */
import { at, get, may, post } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { html, useState } from "../lib.js";
import { useLive } from "../live.js";
import { requery } from "../route.js";
import { look, useStore } from "../store.js";
import { Ago, Do, Empty, QueueLink, Section } from "../ui/bits.js";
import { confirm } from "../ui/dialog.js";
import { complain, say } from "../ui/notice.js";
import { Table } from "../ui/table.js";
import { errorText } from "../ui/timeline.js";
import { Letters } from "./dead_letters.js";

const QUEUES = 100; // with dead letters, those with most of them first
const AT_ONCE = 4;

/** The groups of some queues, a few calls at a time. */
async function groupsOf(names, signal) {
  const told = [];
  const left = [...names];
  const work = async () => {
    while (left.length) {
      const name = left.shift();
      try {
        told.push(await get(at`queues/${name}/dead`, null, signal));
      } catch (error) {
        if (error.status !== 404) throw error; // 404: the queue has just gone
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return told;
}

/** By reason, the largest first: [{reason, count, groups: [{queue, count, ...}]}]. */
function byReason(told) {
  const reasons = new Map();
  for (const queue of told) {
    for (const group of queue.groups) {
      const entry = reasons.get(group.reason) ?? { reason: group.reason, count: 0, groups: [], complete: true };
      entry.count += group.count;
      entry.complete &&= queue.complete;
      entry.groups.push({ ...group, queue: queue.queue, complete: queue.complete });
      reasons.set(group.reason, entry);
    }
  }
  const list = [...reasons.values()].sort((a, b) => b.count - a.count);
  for (const entry of list) entry.groups.sort((a, b) => b.count - a.count);
  return list;
}

export const groupKey = (queue, reason) => JSON.stringify([queue, reason]);

export function Dead({ query }) {
  const only = query.get("queue");
  useLive({ sort: "dead", limit: QUEUES, queue: only });
  const seen = useStore(look);
  const rows = seen === null ? null : deadRows(seen, only);
  const names = rows?.map((row) => row.name) ?? [];
  const stamp = rows?.map((row) => [row.name, row.dead]) ?? null;
  const load = useLoad((signal) => groupsOf(names, signal), [stamp?.length ? stamp : null]);
  const [groups, setGroups] = useState(new Map());
  const [letters, setLetters] = useState(new Map());
  const clear = () => {
    setGroups(new Map());
    setLetters(new Map());
  };
  const chosen = { groups, letters, setGroups, setLetters, clear };
  const [kept, setKept] = useState(null);
  if (load.data && load.data !== kept) setKept(load.data);
  const told = rows && !rows.length ? [] : (load.data ?? kept);
  const total = rows?.reduce((sum, row) => sum + row.dead, 0) ?? 0;
  return html`<div class="page-head">
      <h1 tabindex="-1">Dead letters</h1>
      <span class="faint tabular">${told && rows ? `${format.count(total)} in ${format.plural(rows.length, "queue")}` : ""}</span>
      ${only && html`<span class="chip">Queue ${format.visible(only)} <button type="button" class="plain" aria-label="Show all queues" onClick=${() => requery({})}>×</button></span>`}
    </div>
    ${told === null
      ? html`<div class="loading" role="status"><span class="hidden">Loading dead letters</span></div>`
      : told.length === 0 || total === 0
        ? html`<${Empty} title="No dead letters.">
            <p>A job that has failed for good and names no dead queue is kept here, until it is replayed or purged.</p>
          <//>`
        : byReason(told).map((entry) => html`<${Reason} key=${entry.reason} entry=${entry} chosen=${chosen} />`)}
    ${(groups.size > 0 || letters.size > 0) && html`<${Bar} chosen=${chosen} reload=${load.reload} />`}`;
}

function deadRows(seen, only) {
  const rows = seen.queues.shown.filter((row) => row.dead > 0 && (!only || row.name === only));
  if (only && !rows.length && seen.queue?.name === only && seen.queue.dead > 0) rows.push(seen.queue);
  return rows.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function Reason({ entry, chosen }) {
  const [open, setOpen] = useState(null);
  const keys = entry.groups.map((group) => groupKey(group.queue, entry.reason));
  const picked = keys.filter((key) => chosen.groups.has(key)).length;
  const turn = (list, on) => {
    const groups = new Map(chosen.groups);
    for (const group of list) {
      const key = groupKey(group.queue, entry.reason);
      if (on) groups.set(key, { queue: group.queue, reason: entry.reason, count: group.count, complete: group.complete });
      else groups.delete(key);
    }
    chosen.setGroups(groups);
  };
  const title = format.visible(entry.reason || "no reason given");
  const columns = [
    { key: "pick", label: "Select", quiet: true, kind: "pick", cell: (group) => html`<input type="checkbox"
        aria-label=${`Select all of ${group.queue}: ${title}`} checked=${chosen.groups.has(groupKey(group.queue, entry.reason))}
        onChange=${(event) => turn([group], event.target.checked)} />` },
    { key: "queue", label: "Queue", head: true, cell: (group) => html`<${QueueLink} name=${group.queue} />` },
    { key: "count", label: "Letters", number: true, cell: (group) => `${group.complete ? "" : "≥ "}${format.count(group.count)}` },
    { key: "last_at", label: "Last", number: true, wide: true, cell: (group) => html`<${Ago} time=${group.last_at} />` },
    { key: "last_error", label: "Last error", wide: true, kind: "grow", cell: (group) => html`<span class="cut">${group.last_error ? format.glance(group.last_error_line ?? errorText(group.last_error)) : "–"}</span>` },
    { key: "open", label: "Letters", quiet: true, cell: (group) => html`<button type="button" class="small" aria-expanded=${open === group.queue}
        aria-label=${`${open === group.queue ? "Hide" : "Show"} letters of ${group.queue}: ${title}`}
        onClick=${() => setOpen(open === group.queue ? null : group.queue)}>${open === group.queue ? "Hide" : "Show"}</button>` },
  ];
  const aside = html`<span class="faint tabular">${entry.complete ? "" : "at least "}${format.plural(entry.count, "letter")}</span>
    <label class="tick"><input type="checkbox" aria-label=${`Select all: ${title}`} checked=${picked === keys.length}
      indeterminate=${picked > 0 && picked < keys.length} onChange=${(event) => turn(entry.groups, event.target.checked)} /><span>All</span></label>`;
  return html`<${Section} title=${title} aside=${aside}>
    <${Table} label=${`Dead letters: ${title}`} columns=${columns} rows=${entry.groups} rowKey=${(group) => group.queue}
      after=${(group) => open === group.queue && html`<${Letters} queue=${group.queue} reason=${entry.reason} chosen=${chosen} />`} />
  <//>`;
}

/** Calls for what is chosen: whole groups by reason, single letters by their ids. */
function callsOf(chosen, action) {
  const calls = [...chosen.groups.values()].map((group) => ({
    queue: group.queue,
    body: action === "replay" ? { all: true, reason: group.reason } : { reason: group.reason },
  }));
  const ids = new Map();
  for (const letter of chosen.letters.values()) {
    if (chosen.groups.has(groupKey(letter.queue, letter.reason))) continue;
    ids.set(letter.queue, [...(ids.get(letter.queue) ?? []), letter.id]);
  }
  for (const [queue, list] of ids) calls.push({ queue, body: { ids: list } });
  return calls;
}

function Bar({ chosen, reload }) {
  const singles = [...chosen.letters.values()].filter((letter) => !chosen.groups.has(groupKey(letter.queue, letter.reason))).length;
  const whole = [...chosen.groups.values()];
  const count = whole.reduce((sum, group) => sum + group.count, singles);
  const open = whole.some((group) => !group.complete);
  const words = `${open ? "at least " : ""}${format.plural(count, "dead letter")}`;
  const queues = new Set([...whole, ...chosen.letters.values()].map((one) => one.queue)).size;

  const act = async (action) => {
    const replay = action === "replay";
    const yes = await confirm({
      title: replay ? `Replay ${words}?` : `Purge ${words}?`,
      text: replay
        ? `They become ready again in ${format.plural(queues, "queue")}, with their attempts and failures counted from zero.`
        : `They are removed for good from ${format.plural(queues, "queue")}, with payload and error. This cannot be undone.`,
      action: replay ? "Replay" : "Purge",
      danger: !replay,
    });
    if (!yes) return;
    let done = 0;
    let skipped = 0;
    try {
      for (const call of callsOf(chosen, action)) {
        const answer = await post(at`queues/${call.queue}/dead/${action}`, call.body);
        done += replay ? answer.replayed : answer.removed;
        skipped += answer.skipped.length;
      }
      const rest = skipped ? `, ${format.count(skipped)} were no longer there` : "";
      say(`${replay ? "Replayed" : "Purged"} ${format.plural(done, "dead letter")}${rest}.`);
      chosen.clear();
    } catch (error) {
      complain(`${replay ? "Replayed" : "Purged"} ${format.plural(done + (error.done ?? 0), "dead letter")}, then: ${error.message}`);
    }
    await reload();
  };
  return html`<div class="selection" role="region" aria-label="Selection">
    <span class="tabular"><strong>${format.count(count)}</strong> selected</span>
    <${Do} kind="primary" disabled=${!may("admin")} run=${() => act("replay")}>Replay …<//>
    <${Do} kind="danger" disabled=${!may("admin")} run=${() => act("purge")}>Purge …<//>
    <button type="button" onClick=${chosen.clear}>Clear</button>
  </div>`;
}
