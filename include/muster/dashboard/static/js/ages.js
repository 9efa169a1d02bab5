/**
 * Ages on the page that grow by themselves: "Stable for 3 min", "read 2 s ago".
 *
 * Moments are by the server's clock, so the difference to this machine's is taken off (api.js sets it).
 */

import { ago, calm, moment } from "./format.js";
import { h, setText } from "./dom.js";

let skew = 0;

/** @param {number} serverNow seconds since the epoch, by the server's clock, at this moment */
export function setServerClock(serverNow) {
  skew = serverNow - Date.now() / 1000;
}

/** Now, by the server's clock, in seconds since the epoch. */
export function now() {
  return Date.now() / 1000 + skew;
}

/**
 * An element that says how long ago `at` was.
 * @param {number | null | undefined} at
 * @param {"ago" | "for"} [as] "3 min ago", or the bare duration "3 min"
 */
export function age(at, as = "ago") {
  if (at === null || at === undefined) return h("span", { text: "–" });
  const element = h("time", {
    datetime: new Date(at * 1000).toISOString(), title: moment(at), data: { since: String(at), as },
  });
  write(element);
  return element;
}

/** Write every age on the page again. */
export function growAges() {
  for (const element of document.querySelectorAll("time[data-since]")) write(/** @type {HTMLElement} */ (element));
}

/** @param {HTMLElement} element */
function write(element) {
  const at = Number(element.dataset.since);
  setText(element, element.dataset.as === "for" ? calm(Math.max(0, now() - at)) : ago(at, now()));
}
