/** The page: starts everything, and shows what the address names. */
import { askSession } from "./api.js";
import { html, render, useEffect, useLayoutEffect, useRef } from "./lib.js";
import * as live from "./live.js";
import { Dead } from "./pages/dead.js";
import { Job } from "./pages/job.js";
import { Lake } from "./pages/lake.js";
import { Limits } from "./pages/limits.js";
import { Login } from "./pages/login.js";
import { Overview } from "./pages/overview.js";
import { Queue } from "./pages/queue.js";
import { Queues } from "./pages/queues.js";
import { Schedules } from "./pages/schedules.js";
import { Search } from "./pages/search.js";
import { Server } from "./pages/server.js";
import { Workers } from "./pages/workers.js";
import { listen, route } from "./route.js";
import { session, useStore } from "./store.js";
import { Questions } from "./ui/dialog.js";
import { Empty } from "./ui/bits.js";
import { Shortcuts, useKeys } from "./ui/keys.js";
import { LinkBar, Shell } from "./ui/shell.js";
import { Notices } from "./ui/notice.js";

const PAGES = {
  "": ["Overview", Overview],
  queues: ["Queues", Queues],
  jobs: ["Job", Job],
  dead: ["Dead letters", Dead],
  workers: ["Workers", Workers],
  schedules: ["Schedules", Schedules],
  limits: ["Limits", Limits],
  lake: ["Lake", Lake],
  server: ["Server", Server],
  search: ["Search", Search],
  login: ["Log in", Login],
};

function chosen(path) {
  const [first = "", second] = path;
  if (first === "queues" && second !== undefined) return [second, Queue];
  if (first === "jobs" && second !== undefined) return [`Job ${second}`, Job];
  return Object.hasOwn(PAGES, first) ? PAGES[first] : ["Not found", Missing];
}

function Missing() {
  return html`<div class="page-head"><h1 tabindex="-1">Not found</h1></div>
    <${Empty} title="There is no such page."><a href="#/">Go to the overview</a><//>`;
}

function App() {
  const now = useStore(route);
  const who = useStore(session);
  const [title, Page] = chosen(now.path);
  const page = now.path.join("/");
  useEffect(() => {
    document.title = `${title} · Taskyard`;
  }, [title]);
  useFocusOnHeading(page);
  useKeys();
  if (who?.needs_login || page === "login") {
    return html`<${LinkBar} /><${Login} /><${Notices} />`;
  }
  return html`<${Shell} at=${now.path[0] ?? ""}>
      <${Page} key=${page} path=${now.path} query=${now.query} />
    <//>
    <${Questions} /><${Shortcuts} /><${Notices} />`;
}

/** A new page begins at its heading, for keyboards and for screen readers. */
function useFocusOnHeading(page) {
  const before = useRef(page);
  useLayoutEffect(() => {
    if (before.current === page) return;
    before.current = page;
    scrollTo(0, 0);
    document.querySelector("main h1")?.focus({ preventScroll: true });
  }, [page]);
}

listen();
let user; // undefined until the server has said who we are
session.watch((who) => {
  const before = user;
  user = who.user;
  if (who.needs_login) live.stop();
  else if (before !== undefined && before !== user) live.restart();
});
const root = document.getElementById("app");
askSession().finally(() => {
  root.replaceChildren();
  render(html`<${App} />`, root);
  live.start();
});
