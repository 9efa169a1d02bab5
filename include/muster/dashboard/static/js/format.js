/** Numbers, durations and moments, for people. Times are seconds, moments seconds since the epoch. */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** @param {number | null | undefined} value @returns {string} "1,234", or "–" when unknown */
export function number(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/** @param {number} least @param {number} most @returns {string} "7 to 8", or "7" when they are the same */
export function span(least, most) {
  return least === most ? number(least) : `${number(least)} to ${number(most)}`;
}

/** @param {number | null | undefined} value @returns {string} "1.2K", or "–" when unknown */
export function short(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 1000 ? whole.format(value) : compact.format(value);
}

/** @param {number | null | undefined} perSecond records a second @returns {string} "120/s", or "–" */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  if (perSecond > 0 && perSecond < 9.95) return `${perSecond.toFixed(1)}/s`;
  return `${short(Math.round(perSecond))}/s`;
}

/** @param {number} value @returns {string} "4.1 MB" */
export function bytes(value) {
  const unit = value < 1e6 ? 0 : value < 1e9 ? 1 : 2;
  return `${(value / 1000 ** (unit + 1)).toFixed(1)} ${["kB", "MB", "GB"][unit]}`;
}

/** @param {number | null | undefined} seconds @returns {string} two units at most: "3 min 20 s", or "–" */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${(Math.floor(seconds * 10) / 10).toFixed(1)} s`;
  const total = Math.floor(seconds);
  if (total < 60) return `${total} s`;
  const units = /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]);
  const first = units.findIndex(([, size]) => total >= size);
  const [name, size] = units[first];
  const [nextName, nextSize] = units[first + 1];
  const rest = Math.floor((total % size) / nextSize);
  return `${Math.floor(total / size)} ${name}${rest ? ` ${rest} ${nextName}` : ""}`;
}

/** @param {Behind} behind @returns {string} how long it takes to catch up */
export function catchUp({ catch_up: seconds, never, age }) {
  if (never) return "does not catch up";
  return !age || seconds === null || seconds < 1 ? "" : `caught up in ${calm(seconds)}`;
}

/** As `duration`, without what flickers: whole seconds. @param {number | null | undefined} seconds */
export function calm(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  return duration(seconds < 60 ? Math.floor(seconds) || 0 : seconds).replace(/^0 ms$/, "0 s").replace(/\.0 s$/, " s");
}

/** @param {number | null | undefined} moment @param {number} now @returns {string} "3 min 20 s ago", or "never" */
export function ago(moment, now) {
  if (moment === null || moment === undefined) return "never";
  const seconds = now - moment;
  return seconds < 2 ? "just now" : `${calm(seconds)} ago`;
}

/** @param {number | null | undefined} moment @returns {string} the local date and time: "2026-11-22 07:01:09" */
export function moment(moment) {
  if (moment === null || moment === undefined) return "–";
  const date = new Date(moment * 1000);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${clock(moment)}`;
}

/** @param {number} moment @returns {string} the local time of day: "07:01:09" */
export function clock(moment) {
  const date = new Date(moment * 1000);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/**
 * @param {number} count @param {string} one @param {string} [many] one with an s
 * @returns {string} "1 partition", "12 partitions"
 */
export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

/** @param {number[]} sorted partition numbers, ascending @returns {string} runs put together: "0-3, 7" */
export function ranges(sorted) {
  const parts = [];
  for (let i = 0; i < sorted.length; i += 1) {
    const from = sorted[i];
    while (i + 1 < sorted.length && sorted[i + 1] === sorted[i] + 1) i += 1;
    const to = sorted[i];
    parts.push(from === to ? `${from}` : `${from}-${to}`);
  }
  return parts.join(", ");
}
