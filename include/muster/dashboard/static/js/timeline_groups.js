/** Putting the steps of topics together into rebalances, as people speak of them. Pure. */

/**
 * One rebalance, of one or more topics that began it together for the same reason; or what a person did.
 * @typedef {object} Happening
 * @property {string} id of its first entry
 * @property {"rebalance" | "lever"} kind a command, or what cannot be read
 * @property {number} began
 * @property {string} reason
 * @property {string | null} who
 * @property {string[]} topics
 * @property {number} moved partitions
 * @property {{phase: string, lasted: number}[]} phases how long each took, of the topic for which it took longest
 * @property {number | null} lasted from its beginning until all its topics were Stable; null: under way, or not known
 * @property {boolean} done
 * @property {TimelineEntry[]} entries oldest first
 */

/** Topics that begin within so many seconds of each other, for the same reason, take part in one rebalance. */
const TOGETHER = 10;

/** @param {TimelineEntry[]} entries newest first, as the server gives them @returns {Happening[]} newest first */
export function happenings(entries) {
  const commands = entries.filter((entry) => entry.kind !== "transition").map(ofCommand);
  return [...joined(byTopic(entries)), ...commands].sort((a, b) => b.began - a.began || (a.id < b.id ? 1 : -1));
}

/** @param {TimelineEntry} entry @returns {Happening} */
function ofCommand(entry) {
  return {
    id: entry.id, kind: "lever", began: entry.at, reason: entry.reason, who: entry.who,
    topics: entry.topic ? [entry.topic] : [], moved: entry.moved, phases: [], lasted: null, done: true, entries: [entry],
  };
}

/** The transitions of each topic, cut where it was Stable. @param {TimelineEntry[]} entries @returns {TimelineEntry[][]} */
function byTopic(entries) {
  /** @type {Map<string, TimelineEntry[]>} */
  const open = new Map();
  /** @type {TimelineEntry[][]} */
  const all = [];
  for (const entry of entries.filter((one) => one.kind === "transition").reverse()) {
    const topic = entry.topic ?? "";
    let steps = open.get(topic);
    if (!steps) {
      steps = [];
      open.set(topic, steps);
      all.push(steps);
    }
    steps.push(entry);
    if (entry.after === "Stable") open.delete(topic);
  }
  return all;
}

/** @param {TimelineEntry[][]} rebalances @returns {Happening[]} */
function joined(rebalances) {
  /** @type {{reason: string, began: number, all: TimelineEntry[][]}[]} */
  const groups = [];
  for (const steps of rebalances.sort((a, b) => a[0].at - b[0].at)) {
    const [{ reason, at }] = steps;
    const fits = groups.find((group) => group.reason === reason && at - group.began <= TOGETHER && !group.all.some((one) => one[0].topic === steps[0].topic));
    if (fits) fits.all.push(steps);
    else groups.push({ reason, began: at, all: [steps] });
  }
  return groups.map((group) => summed(group.all));
}

/** @param {TimelineEntry[][]} all @returns {Happening} */
function summed(all) {
  const entries = all.flat().sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
  const ends = all.map((steps) => steps[steps.length - 1]);
  const done = ends.every((end) => end.after === "Stable");
  const lasted = ends.map((end, i) => end.rebalance_lasted ?? (all[i].length > 1 ? end.at - all[i][0].at : null));
  const known = lasted.filter((one) => one !== null);
  return {
    id: entries[0].id, kind: "rebalance", began: entries[0].at, reason: entries[0].reason,
    who: entries.find((entry) => entry.who)?.who ?? null,
    topics: [...new Set(entries.map((entry) => entry.topic ?? ""))].filter(Boolean).sort(),
    moved: all.reduce((sum, steps) => sum + Math.max(...steps.map((step) => step.moved)), 0),
    phases: phases(entries), lasted: done && known.length ? Math.max(...known) : null, done, entries,
  };
}

/** @param {TimelineEntry[]} entries */
function phases(entries) {
  return ["Closing", "Starting"]
    .map((phase) => ({ phase, lasted: Math.max(...entries.filter((one) => one.before === phase && one.lasted !== null).map((one) => one.lasted ?? 0), -1) }))
    .filter(({ lasted }) => lasted >= 0);
}
