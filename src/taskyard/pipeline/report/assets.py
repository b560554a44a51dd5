"""The style sheet and the script of a report."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark;
  --ink: #1b2027; --muted: #5a6470; --page: #f4f6f9; --card: #ffffff; --line: #dfe4ea;
  --accent: #2f66c9; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e7ebf0; --muted: #9aa5b1; --page: #101419; --card: #181e25; --line: #2c3540;
  --accent: #86adff; --bad: #ff8a7a; } }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
header, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .25rem; }
h3 { font-size: 1rem; margin: 0; }
p { margin: .25rem 0; overflow-wrap: anywhere; }
.muted, footer { color: var(--muted); }
a { color: var(--accent); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .75rem 0; }
.cards { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr));
  margin: 1rem 0; padding: 0; list-style: none; }
.cards li, figure, .out { background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; padding: .8rem 1rem; min-width: 0; }
.cards span { display: block; color: var(--muted); font-size: .85rem; overflow-wrap: anywhere; }
.cards strong { display: block; font-size: 1.5rem; line-height: 1.3; font-weight: 650;
  overflow-wrap: anywhere; }
.cards .bad strong { color: var(--bad); }
.out h2 { margin: 0; font-size: 1.05rem; }
.out { border-left: .3rem solid var(--bad); }
.out.fine { border-left-color: var(--accent); }
.out ul { margin: .25rem 0 0; padding-left: 1.2rem; }
.out li { overflow-wrap: anywhere; }
.grid { display: grid; gap: .75rem; grid-template-columns: minmax(0, 1fr); margin-top: .75rem; }
@media (min-width: 68rem) { .grid.two { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
figure { margin: 0; }
.plot { min-height: 4rem; margin-top: .25rem; }
.scroll { overflow-x: auto; max-height: 26rem; overflow-y: auto; }
.scroll:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; width: 100%; font-size: .85rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
th { color: var(--muted); font-weight: 600; white-space: nowrap; background: var(--card);
  position: sticky; top: 0; }
td.n, th.n { text-align: right; white-space: nowrap; }
tbody th { color: var(--ink); font-weight: 500; position: static; white-space: normal;
  overflow-wrap: anywhere; min-width: 8rem; max-width: 30rem; }
details { margin-top: .4rem; }
summary { cursor: pointer; color: var(--accent); font-size: .85rem; }
footer { padding: 2rem 1rem; font-size: .85rem; }
@media (max-width: 40rem) { header, main, footer { padding-left: .6rem; padding-right: .6rem; }
  .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .5rem; }
  .cards li, figure, .out { padding: .6rem .7rem; } .cards strong { font-size: 1.2rem; } }
@media print { :root { --ink: #000; --muted: #444; --page: #fff; --card: #fff; --line: #ccc;
  --accent: #2f66c9; --bad: #b3261e; }
  body { font-size: 10pt; } nav, details { display: none; }
  header, main, footer { max-width: none; padding: 0; }
  .grid.two { grid-template-columns: minmax(0, 1fr); }
  table { font-size: .7rem; } th, td, td.n, th.n { padding: .2rem .3rem; white-space: normal; }
  tbody th { min-width: 0; }
  .scroll { max-height: none; overflow: visible; }
  .cards { grid-template-columns: repeat(3, 1fr); }
  figure, .cards li, .out, tr { break-inside: avoid; } h2 { break-after: avoid; } }
"""

SCRIPT: Final = """
(function () {
  "use strict";
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const themes = {
    light: { ink: "#1b2027", grid: "#e3e7ec", surface: "#ffffff", blue: "#2f66c9",
      blueish: "rgba(47,102,201,.18)", teal: "#12897a", red: "#c4331f", amber: "#e09a2b",
      p50: "#94b7f2", p95: "#3b70d6", p99: "#15387f", others: "#9aa3ad",
      series0: "#3b6fd4", series1: "#e0812b", series2: "#1d9a8a", series3: "#b9509e",
      series4: "#b8921a", series5: "#6f5fc6",
      warm: [[0, "#fdf3e4"], [0.5, "#ef9f4e"], [1, "#8a2b0a"]],
      cool: [[0, "#eef3fb"], [0.5, "#7ba4e6"], [1, "#123a80"]] },
    dark: { ink: "#e7ebf0", grid: "#2c3540", surface: "#222a33", blue: "#7aa5ff",
      blueish: "rgba(122,165,255,.2)", teal: "#4fcbb9", red: "#ff7a66", amber: "#f0b45a",
      p50: "#4a72c4", p95: "#86adff", p99: "#dbe7ff", others: "#7d8590",
      series0: "#7aa5ff", series1: "#f5a35c", series2: "#4fcbb9", series3: "#e08acb",
      series4: "#dfc04e", series5: "#a99cf2",
      warm: [[0, "#2a2016"], [0.5, "#b5651d"], [1, "#ffd9a8"]],
      cool: [[0, "#18212d"], [0.5, "#3f6fc4"], [1, "#dbe8ff"]] }
  };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)");
  const small = window.matchMedia("(max-width: 40rem)");

  // Only what stands where a colour does is a name of one: texts may begin with @ too.
  function paint(value, theme, key) {
    if (Array.isArray(value)) return key === "colorscale" ? value : value.map(function (each) {
      return each !== null && typeof each === "object" ? paint(each, theme, "") : each; });
    if (value !== null && typeof value === "object") {
      const made = {};
      for (const name of Object.keys(value)) made[name] = paint(value[name], theme, name);
      return made;
    }
    if (typeof value === "string" && /color(scale)?$/.test(key) && value[0] === "@")
      return theme[value.slice(1)];
    return value;
  }

  function draw(plot, theme, width) {
    const layout = paint(plot.layout, theme, "");
    if (width) layout.width = width;
    layout.dragmode = coarse.matches ? false : "zoom";
    const data = paint(plot.data, theme, "");
    if (small.matches) {
      if (plot.narrow) layout.yaxis.ticktext = plot.narrow;
      for (const trace of data) if (trace.colorbar) {
        trace.colorbar.orientation = "h";
        trace.colorbar.y = 1; trace.colorbar.yanchor = "bottom";
        trace.colorbar.thickness = 8; layout.margin.t = 44; layout.height += 36;
      }
      if (layout.yaxis.title) delete layout.yaxis.title;
    }
    // Not react: a colour bar that is turned would stay where it was, too.
    return Plotly.newPlot(plot.id, data, layout, { displayModeBar: false, responsive: true });
  }

  function drawAll(theme, width) {
    for (const plot of plots) draw(plot, theme, width);
  }

  function now() { return dark.matches ? themes.dark : themes.light; }

  dark.addEventListener("change", function () { drawAll(now()); });
  small.addEventListener("change", function () { drawAll(now()); });
  window.addEventListener("beforeprint", function () {
    drawAll(themes.light, 660); // as wide as a sheet of paper lets it be
  });
  window.addEventListener("afterprint", function () {
    drawAll(now());
  });

  // One after the other, so that the page can be read and scrolled meanwhile.
  let next = 0;
  (function step() {
    if (next === plots.length) {
      document.documentElement.dataset.drawn = String(next);
      return;
    }
    draw(plots[next++], now());
    window.setTimeout(step, 0);
  })();
})();
"""
