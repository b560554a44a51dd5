/** Search: by id or uid, name, queue and state. The server looks at a bounded number a call. */
import { get } from "../api.js";
import * as format from "../format.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { requery, to } from "../route.js";
import { Empty, Failed, QueueLink, Section, STATES } from "../ui/bits.js";
import { Choice, Field, useForm } from "../ui/form.js";
import { JobTable } from "../ui/jobs.js";

const PAGE = 100;
const CALLS = 25; // that are made by themselves before one is asked to go on
const CHOICES = [["", "any"], ...["ready", "leased", "delayed", "blocked", "limited", "succeeded", "failed"].map((state) => [state, STATES[state]])];
const FIELDS = ["q", "queue", "name", "state"];

/** Looks on until a page is full, the end is reached or enough calls were made. */
async function lookOn(asked, from, signal, tell) {
  const found = { jobs: [...from.jobs], looked: from.looked, next: from.next };
  for (let call = 0; call < CALLS; call += 1) {
    const page = await get("jobs", { ...asked, limit: PAGE, cursor: found.next }, signal);
    found.jobs.push(...page.jobs);
    found.looked += page.looked_at ?? 0;
    found.next = page.next;
    if (found.next === null || found.jobs.length - from.jobs.length >= PAGE) break;
    tell({ ...found });
  }
  return found;
}

const NOTHING = { jobs: [], looked: 0, next: null };

export function Search({ query }) {
  const asked = Object.fromEntries(FIELDS.map((name) => [name, query.get(name) ?? ""]));
  const key = JSON.stringify(asked);
  const form = useForm(asked);
  const [state, setState] = useState({ found: null, boxes: null, busy: false, error: null });
  const own = useRef(null);
  const some = FIELDS.some((name) => asked[name]);

  const search = async (from) => {
    own.current?.abort();
    const control = new AbortController();
    own.current = control;
    setState((was) => ({ ...was, busy: true, error: null, found: from === NOTHING ? null : was.found }));
    try {
      const wide = from === NOTHING && asked.q ? get("search", { q: asked.q, limit: 50 }, control.signal) : null;
      const found = await lookOn(asked, from, control.signal, (part) => setState((was) => ({ ...was, found: part })));
      const boxes = wide ? await wide : null;
      setState((was) => ({ found, boxes: boxes ?? was.boxes, busy: false, error: null }));
    } catch (error) {
      if (!control.signal.aborted) setState((was) => ({ ...was, busy: false, error }));
    }
  };
  useEffect(() => {
    for (const name of FIELDS) form.set(name, asked[name]);
    if (some) search(NOTHING);
    else setState({ found: null, boxes: null, busy: false, error: null });
    return () => own.current?.abort();
  }, [key]);

  const send = (event) => {
    event.preventDefault();
    requery(Object.fromEntries(FIELDS.map((name) => [name, form.values[name].trim()])));
  };
  return html`<div class="page-head"><h1 tabindex="-1">Search</h1></div>
    <form class="panel search-form" role="search" aria-label="Jobs" onSubmit=${send}>
      <${Field} label="Id or uid" name="q" form=${form} hint="Of a job; also text in a queue's name" />
      <${Field} label="Queue" name="queue" form=${form} hint="Its whole name" />
      <${Field} label="Name" name="name" form=${form} hint="What the job runs; the beginning" />
      <${Choice} label="State" name="state" form=${form} options=${CHOICES} />
      <button type="submit" class="primary">Search</button>
    </form>
    ${state.error && html`<${Failed} error=${state.error} />`}
    ${state.boxes && html`<${Places} found=${state.boxes} />`}
    ${some && html`<${Found} state=${state} more=${() => search(state.found)} />`}
    ${!some && html`<${Empty} title="Find jobs in any queue."><p>Jobs that ended a short while ago are found by their id; older ones are in the lake.</p><//>`}`;
}

function Places({ found }) {
  const queues = found.queues ?? [];
  const names = found.names ?? [];
  const schedules = found.schedules ?? [];
  if (!queues.length && !names.length && !schedules.length) return null;
  const word = (item) => (typeof item === "string" ? item : item.name);
  return html`<${Section} title="Queues, names and schedules">
    ${queues.length > 0 && html`<p class="finds"><span class="finds-kind">Queues</span>${queues.map((item) => html`<${QueueLink} key=${word(item)} name=${word(item)} />`)}</p>`}
    ${names.length > 0 && html`<p class="finds"><span class="finds-kind">Names</span>${names.map((item) => html`<a class="name" key=${word(item)} href=${to("search", { name: word(item) })}>${format.visible(word(item))}</a>`)}</p>`}
    ${schedules.length > 0 && html`<p class="finds"><span class="finds-kind">Schedules</span>${schedules.map((item) => html`<a class="name" key=${word(item)} href=${to("schedules", { match: word(item) })}>${format.visible(word(item))}</a>`)}</p>`}
  <//>`;
}

function Found({ state, more }) {
  const { found, busy } = state;
  const looked = found?.looked ? `${format.count(found.looked)} looked at` : "";
  const aside = html`<span class="faint tabular" role="status">${busy ? "Looking … " : ""}${looked}</span>`;
  return html`<${Section} title="Jobs" aside=${aside}>
    ${found?.jobs.length
      ? html`<${JobTable} label="Jobs found" jobs=${found.jobs} />`
      : busy
        ? html`<div class="loading"></div>`
        : html`<${Empty} title=${found?.next ? "None among those that were looked at." : "No job fits."} />`}
    ${found?.next && html`<div class="pager"><button type="button" disabled=${busy} onClick=${more}>Look further</button></div>`}
  <//>`;
}
