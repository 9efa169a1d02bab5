/** The cluster in sight, for what is done from anywhere on the page. */

/** @type {{cluster: ClusterAnswer | null, refresh: () => void}} */
const context = { cluster: null, refresh: () => {} };

/** @param {ClusterAnswer | null} cluster @param {() => void} refresh asks the server at once */
export function setContext(cluster, refresh) {
  context.cluster = cluster;
  context.refresh = refresh;
}

/** The cluster in sight as last read, null before. */
export function clusterInSight() {
  return context.cluster;
}

/** Ask the server at once. */
export function refresh() {
  context.refresh();
}

/**
 * Whether the user may give the command `name` now: null if not at all (then it is not shown), else why not at present, or ''.
 * @param {ClusterAnswer | null} cluster @param {string} name
 * @returns {string | null}
 */
export function whyNot(cluster, name) {
  if (!cluster?.summary.may_edit) return null;
  const state = cluster.levers.find((one) => one.lever === name);
  return !state || state.available ? "" : state.why_not || "this cannot be done at present";
}
