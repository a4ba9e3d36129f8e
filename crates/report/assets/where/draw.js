/* A tree as a flame graph (rows from the top down) or as a treemap (boxes in boxes). Both give the boxes that they drew, so
 * that a point finds its node; what is narrower than a pixel is not drawn.
 */
const FLAME_ROW = 23;
const HEADER = 19;

/* A number for a name that stays the same whatever else is there. */
function hashed(name) {
  let h = 2166136261;
  for (let k = 0; k < Math.min(name.length, 200); k++) h = Math.imul(h ^ name.charCodeAt(k), 16777619);
  return (h >>> 0) % PALETTE;
}

function drawNode(c, box, words, isMatched) {
  const { x, y, width, height, node } = box;
  c.globalAlpha = isMatched ? 1 : theme.dim * 1.6;
  c.fillStyle = node.name === UNKNOWN ? theme.fills[PALETTE] : theme.fills[hashed(stem(node.name))];
  c.fillRect(x, y, Math.max(1, width - 1), height - 1);
  if (width < 26) return;
  c.globalAlpha = isMatched ? 1 : 0.5;
  c.fillStyle = theme["box-ink"];
  const letters = Math.floor((width - 10) / 7);
  const name = clip(node.name, letters);
  c.fillText(name, x + 5, y + Math.min(height, FLAME_ROW) / 2);
  const used = c.measureText(name).width;
  const value = words(node.value);
  if (width - used - 24 > value.length * 7) {
    c.globalAlpha *= 0.75;
    c.fillText(value, x + 12 + used, y + Math.min(height, FLAME_ROW) / 2);
  }
}

/* How deep a tree is below a node, as far as it is drawn. */
function height(node) {
  let deepest = 0;
  const stack = [[node, 0]];
  while (stack.length) {
    const [at, depth] = stack.pop();
    deepest = Math.max(deepest, depth);
    for (const child of at.sorted) {
      if (child.value < node.value / 1500) break;
      stack.push([child, depth + 1]);
    }
  }
  return deepest;
}

/* The ancestors of the focus fill the width; below it, each child has its share. */
function flameBoxes(focus, width, height) {
  const boxes = [];
  const ancestors = focus.path.slice(0, -1);
  ancestors.forEach((node, row) => boxes.push({ node, x: 0, y: row * FLAME_ROW, width, height: FLAME_ROW }));
  const stack = [{ node: focus, x: 0, width, row: ancestors.length }];
  while (stack.length) {
    const { node, x, width: wide, row } = stack.pop();
    const y = row * FLAME_ROW;
    if (y > height) continue;
    boxes.push({ node, x, y, width: wide, height: FLAME_ROW });
    let at = x;
    for (const child of node.sorted) {
      const share = (wide * child.value) / node.value;
      if (share < 0.7) break;
      stack.push({ node: child, x: at, width: share, row: row + 1 });
      at += share;
    }
  }
  return boxes;
}

/* Rows of boxes as square as can be, one node inside another. */
function treemapBoxes(focus, width, height) {
  const boxes = [];
  const stack = [{ node: focus, x: 0, y: 0, width, height, level: 0 }];
  while (stack.length) {
    const box = stack.pop();
    boxes.push(box);
    const { node, level } = box;
    // A chain of single children is one box: its end is what tells.
    const hasHead = box.height > HEADER * 2 && box.width > 40;
    const inner = { x: box.x + 2, y: box.y + (hasHead ? HEADER : 2), width: box.width - 5, height: box.height - (hasHead ? HEADER + 3 : 5) };
    if (node.children.size === 0 || level > 24 || inner.width < 6 || inner.height < 6) continue;
    for (const placed of squarified(node, inner)) stack.push({ ...placed, level: level + 1 });
  }
  return boxes;
}

function squarified(node, area) {
  const placed = [];
  let { x, y, width, height } = area;
  const scale = (width * height) / node.value;
  const children = node.sorted;
  let k = 0;
  while (k < children.length && width > 2 && height > 2) {
    const side = Math.min(width, height);
    let sum = 0;
    let last = k;
    let worst = Infinity;
    while (last < children.length) {
      const size = children[last].value * scale;
      const next = sum + size;
      const thick = next / side;
      const ratio = Math.max((children[k].value * scale) / thick ** 2, thick ** 2 / size);
      if (last > k && ratio > worst) break;
      worst = ratio;
      sum = next;
      last += 1;
    }
    const thick = sum / side;
    if (thick < 1) break;
    let along = 0;
    for (; k < last; k++) {
      const length = (children[k].value * scale) / thick;
      placed.push(width < height ? { node: children[k], x: x + along, y, width: length, height: thick } : { node: children[k], x, y: y + along, width: thick, height: length });
      along += length;
    }
    if (width < height) [y, height] = [y + thick, height - thick];
    else [x, width] = [x + thick, width - thick];
  }
  return placed;
}
