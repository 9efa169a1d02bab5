/** The small parts that pages are put together from. All are plain elements, to be patched in (patch.js). */

import { h } from "./dom.js";
import { bytes, calm, catchUp, number, plural } from "./format.js";
import { href } from "./router.js";
import { look, PARTITION_ORDER, PARTITION_STATES, sign, word } from "./states.js";

/** @typedef {import("./dom.js").Child} Child */

/** A sign beside words, for the eye. @param {string} text */
export function mark(text) {
  return h("span", { class: "sign", "aria-hidden": "true", text });
}

/** @param {string} cluster @param {string | null} consumer @returns {HTMLElement | string} */
export function consumerLink(cluster, consumer) {
  return consumer === null ? "no consumer" : h("a", { href: href(cluster, "consumers", consumer), text: consumer });
}

/** @param {string} cluster @param {string} topic */
export function topicLink(cluster, topic) {
  return h("a", { href: href(cluster, "topics", topic), text: topic });
}

/**
 * A state as a chip: colour, sign and word.
 * @param {string} state @param {string} [text] instead of the state's own word
 */
export function chip(state, text = word(state)) {
  return h("span", { class: `chip ${look(state)}` }, mark(sign(state)), text);
}

/**
 * A section with a heading.
 * @param {string} title @param {{note?: Child, actions?: Child[], class?: string, key?: string}} more
 * @param {...(Child | Child[])} children
 */
export function panel(title, more, ...children) {
  return h(
    "section",
    { class: `panel ${more.class ?? ""}`.trim(), data: { key: more.key ?? title } },
    h(
      "header",
      { class: "panel-head" },
      h("h2", { text: title }),
      more.note ? h("p", { class: "note" }, more.note) : null,
      more.actions?.length ? h("div", { class: "actions" }, more.actions) : null,
    ),
    ...children,
  );
}

/**
 * One figure with its name.
 * @param {string} name @param {Child} value @param {Child} [below]
 */
export function figure(name, value, below) {
  return h(
    "div", { class: "figure", data: { key: name } },
    h("dt", { text: name }),
    h("dd", {}, h("span", { class: "value" }, value), below ? h("span", { class: "below" }, below) : null),
  );
}

/** Seconds behind from which it is said for how long Kafka keeps what is unread. */
const MENTIONED = 60;

/**
 * What is said below how far behind in time something is.
 * @param {Behind} behind @param {number | null} [most] what the settings allow
 */
export function below(behind, most = null) {
  const late = most !== null && behind.age !== null && behind.age > most;
  const kept = behind.kept === null || !(behind.near || (behind.age ?? 0) >= MENTIONED) ? "" : `kept for ${calm(behind.kept)} at least`;
  const parts = [late ? h("b", { class: "off", text: `max_lag is ${calm(most)}` }) : most === null ? "" : `max_lag is ${calm(most)}`,
    catchUp(behind), behind.near ? h("b", { class: "off", text: kept }) : kept].filter(Boolean);
  return parts.length ? h("span", {}, parts.flatMap((part, i) => (i ? [", ", part] : [part]))) : "";
}

/** How much state there is. @param {ShardEntry[]} shards @returns {[string, string]} "12 keys", "4.1 MB" */
export function holds(shards) {
  const sum = (/** @type {(one: ShardEntry) => number} */ of) => shards.reduce((total, one) => total + of(one), 0);
  return [plural(sum((one) => one.keys), "key"), bytes(sum((one) => one.bytes))];
}

/** @param {...Child} figures */
export function figures(...figures) {
  return h("dl", { class: "figures" }, ...figures);
}

/**
 * How many are in each state, as a bar and in words.
 * @param {Record<string, number>} counts by state @param {string} what "partitions"
 */
export function stateBar(counts, what) {
  const there = PARTITION_ORDER.filter((state) => counts[state]);
  const total = there.reduce((sum, state) => sum + counts[state], 0);
  const words = there.map((state) => `${number(counts[state])} ${word(state)}`).join(", ");
  return h(
    "span", { class: "state-bar", role: "img", "aria-label": `${what}: ${words || "none"}`, title: words },
    there.map((state) => h("span", { class: look(state), style: { "flex-grow": String(counts[state] / total) } })),
  );
}

