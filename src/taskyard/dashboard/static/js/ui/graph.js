/** Who waits for whom, as a small drawing: blockers on the left, dependents on the right. */
import { glance, plural, visible } from "../format.js";
import { html, useMemo } from "../lib.js";
import { to } from "../route.js";
import { STATES } from "./bits.js";

const BOX = { width: 132, height: 44, across: 36, down: 12 };

/** Columns by the longest way from a job without blockers; rows in the order they come. */
function layout(nodes, edges) {
  const level = new Map(nodes.map((node) => [String(node.id), 0]));
  for (let round = 0; round < nodes.length; round += 1) {
    let moved = false;
    for (const [from, dependent] of edges) {
      const least = (level.get(String(from)) ?? 0) + 1;
      if (level.has(String(dependent)) && level.get(String(dependent)) < least && least <= nodes.length) {
        level.set(String(dependent), least);
        moved = true;
      }
    }
    if (!moved) break;
  }
  const filled = new Map();
  const places = new Map();
  for (const node of nodes) {
    const column = level.get(String(node.id));
    const row = filled.get(column) ?? 0;
    filled.set(column, row + 1);
    places.set(String(node.id), { column, row });
  }
  const columns = Math.max(...filled.keys()) + 1;
  const rows = Math.max(...filled.values());
  for (const place of places.values()) {
    const spare = rows - filled.get(place.column);
    place.x = place.column * (BOX.width + BOX.across) + 1;
    place.y = (place.row + spare / 2) * (BOX.height + BOX.down) + 1;
  }
  return {
    places,
    width: columns * (BOX.width + BOX.across) - BOX.across + 2,
    height: rows * (BOX.height + BOX.down) - BOX.down + 2,
  };
}

export function Graph({ graph, here }) {
  const plan = useMemo(() => layout(graph.nodes, graph.edges), [graph]);
  const lines = graph.edges.filter(([from, dependent]) => plan.places.has(String(from)) && plan.places.has(String(dependent)));
  return html`<div class="scroller" tabindex="0" role="region" aria-label="Blockers and dependents, scrollable">
      <svg class="graph" width=${plan.width} height=${plan.height} viewBox=${`0 0 ${plan.width} ${plan.height}`}
        role="group" aria-label=${`${plural(graph.nodes.length, "job")} that wait for each other`}>
        ${lines.map(([from, dependent]) => html`<path key=${`${from}-${dependent}`} class="edge" d=${curve(plan, from, dependent)} />`)}
        ${graph.nodes.map((node) => html`<${Box} key=${String(node.id)} node=${node} place=${plan.places.get(String(node.id))} here=${String(node.id) === String(here)} />`)}
      </svg>
    </div>
    ${graph.cut && html`<p class="faint">There are more: only those nearest to this job are drawn.</p>`}`;
}

function curve(plan, from, dependent) {
  const a = plan.places.get(String(from));
  const b = plan.places.get(String(dependent));
  const [x1, y1, x2, y2] = [a.x + BOX.width, a.y + BOX.height / 2, b.x, b.y + BOX.height / 2];
  const half = Math.max(20, (x2 - x1) / 2);
  return `M${x1},${y1} C${x1 + half},${y1} ${x2 - half},${y2} ${x2},${y2}`;
}

function Box({ node, place, here }) {
  const state = STATES[node.state] ?? node.state;
  return html`<a href=${to("jobs", node.id)} aria-current=${here ? "true" : undefined}>
    <title>${visible(node.name)}</title>
    <rect class=${`node node-${node.state}${here ? " here" : ""}`} x=${place.x} y=${place.y} width=${BOX.width} height=${BOX.height} rx="5" />
    <text x=${place.x + 10} y=${place.y + 18} class="node-name">${glance(node.name, 16)}</text>
    <text x=${place.x + 10} y=${place.y + 34} class="node-state">${`${node.id} · ${state}`}</text>
  </a>`;
}
