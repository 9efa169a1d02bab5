/** The states of partitions, topics, consumers and clusters: their names, letters and looks. */

/**
 * @typedef {object} Look
 * @property {string} name in words
 * @property {string} look the CSS class `is-[look]`, which has the colour and pattern
 * @property {string} letter
 * @property {string} means
 */

/** By letter, worst first. @type {Record<string, Look>} */
export const PARTITION_STATES = {
  U: { name: "unassigned", look: "unassigned", letter: "U", means: "without an owner" },
  K: { name: "parked", look: "parked", letter: "K", means: "held by its owner and not read: a person is to say what becomes of the record that holds it up, or where its state goes on" },
  "?": { name: "unknown", look: "unknown", letter: "?", means: "has an owner who cannot be asked or is not live" },
  C: { name: "closing", look: "closing", letter: "C", means: "taken from an owner who has not let go of it yet" },
  T: { name: "restoring", look: "restoring", letter: "T", means: "its owner restores its state by key, and does not read it yet" },
  S: { name: "starting", look: "starting", letter: "S", means: "has an owner who does not report it running yet" },
  H: { name: "paused", look: "paused", letter: "H", means: "held by its owner and not read: a person paused its consumption" },
  R: { name: "running", look: "running", letter: "R", means: "its owner reports it running" },
};

/** The letters, best first: the order of filters, bars and the legend. */
export const PARTITION_ORDER = Object.keys(PARTITION_STATES).reverse();

/** @type {Record<string, string>} */
const LOOKS = {
  // topics
  Stable: "running", Starting: "starting", Closing: "closing", Initial: "starting", Unreadable: "unassigned",
  // clusters
  Rebalancing: "starting", Empty: "quiet", Unknown: "quiet",
  ok: "running", rebalancing: "starting", warning: "closing", critical: "unassigned", unknown: "unknown",
  // consumers
  live: "running", starting: "starting", isolated: "pinned", "not passing": "closing", gone: "unassigned",
};

/** @type {Record<string, string>} */
const WORDS = {
  ok: "Healthy", rebalancing: "Rebalancing", warning: "Needs a look", critical: "Needs action", unknown: "Not known",
};

/** @type {Record<string, string>} signs, so that a state differs in shape, too */
const SIGNS = {
  running: "✓", starting: "↻", closing: "▲", unassigned: "✕", pinned: "◆", quiet: "·", unknown: "?",
};

/** @param {string} state of anything @returns {string} the CSS class that has its colours */
export function look(state) {
  return `is-${PARTITION_STATES[state]?.look ?? LOOKS[state] ?? "quiet"}`;
}

/** @param {string} state @returns {string} as people say it */
export function word(state) {
  return WORDS[state] ?? PARTITION_STATES[state]?.name ?? state;
}

/** @param {string} state @returns {string} */
export function sign(state) {
  return SIGNS[LOOKS[state] ?? "quiet"];
}