/** The same in words, with a sign each. @param {Record<string, number>} counts */
export function stateWords(counts) {
  return h(
    "span", { class: "state-words" },
    PARTITION_ORDER.filter((state) => counts[state]).map((state) => h(
      "span", { class: look(state), data: { key: state } },
      h("b", { text: number(counts[state]) }), ` ${word(state)}`,
    )),
  );
}

/** What the letters and colours of the matrix mean. */
export function legend() {
  const entries = PARTITION_ORDER.map((letter) => PARTITION_STATES[letter]);
  return h(
    "ul", { class: "legend", "aria-label": "What the letters mean" },
    entries.map((one) => h(
      "li", { title: one.means }, h("span", { class: `swatch is-${one.look}`, "aria-hidden": "true", text: one.letter }), one.name,
    )),
    h("li", { title: "a person fixed it to this consumer" }, h("span", { class: "swatch is-running pinned", "aria-hidden": "true", text: "R" }), "pinned"),
    h("li", { title: "who is to have it next" }, h("span", { class: "swatch to-have", "aria-hidden": "true", text: "→" }), "to have it next"),
    h("li", { title: "ready to take it over" }, h("span", { class: "swatch standby", "aria-hidden": "true", text: "s" }), "standby"),
  );
}

/**
 * Nothing to show, and what to do about it.
 * @param {string} what @param {...Child} next
 */
export function empty(what, ...next) {
  return h("div", { class: "empty" }, h("p", { class: "what", text: what }), next.length ? h("p", {}, ...next) : null);
}

/**
 * A message across the page.
 * @param {"critical" | "warning" | "info" | "paused"} level @param {string} key @param {...Child} children
 */
export function banner(level, key, ...children) {
  const signs = { critical: "✕", warning: "▲", info: "i", paused: "‖" };
  return h(
    "div", { class: `banner ${level}`, data: { key } },
    mark(signs[level]), h("div", {}, ...children),
  );
}

/** Partition numbers in words. @param {[number, number][]} pairs @returns {string} "partitions 0-3, 7" */
export function partitions(pairs) {
  const count = pairs.reduce((sum, [first, last]) => sum + last - first + 1, 0);
  return `${count === 1 ? "partition" : "partitions"} ${pairText(pairs)}`;
}

/** @param {[number, number][]} pairs @returns {string} "0-3, 7" */
export function pairText(pairs) {
  return pairs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}

/** What a consumer is waited for, or what is not read where it is no consumer. @param {WaitingEntry} one @returns {string} "is to close partition 3" */
export function lacking(one) {
  if (!one.consumer) return one.partitions.length ? `no progress in ${partitions(one.partitions)}` : "no progress";
  if (one.phase === "answer") return "is to say what it holds";
  if (one.offset !== null) return `is to get past offset ${one.offset} of ${partitions(one.partitions)}`;
  const phase = { progress: "make progress on", finish: "finish its batch with", restore: "restore the state of" }[one.phase] ?? one.phase;
  return `is to ${phase} ${partitions(one.partitions)}`;
}

/** Who decided something, when and why. @param {{by: string, at: number | null, why: string}} said @param {Child} when */
export function saidBy(said, when) {
  return h("span", { class: "said" }, h("q", { text: said.why || "no reason given" }), " ", h("span", { class: "muted" }, `${said.by || "no name given"}, `, when));
}

/**
 * A button that does something (actions.js), with what it needs.
 * @param {string} label @param {string} action @param {Record<string, string>} [needs]
 * @param {{kind?: "plain" | "danger" | "primary" | "small", whyNot?: string, name?: string}} [more]
 *   `whyNot`: it cannot be used now; `name` for screen readers where the label alone does not say enough
 */
export function button(label, action, needs = {}, more = {}) {
  return h("button", {
    type: "button", class: `button ${more.kind ?? "plain"}`, text: label,
    "aria-label": more.name, "aria-disabled": more.whyNot ? "true" : null, title: more.whyNot,
    data: { action, needs: JSON.stringify(needs), ...(more.whyNot ? { whyNot: more.whyNot } : {}) },
  });
}

