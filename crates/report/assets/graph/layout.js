/* Laying a directed graph out in layers, from top to bottom, in time nearly linear in its size.
 *
 * Nodes get a layer below all that they read, as near to their readers as shortens edges; edges over several layers are
 * led through places of their own where there are not too many; neighbours are brought one above another by sweeps over
 * the layers; then each layer is moved to where its neighbours are, keeping the order (a least-squares fit by pooling).
 */
const GAP_X = 16;
const GAP_Y = 40;
const WIDEST = 6000;
const LONGEST = 24;
const BEND = 10;
/* So many nodes that nothing but themselves feeds may hang together and be moved as one. */
const SMALL_CONE = 16;

/* `width` and `height` by node, `from` and `to` by edge. Returns the left and top of each node, the bends of each edge
 * (as a list of x and y, or null), and the size of the whole. */
function layered(width, height, from, to) {
  const n = width.length;
  const rank = ranks(n, from, to);
  const layers = splitWide(rank, width);
  const graph = withBends(n, width, rank, layers, from, to);
  order(graph, layers);
  const x = coordinates(graph, layers);
  const top = new Float64Array(layers.length);
  let y = 0;
  layers.forEach((layer, l) => {
    top[l] = y;
    y += layer.reduce((most, v) => (v < n ? Math.max(most, height[v]) : most), 12) + GAP_Y + Math.min(60, 1.2 * Math.sqrt(layer.length) * 4);
  });
  return place(n, width, height, rank, graph, x, top, y);
}

/* Lists of neighbours, one after another. */
function neighbours(n, from, to) {
  const start = new Int32Array(n + 1);
  for (const v of from) start[v + 1] += 1;
  for (let v = 0; v < n; v++) start[v + 1] += start[v];
  const next = start.slice();
  const list = new Int32Array(from.length);
  for (let e = 0; e < from.length; e++) list[next[from[e]]++] = to[e];
  return { start, list };
}

function ranks(n, from, to) {
  const down = neighbours(n, from, to);
  const missing = new Int32Array(n);
  for (const v of to) missing[v] += 1;
  const indegree = missing.slice();
  const rank = new Int32Array(n);
  // How many nodes a node is made of at most, itself included.
  const cone = new Float64Array(n).fill(1);
  const sequence = [];
  for (let v = 0; v < n; v++) if (missing[v] === 0) sequence.push(v);
  for (let k = 0; k < sequence.length; k++) {
    const v = sequence[k];
    for (let e = down.start[v]; e < down.start[v + 1]; e++) {
      const w = down.list[e];
      rank[w] = Math.max(rank[w], rank[v] + 1);
      cone[w] += cone[v];
      if (--missing[w] === 0) sequence.push(w);
    }
  }
  // A node with no more operands than readers goes down to its readers: that makes no edge longer in sum. So does what is
  // made of a few parameters and constants only, which follow it.
  for (let k = sequence.length - 1; k >= 0; k--) {
    const v = sequence[k];
    const outdegree = down.start[v + 1] - down.start[v];
    if (outdegree === 0 || (outdegree < indegree[v] && cone[v] > SMALL_CONE)) continue;
    let least = Infinity;
    for (let e = down.start[v]; e < down.start[v + 1]; e++) least = Math.min(least, rank[down.list[e]]);
    rank[v] = Math.max(rank[v], least - 1);
  }
  return rank;
}

/* The nodes of each layer; layers that are too wide become several, which no edge minds. Ranks are renumbered. */
function splitWide(rank, width) {
  const byRank = [];
  rank.forEach((r, v) => (byRank[r] ??= []).push(v));
  const layers = [];
  for (const nodes of byRank) {
    if (!nodes) continue;
    let wide = Infinity;
    for (const v of nodes) {
      if (wide > WIDEST) {
        layers.push([]);
        wide = 0;
      }
      wide += width[v] + GAP_X;
      layers.at(-1).push(v);
      rank[v] = layers.length - 1;
    }
  }
  return layers;
}

