/**
 * Where the user is, in the part of the address behind '#', so that a link leads to the same sight and the back
 * button goes back: `#/clusters/flights/topics/orders?state=R`.
 */

/**
 * @typedef {object} Route
 * @property {string | null} cluster null: all clusters
 * @property {string} page '' is the cluster's first page
 * @property {string | null} item a topic's or consumer's name
 * @property {URLSearchParams} query
 */

/** @param {string} hash @returns {Route} */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  const [, cluster, page, ...rest] = path.split("/").map(decode); // the first part is always 'clusters'
  return {
    cluster: cluster || null,
    page: page || "",
    item: rest.length ? rest.join("/") || null : null,
    query: new URLSearchParams(query),
  };
}

/**
 * The link to a place.
 * @param {string | null} [cluster] @param {string} [page] @param {string | null} [item]
 * @param {Record<string, string> | URLSearchParams} [query]
 */
export function href(cluster = null, page = "", item = null, query = {}) {
  if (cluster === null) return "#/";
  const parts = ["clusters", cluster, page, item].filter((part) => part !== null && part !== "");
  const text = new URLSearchParams(query).toString();
  return `#/${parts.map((part) => encodeURIComponent(String(part))).join("/")}${text ? `?${text}` : ""}`;
}

/** The route that the address bar shows. @returns {Route} */
export function current() {
  return parse(globalThis.location.hash);
}

/**
 * Change a part of the query without a new entry in the history; null takes it away.
 * @param {Record<string, string | null>} changes
 */
export function setQuery(changes) {
  const route = current();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") route.query.delete(name);
    else route.query.set(name, value);
  }
  const to = href(route.cluster, route.page, route.item, route.query);
  if (to !== globalThis.location.hash) globalThis.history.replaceState(globalThis.history.state, "", to);
  globalThis.dispatchEvent(new Event("muster:query"));
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a '%' of the user's own
  }
}
