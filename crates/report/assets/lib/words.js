/* Numbers in words, the same in all views. */
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const POWERS = ["", " k", " M", " G", " T", " P", " E"];

/* Three digits and a unit. */
function scaled(n, base, units) {
  let unit = 0;
  // Half a digit below the next unit is written in it: 999,999 is 1.00 M and not 1000 k.
  while (n >= base - 0.5 && unit + 1 < units.length) {
    n /= base;
    unit += 1;
  }
  const digits = unit === 0 ? 0 : n < 9.995 ? 2 : n < 99.95 ? 1 : 0;
  return [n.toFixed(digits), units[unit]];
}

function bytes(n) {
  return scaled(n, 1024, UNITS).join(" ");
}

/* With the exact number where it says more. */
function exactBytes(n) {
  return n < 1024 || !Number.isSafeInteger(n) ? bytes(n) : `${bytes(n)} (${n.toLocaleString("en")} bytes)`;
}

const big = (n) => scaled(n, 1000, POWERS).join("");
const exact = (n) => n.toLocaleString("en");
const count = (n, word) => `${exact(n)} ${word}${n === 1 ? "" : "s"}`;

/* Microseconds as they are read most easily. */
function duration(us) {
  if (us === 0) return "0 µs";
  const [n, unit] = us < 1 ? [us * 1e3, "ns"] : us < 1e3 ? [us, "µs"] : us < 1e6 ? [us / 1e3, "ms"] : [us / 1e6, "s"];
  return `${n.toFixed(n < 9.995 ? 2 : n < 99.95 ? 1 : 0)} ${unit}`;
}

function percent(part, whole) {
  if (!(whole > 0)) return "";
  const p = (100 * part) / whole;
  return p === 0 ? "0 %" : p < 0.1 ? "< 0.1 %" : `${p.toFixed(p < 9.95 ? 1 : 0)} %`;
}

const clip = (word, letters) => (word.length <= letters ? word : `${word.slice(0, Math.max(0, letters - 1))}…`);

/* The first index of a sorted list at which the value is more than x. */
function bisect(list, x) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] > x) high = middle;
    else low = middle + 1;
  }
  return low;
}