/* Adds a node without height to each layer that an edge passes, if there is room for all of those. */
function withBends(n, width, rank, layers, from, to) {
  const widths = Array.from(width);
  const spans = from.map((v, e) => rank[to[e]] - rank[v]);
  let least = LONGEST;
  const counts = new Int32Array(LONGEST + 1);
  for (const s of spans) if (s <= LONGEST) counts[s] += Math.max(0, s - 1);
  // The longest edges go first where there would be too many bends.
  let total = counts.reduce((a, b) => a + b, 0);
  while (least > 1 && total > 3 * n + 3000) total -= counts[least--];
  const parts = { from: [], to: [] };
  const chains = from.map((v, e) => {
    if (spans[e] <= 1 || spans[e] > least) {
      parts.from.push(v);
      parts.to.push(to[e]);
      return null;
    }
    const chain = [];
    let before = v;
    for (let l = rank[v] + 1; l < rank[to[e]]; l++) {
      const bend = widths.length;
      widths.push(BEND);
      layers[l].push(bend);
      parts.from.push(before);
      parts.to.push(bend);
      chain.push([bend, l]);
      before = bend;
    }
    parts.from.push(before);
    parts.to.push(to[e]);
    return chain;
  });
  const all = widths.length;
  return { n, count: all, width: widths, chains, up: neighbours(all, parts.to, parts.from), down: neighbours(all, parts.from, parts.to), edges: { from, to } };
}

/* Sorts each layer by the middle of its neighbours in the layers before, then in those after, a few times. */
function order(graph, layers) {
  const position = new Float64Array(graph.count);
  const number = (layer) => layer.forEach((v, k) => (position[v] = k - layer.length / 2));
  layers.forEach(number);
  const key = new Float64Array(graph.count);
  const sweep = (layer, { start, list }) => {
    for (const v of layer) {
      let sum = 0;
      for (let e = start[v]; e < start[v + 1]; e++) sum += position[list[e]];
      const many = start[v + 1] - start[v];
      key[v] = many ? sum / many : position[v];
    }
    layer.sort((a, b) => key[a] - key[b] || position[a] - position[b]);
    number(layer);
  };
  const sweeps = graph.count > 60000 ? 2 : 6;
  for (let k = 0; k < sweeps; k++) {
    for (let l = 1; l < layers.length; l++) sweep(layers[l], graph.up);
    for (let l = layers.length - 2; l >= 0; l--) sweep(layers[l], graph.down);
  }
}

/* The middle of each node: near the middle of its neighbours, in the order of its layer, none over another. */
function coordinates(graph, layers) {
  const x = new Float64Array(graph.count);
  const offset = new Float64Array(graph.count);
  for (const layer of layers) {
    let at = 0;
    layer.forEach((v, k) => {
      if (k) at += (graph.width[layer[k - 1]] + graph.width[v]) / 2 + (v < graph.n || layer[k - 1] < graph.n ? GAP_X : 2);
      offset[v] = at;
    });
    layer.forEach((v) => (x[v] = offset[v] - at / 2));
  }
  const settle = (layer, lists) => {
    const wanted = layer.map((v) => {
      let sum = 0;
      let many = 0;
      for (const { start, list } of lists) {
        for (let e = start[v]; e < start[v + 1]; e++) sum += x[list[e]];
        many += start[v + 1] - start[v];
      }
      return (many ? sum / many : x[v]) - offset[v];
    });
    pooled(wanted).forEach((shift, k) => (x[layer[k]] = shift + offset[layer[k]]));
  };
  const sweeps = graph.count > 60000 ? 2 : 5;
  for (let k = 0; k < sweeps; k++) {
    for (let l = 1; l < layers.length; l++) settle(layers[l], [graph.up]);
    for (let l = layers.length - 2; l >= 0; l--) settle(layers[l], [graph.down]);
  }
  for (const layer of layers) settle(layer, [graph.up, graph.down]);
  return x;
}

/* The numbers nearest to `wanted` that do not decrease: neighbours that would are pooled. */
function pooled(wanted) {
  const sums = [];
  const counts = [];
  for (const w of wanted) {
    let sum = w;
    let many = 1;
    while (sums.length && sums.at(-1) / counts.at(-1) > sum / many) {
      sum += sums.pop();
      many += counts.pop();
    }
    sums.push(sum);
    counts.push(many);
  }
  return sums.flatMap((sum, k) => new Array(counts[k]).fill(sum / counts[k]));
}

function place(n, width, height, rank, graph, x, top, totalHeight) {
  let left = Infinity;
  let right = -Infinity;
  for (let v = 0; v < graph.count; v++) {
    left = Math.min(left, x[v] - graph.width[v] / 2);
    right = Math.max(right, x[v] + graph.width[v] / 2);
  }
  if (n === 0) [left, right] = [0, 0];
  const lefts = new Float64Array(n);
  const tops = new Float64Array(n);
  for (let v = 0; v < n; v++) {
    lefts[v] = x[v] - width[v] / 2 - left;
    tops[v] = top[rank[v]];
  }
  const bends = graph.chains.map((chain) => chain && chain.flatMap(([v, l]) => [x[v] - left, top[l] + 12]));
  return { left: lefts, top: tops, bends, width: right - left, height: Math.max(0, totalHeight - GAP_Y) };
}
