/* Drawing the graph. From afar, edges and nodes are rows of pixels in a layer of their own, many times faster than a call
 * for each; near by they are lines and boxes with names. Only what is in sight is drawn.
 */
const NEAR = 0.34;
const canvas = element("canvas", { className: "picture grow", tabIndex: 0, role: "application", "aria-label": "Graph of instructions. Arrow up and down go to operands and users, left and right to neighbours, Enter unfolds a call", "aria-describedby": "graph-keys" });
const view = { x: 0, y: 0, scale: 1 };
const shown = { hovered: -1, matches: null, colours: null, path: null, drawn: 0 };
const minimap = element("canvas", { className: "minimap", "aria-hidden": "true" });
const layer = { canvas: document.createElement("canvas"), image: null, pixels: null };

const screenX = (x) => (x - view.x) * view.scale;
const screenY = (y) => (y - view.y) * view.scale;
const isMatched = (node) => !shown.matches || shown.matches[scene.instruction[node]];

function draw() {
  if (canvas.clientWidth === 0) return;
  const c = context(canvas);
  shown.drawn = 0;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (view.scale < NEAR) drawFar(c, width, height);
  else drawNear(c, width, height);
  drawChosen(c);
  drawMinimap(width, height);
}

/* The whole graph in the corner, as wide as it is high there, with the part that is in sight. */
function drawMinimap(width, height) {
  const isWhole = scene.width * view.scale < 1.6 * width && scene.height * view.scale < 1.6 * height;
  minimap.hidden = isWhole;
  if (isWhole) return;
  const c = context(minimap);
  const [w, h] = [minimap.clientWidth, minimap.clientHeight];
  const [sx, sy] = [w / scene.width, h / scene.height];
  if (minimap.key !== scene.key || minimap.look !== shown.colours || minimap.image?.width !== minimap.width) {
    Object.assign(minimap, { key: scene.key, look: shown.colours });
    for (let v = 0; v < scene.x.length; v++) {
      if (scene.frame[v]) continue;
      c.fillStyle = fillOf(v);
      c.fillRect(scene.x[v] * sx, scene.y[v] * sy, Math.max(1, scene.w[v] * sx), Math.max(1, scene.h[v] * sy));
    }
    minimap.image = c.getImageData(0, 0, minimap.width, minimap.height);
  } else c.putImageData(minimap.image, 0, 0);
  const [x, y] = [Math.max(0, view.x * sx), Math.max(0, view.y * sy)];
  c.strokeStyle = theme.accent;
  c.lineWidth = 1.5;
  const right = Math.min(w, (view.x + width / view.scale) * sx);
  const bottom = Math.min(h, (view.y + height / view.scale) * sy);
  c.strokeRect(x + 1, y + 1, Math.max(4, right - x - 2), Math.max(4, bottom - y - 2));
}

/* The nodes that meet the window; frames come before what is in them. */
function visible(width, height) {
  const [x0, y0, x1, y1] = [view.x, view.y, view.x + width / view.scale, view.y + height / view.scale];
  const found = [];
  const { x, y, w, h } = scene;
  for (let v = 0; v < x.length; v++) if (x[v] <= x1 && x[v] + w[v] >= x0 && y[v] <= y1 && y[v] + h[v] >= y0) found.push(v);
  return found;
}

function drawFar(c, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  const layerContext = layer.canvas.getContext("2d");
  if (!layer.image || layer.image.width !== w || layer.image.height !== h) {
    [layer.canvas.width, layer.canvas.height] = [w, h];
    layer.image = layerContext.createImageData(w, h);
    layer.pixels = new Uint32Array(layer.image.data.buffer);
  }
  const { pixels } = layer;
  pixels.fill(0);
  const scale = view.scale * ratio;
  const edge = packed(theme["strong-line"], 0.8);
  for (let e = 0; e < scene.edgeFrom.length; e++) {
    if (isLong(e)) continue;
    const [a, b] = [scene.edgeFrom[e], scene.edgeTo[e]];
    const y0 = (scene.y[a] + scene.h[a] - view.y) * scale;
    const y1 = (scene.y[b] - view.y) * scale;
    if (Math.max(y0, y1) < 0 || Math.min(y0, y1) > h) continue;
    let px = (scene.x[a] + scene.w[a] / 2 - view.x) * scale;
    let py = y0;
    const bends = scene.bends[e];
    for (let k = 0; bends && k < bends.length; k += 2) {
      const [nx, ny] = [(bends[k] - view.x) * scale, (bends[k + 1] - view.y) * scale];
      pixelLine(pixels, w, h, px, py, nx, ny, edge);
      [px, py] = [nx, ny];
    }
    pixelLine(pixels, w, h, px, py, (scene.x[b] + scene.w[b] / 2 - view.x) * scale, y1, edge);
  }
  const frame = packed(theme.ground, 1);
  for (const v of visible(width, height)) {
    const colour = scene.frame[v] ? frame : packed(fillOf(v), isMatched(v) ? 1 : theme.dim);
    const left = Math.max(0, Math.round((scene.x[v] - view.x) * scale));
    const top = Math.max(0, Math.round((scene.y[v] - view.y) * scale));
    const right = Math.min(w, Math.max(left + 2, Math.round((scene.x[v] + scene.w[v] - view.x) * scale)));
    const bottom = Math.min(h, Math.max(top + 2, Math.round((scene.y[v] + scene.h[v] - view.y) * scale)));
    for (let row = top; row < bottom; row++) pixels.fill(colour, row * w + left, row * w + right);
    shown.drawn += 1;
  }
  layerContext.putImageData(layer.image, 0, 0);
  c.drawImage(layer.canvas, 0, 0, width, height);
}

