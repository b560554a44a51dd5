/** The lake: whether it fills, how far behind it is, and its report. */
import { get, mayEverywhere, post } from "../api.js";
import * as format from "../format.js";
import { useLoad } from "../hooks.js";
import { html } from "../lib.js";
import { plain } from "../json.js";
import { useLive } from "../live.js";
import { look, useStore } from "../store.js";
import { Ago, Do, Empty, Facts, Figure, Moment, Section, State, Waiting } from "../ui/bits.js";
import { say } from "../ui/notice.js";

export function Lake() {
  useLive({ limit: 1 });
  const none = useStore(look, (seen) => seen?.server && seen.lake === null);
  return none ? html`<${Without} />` : html`<${Within} />`;
}

function Without() {
  return html`<div class="page-head"><h1 tabindex="-1">Lake</h1></div>
    <${Empty} title="This server fills no lake.">
      <p>A lake keeps every job and event for good, as Delta tables that Spark, DuckDB and pandas read, and makes a report of them.</p>
      <pre class="sample">taskyard serve --lake DIRECTORY</pre>
    <//>`;
}

function Within() {
  const load = useLoad((signal) => get("lake", null, signal), ["lake"], 2000);
  if (load.error?.is?.("no-lake")) return html`<${Without} />`;
  if (load.data === null) return html`<div class="page-head"><h1 tabindex="-1">Lake</h1></div><${Waiting} load=${load} what="the lake" />`;
  const lake = load.data;
  return html`<div class="page-head">
      <h1 tabindex="-1">Lake</h1>
      <${State} state=${lake.running && !lake.error ? "succeeded" : "failed"} word=${lake.running ? "Running" : "Not running"} />
    </div>
    ${lake.error && html`<p class="callout" role="alert"><strong>It does not get on:</strong> ${format.visible(lake.error)}</p>`}
    <div class="figures" role="group" aria-label="Lag">
      <${Figure} label="Behind" value=${format.duration(plain(lake.lag_seconds))} hint="For how long the first record that it does not have is there" />
      <${Figure} label="Records behind" value=${format.count(lake.lag_records)} />
      <${Figure} label="Speed" value=${format.rate(plain(lake.events_per_second))} unit="/s" hint="Events a second, while it works" />
      <${Figure} label="Next record" value=${format.count(lake.next_seq)} />
    </div>
    <div class="columns">
      <${Report} lake=${lake} reload=${load.reload} />
      <${Section} title="The process">
        <${Facts} rows=${[
          ["State", format.visible(lake.state)],
          ["Process", lake.pid === null ? "–" : String(lake.pid)],
          ["Died and started again", format.plural(lake.restarts, "time")],
          ["Newest record it has", html`<${Moment} time=${lake.last_time} />`],
          ["Spark's own pages", lake.ui ? html`<a href=${lake.ui} rel="noreferrer" target="_blank">${lake.ui}</a>` : "–"],
        ]} />
      <//>
    </div>`;
}

function Report({ lake, reload }) {
  const make = async () => {
    await post("lake/report");
    say("The report is being made. That takes a minute or so.");
    await reload();
  };
  const { report } = lake;
  const failed = lake.report_error;
  const aside = html`<${Do} kind="small" run=${make} disabled=${Boolean(lake.making) || !mayEverywhere("admin")}>${lake.making ? "Being made …" : "Make one now"}<//>`;
  return html`<${Section} title="Report" aside=${aside}>
    ${failed && html`<p class="bad-text" role="alert">The last one could not be made: ${format.visible(failed)}</p>`}
    ${report
      ? html`<p><a class="button" href="lake/report" target="_blank" rel="noreferrer">Open the last report</a></p>
          <p class="faint">Made <${Ago} time=${report.made_at} />, ${format.bytes(report.bytes)}.</p>`
      : html`<p class="faint">${lake.making ? "The first report is being made." : "There is none yet. It shows throughput, waits, failures and the slowest jobs over all the time that the lake knows."}</p>`}
  <//>`;
}
