(function () {
  "use strict";
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const ids = Object.keys(plots);
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

  // The scale of times is logarithmic; a heat map's values are logarithms already.
  const seconds = { type: "log", minor: { nticks: 0 },
    tickvals: [0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 21600, 86400, 604800],
    ticktext: ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d",
      "7 d"] };

  // What all plots of a kind have in common.
  function template(theme) {
    const axis = { gridcolor: theme.grid, linecolor: theme.grid, zerolinecolor: theme.grid,
      automargin: true };
    return {
      layout: {
        margin: { l: 8, r: 8, t: 36, b: 8 }, xaxis: axis, yaxis: axis,
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: "system-ui, sans-serif", size: 12, color: theme.ink },
        hoverlabel: { bgcolor: theme.surface, bordercolor: theme.grid, font: { color: theme.ink },
          namelength: -1 },
        legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" }
      },
      data: { heatmap: [{ xgap: 1, ygap: 2, colorbar: { thickness: 10, outlinewidth: 0 } }] }
    };
  }

  function draw(id, theme, width) {
    const plot = plots[id];
    const data = paint(plot.data, theme, "");
    const layout = Object.assign({ height: 300, xaxis: {}, template: template(theme) },
      paint(plot.layout || {}, theme, ""));
    const map = data[0] && data[0].type === "heatmap" ? data[0] : null;
    if (plot.names) {
      layout.height = 90 + 28 * Math.max(2, plot.names.length);
      layout.yaxis = { type: "category", autorange: "reversed", tickvals: plot.names,
        ticktext: small.matches ? plot.narrow : plot.names };
    }
    if (map) {
      layout.margin = { l: 8, r: 8, t: 8, b: 8 };
      layout.xaxis.showgrid = layout.yaxis.showgrid = false;
    }
    if (plot.seconds === "z") map.colorbar = { tickvals: seconds.tickvals.map(Math.log10),
      ticktext: seconds.ticktext };
    else if (plot.seconds) layout[plot.seconds + "axis"] = Object.assign({}, seconds);
    if (plot.open) {
      const at = data[0].x[data[0].x.length - 1];
      layout.shapes = [{ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1,
        line: { color: theme.others, width: 1, dash: "dot" } }];
      layout.annotations = [{ x: at, yref: "paper", y: 1, xanchor: "right", yanchor: "top",
        showarrow: false, text: "not over yet", font: { color: theme.others, size: 11 } }];
    }
    if (width) layout.width = width;
    layout.dragmode = coarse.matches ? false : "zoom";
    if (small.matches) {
      if (map) {
        map.colorbar = Object.assign({ orientation: "h", y: 1, yanchor: "bottom" }, map.colorbar,
          { thickness: 8 });
        layout.margin.t = 44; layout.height += 36;
      }
      if (layout.yaxis && layout.yaxis.title) delete layout.yaxis.title;
    }
    // Not react: a colour bar that is turned would stay where it was, too.
    return Plotly.newPlot(id, data, layout, { displayModeBar: false, responsive: true });
  }

  function drawAll(theme, width) {
    for (const id of ids) draw(id, theme, width);
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
    if (next === ids.length) {
      document.documentElement.dataset.drawn = String(next);
      return;
    }
    draw(ids[next++], now());
    window.setTimeout(step, 0);
  })();
})();