/* A line of single pixels, as far as it is inside. */
function pixelLine(pixels, w, h, x0, y0, x1, y1, colour) {
  const steps = Math.ceil(Math.max(Math.abs(x1 - x0), Math.abs(y1 - y0)));
  if (steps === 0) return;
  const [dx, dy] = [(x1 - x0) / steps, (y1 - y0) / steps];
  let first = 0;
  let last = steps;
  const bound = (start, delta, limit) => {
    if (delta === 0) return start >= 0 && start < limit;
    const [a, b] = [(0 - start) / delta, (limit - 1 - start) / delta];
    first = Math.max(first, Math.ceil(Math.min(a, b)));
    last = Math.min(last, Math.floor(Math.max(a, b)));
    return true;
  };
  if (!bound(x0, dx, w) || !bound(y0, dy, h)) return;
  for (let k = first; k <= last; k++) pixels[Math.round(y0 + k * dy) * w + Math.round(x0 + k * dx)] = colour;
}

function drawNear(c, width, height) {
  const nodes = visible(width, height);
  // Frames lie below edges, all else above.
  for (const v of nodes) if (scene.frame[v]) drawFrame(c, v);
  c.lineWidth = 1;
  c.strokeStyle = theme["strong-line"];
  c.beginPath();
  const control = [];
  const long = [];
  for (let e = 0; e < scene.edgeFrom.length; e++) {
    if (!edgeInSight(e, width, height)) continue;
    if (scene.control[e]) control.push(e);
    else if (isLong(e)) long.push(e);
    else traceEdge(c, e);
  }
  c.stroke();
  c.setLineDash([2, 3]);
  c.beginPath();
  for (const e of long) traceStubs(c, e);
  c.stroke();
  c.setLineDash([4, 3]);
  c.beginPath();
  for (const e of control) traceEdge(c, e);
  c.stroke();
  c.setLineDash([]);
  for (const v of nodes) if (!scene.frame[v]) drawNode(c, v);
  shown.drawn = nodes.length;
}

function edgeInSight(e, width, height) {
  const [a, b] = [scene.edgeFrom[e], scene.edgeTo[e]];
  const [y0, y1] = [screenY(scene.y[a] + scene.h[a]), screenY(scene.y[b])];
  if (Math.max(y0, y1) < 0 || Math.min(y0, y1) > height) return false;
  if (scene.bends[e]) return true;
  const [x0, x1] = [screenX(scene.x[a] + scene.w[a] / 2), screenX(scene.x[b] + scene.w[b] / 2)];
  return Math.max(x0, x1) >= 0 && Math.min(x0, x1) <= width;
}

/* Edges that pass many layers would hide all else: they are drawn as they leave and as they arrive. */
const STUB = 34;
const isLong = (e) => !scene.bends[e] && scene.y[scene.edgeTo[e]] - scene.y[scene.edgeFrom[e]] - scene.h[scene.edgeFrom[e]] > 700;

function traceStubs(c, e) {
  const [a, b] = [scene.edgeFrom[e], scene.edgeTo[e]];
  const [x0, y0] = [screenX(scene.x[a] + scene.w[a] / 2), screenY(scene.y[a] + scene.h[a])];
  const [x1, y1] = [screenX(scene.x[b] + scene.w[b] / 2), screenY(scene.y[b])];
  const lean = Math.sign(x1 - x0) * 6 * view.scale;
  c.moveTo(x0, y0);
  c.lineTo(x0 + lean, y0 + STUB * view.scale);
  c.moveTo(x1, y1);
  c.lineTo(x1 - lean, y1 - STUB * view.scale);
}

function traceEdge(c, e) {
  const [a, b] = [scene.edgeFrom[e], scene.edgeTo[e]];
  let x = screenX(scene.x[a] + scene.w[a] / 2);
  let y = screenY(scene.y[a] + scene.h[a]);
  c.moveTo(x, y);
  const to = (nx, ny) => {
    const middle = (ny - y) / 2;
    c.bezierCurveTo(x, y + middle, nx, ny - middle, nx, ny);
    [x, y] = [nx, ny];
  };
  const bends = scene.bends[e];
  for (let k = 0; bends && k < bends.length; k += 2) to(screenX(bends[k]), screenY(bends[k + 1]));
  to(screenX(scene.x[b] + scene.w[b] / 2), screenY(scene.y[b]));
}

