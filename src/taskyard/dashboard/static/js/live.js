/**
 * The stream of looks at the server: one connection, whatever page is shown.
 *
 * It is opened again with growing pauses when it is lost, and closed while nobody sees the page: a
 * browser has few connections for one server, and each open tab would hold one of them.
 */
import { askSession } from "./api.js";
import { useEffect } from "./lib.js";
import { asQuery } from "./route.js";
import { link, look, session } from "./store.js";

const LONGEST_PAUSE = 15_000;
const SILENCE = 10_000; // a stream that says nothing for so long is dead
const ASLEEP_AFTER = 20_000;

let source = null;
let former = null; // the one before, while the new one has said nothing
let wanted = { sort: "ready", limit: 10 };
let opened = "";
let failures = 0;
let retryTimer = 0;
let silenceTimer = 0;
let sleepTimer = 0;
let reopenTimer = 0;
let latest = null;
let frame = 0;
let epoch = null;

export function start() {
  document.addEventListener("visibilitychange", seen);
  addEventListener("online", retryNow);
  open();
}

/** Until somebody has logged in. */
export function stop() {
  close();
  clearTimeout(retryTimer);
  link.update({ state: "starting" });
}

/** Another user sees other queues. */
export function restart() {
  clearTimeout(retryTimer);
  look.set(null);
  link.update({ again: link.value.again + 1 });
  open();
}

/** Try now, not after the pause. */
export function retryNow() {
  if (source !== null) return;
  clearTimeout(retryTimer);
  open();
}

/** The stream before this one goes on until the first look is here, so that no figure is missing. */
function open() {
  if (session.value?.needs_login) return close();
  former?.close();
  former = source;
  opened = asQuery(wanted);
  const own = new EventSource(`api/v1/live${opened}`);
  const asked = wanted;
  source = own;
  own.addEventListener("look", (event) => take(event, own, asked));
  own.addEventListener("error", () => source === own && lost());
  listenFor();
  return undefined;
}

function close() {
  source?.close();
  former?.close();
  source = former = null;
  clearTimeout(silenceTimer);
}

function listenFor() {
  clearTimeout(silenceTimer);
  silenceTimer = setTimeout(lost, SILENCE);
}

function take(event, from, asked) {
  if (from === source) {
    former?.close();
    former = null;
    listenFor();
  }
  latest = { ...JSON.parse(event.data), asked };
  if (link.value.state !== "open") arrived();
  if (document.hidden) return show();
  if (frame === 0) frame = requestAnimationFrame(show);
}

function show() {
  frame = 0;
  const started = latest.server?.epoch ?? null;
  if (epoch !== null && started !== epoch) link.update({ again: link.value.again + 1 });
  epoch = started;
  look.set(latest);
}

function arrived() {
  const before = link.value;
  failures = 0;
  const again = before.state === "lost" || before.state === "asleep" ? before.again + 1 : before.again;
  link.set({ state: "open", retryAt: 0, again, why: "" });
  // While it was being opened, the page may have come to want something else.
  if (asQuery(wanted) !== opened) open();
}

function lost() {
  close();
  const pause = Math.min(LONGEST_PAUSE, 1000 * 2 ** failures) * (0.8 + Math.random() * 0.4);
  failures = Math.min(failures + 1, 6);
  link.update({ state: "lost", retryAt: Date.now() + pause });
  clearTimeout(retryTimer);
  retryTimer = setTimeout(open, pause);
  askSession(); // perhaps we are no longer logged in
}

function seen() {
  clearTimeout(sleepTimer);
  if (document.hidden) {
    sleepTimer = setTimeout(fallAsleep, ASLEEP_AFTER);
  } else if (link.value.state === "asleep") {
    open();
  } else if (link.value.state === "lost") {
    retryNow();
  }
}

function fallAsleep() {
  close();
  clearTimeout(retryTimer);
  link.update({ state: "asleep" });
}

/** What the page that is shown wants to see of the queues. */
export function want(params) {
  wanted = params;
  if (asQuery(wanted) === opened) return;
  clearTimeout(reopenTimer);
  reopenTimer = setTimeout(() => {
    if (asQuery(wanted) !== opened && link.value.state === "open") open();
  }, 120);
}

/** Say from within a page what it wants to see. */
export function useLive(params) {
  const key = asQuery(params);
  useEffect(() => want(params), [key]);
}