function fillOf(v) {
  const i = scene.instruction[v];
  return shown.colours.fill(i);
}

function drawFrame(c, v) {
  const [x, y, w, h] = [screenX(scene.x[v]), screenY(scene.y[v]), scene.w[v] * view.scale, scene.h[v] * view.scale];
  c.fillStyle = theme.ground;
  c.strokeStyle = theme.curve;
  c.lineWidth = 1.2;
  c.beginPath();
  c.roundRect(x, y, w, h, 6);
  c.fill();
  c.stroke();
  c.fillStyle = theme.ink;
  c.font = `600 ${Math.max(8, 11.5 * view.scale)}px ${FONT}`;
  c.textBaseline = "middle";
  const i = scene.instruction[v];
  c.fillText(clip(`▾ ${ins.name(i)} ${ins.opcode(i)}`, Math.floor(scene.w[v] / 7.4)), x + 8 * view.scale, y + 13 * view.scale);
}

function drawNode(c, v) {
  const i = scene.instruction[v];
  const s = view.scale;
  const [x, y, w, h] = [screenX(scene.x[v]), screenY(scene.y[v]), scene.w[v] * s, scene.h[v] * s];
  c.globalAlpha = isMatched(v) ? 1 : theme.dim;
  c.fillStyle = fillOf(v);
  c.beginPath();
  c.roundRect(x, y, w, h, 5 * s);
  c.fill();
  if (isCall(i)) {
    c.strokeStyle = theme.curve;
    c.lineWidth = 1.5;
    c.stroke();
  }
  if (s > 0.4) {
    c.fillStyle = shown.colours.ink(i);
    c.textBaseline = "middle";
    c.font = `600 ${11 * s}px ${FONT}`;
    const letters = Math.floor((scene.w[v] - PADDING) / LETTER);
    if (isPick(i)) {
      c.fillText(pickLabel(i), x + 5 * s, y + h / 2);
      c.globalAlpha = 1;
      return;
    }
    c.fillText(clip(`${isCall(i) ? "▸ " : ""}${ins.name(i)}`, letters), x + 6 * s, y + h / 2 - 7 * s);
    c.font = `${10.5 * s}px ${FONT}`;
    c.globalAlpha *= 0.85;
    c.fillText(clip(aboutNode(i), letters + 1), x + 6 * s, y + h / 2 + 8 * s);
  }
  c.globalAlpha = 1;
}

/* The selected node with its edges, a path, and what is hovered. */
function drawChosen(c) {
  const chosen = scene.nodeOf.get(selection.instruction) ?? -1;
  const trace = (edges, colour) => {
    c.strokeStyle = colour;
    c.lineWidth = 2;
    c.beginPath();
    edges.forEach((e) => traceEdge(c, e));
    c.stroke();
  };
  const edgesWhere = (wanted) => scene.edgeFrom.flatMap((_, e) => (wanted(e) ? [e] : []));
  if (chosen >= 0) {
    trace(edgesWhere((e) => scene.edgeTo[e] === chosen), theme.peak);
    trace(edgesWhere((e) => scene.edgeFrom[e] === chosen), theme.accent);
  }
  const outline = (v, colour, thick) => {
    c.strokeStyle = colour;
    c.lineWidth = thick;
    c.beginPath();
    c.roundRect(screenX(scene.x[v]) - 2, screenY(scene.y[v]) - 2, scene.w[v] * view.scale + 4, scene.h[v] * view.scale + 4, 5);
    c.stroke();
  };
  if (shown.matches && scene.instruction.length < 30000) {
    scene.instruction.forEach((i, v) => {
      if (shown.matches[i]) outline(v, theme.accent, 1);
    });
  }
  if (shown.hovered >= 0) outline(shown.hovered, theme.ink, 1.5);
  if (chosen >= 0) outline(chosen, theme.accent, 3);
  const start = scene.nodeOf.get(shown.pathStart ?? -1);
  if (start !== undefined) outline(start, theme.peak, 2.5);
}

/* The innermost node at a point. */
function nodeAt(px, py) {
  const [x, y] = [view.x + px / view.scale, view.y + py / view.scale];
  const slack = 2 / view.scale;
  let best = -1;
  for (let v = 0; v < scene.x.length; v++) {
    const hit = x >= scene.x[v] - slack && x <= scene.x[v] + scene.w[v] + slack && y >= scene.y[v] - slack && y <= scene.y[v] + scene.h[v] + slack;
    if (hit && (best < 0 || scene.w[v] * scene.h[v] <= scene.w[best] * scene.h[best])) best = v;
  }
  return best;
}
