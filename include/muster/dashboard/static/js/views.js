/** Which view belongs to which address. */

import { clustersView } from "./pages/clusters.js";
import { consumerView } from "./pages/consumer.js";
import { consumersView } from "./pages/consumers.js";
import { decisionsView } from "./pages/decisions.js";
import { overviewView } from "./pages/overview.js";
import { timelineView } from "./pages/timeline.js";
import { topicView } from "./pages/topic.js";
import { topicsView } from "./pages/topics.js";
import { whatIfView } from "./pages/what_if.js";
import { h } from "./dom.js";
import { empty } from "./parts.js";
import { href } from "./router.js";

/**
 * @typedef {object} View
 * @property {string[]} title from the whole to the part
 * @property {HTMLElement} element
 * @property {() => Promise<{readAt: number | null, ttl: number | null} | null>} load asks the server
 * @property {(cluster: ClusterAnswer | null) => void} draw shows what was asked
 * @property {(query: URLSearchParams) => void} [query] the query in the address has changed
 * @property {() => SourceHealth[]} [sources] for the banners, where there is no cluster
 * @property {() => void} [leave]
 */

/**
 * @param {import("./router.js").Route} route
 * @param {() => void} refresh asks the server at once
 * @returns {View}
 */
export function viewOf(route, refresh) {
  const { cluster, page, item, query } = route;
  if (cluster === null) return clustersView();
  if (page === "") return overviewView(cluster, query);
  if (page === "topics") return item ? topicView(cluster, item) : topicsView(cluster, query, refresh);
  if (page === "consumers") return item ? consumerView(cluster, item) : consumersView(cluster, query, refresh);
  if (page === "timeline") return timelineView(cluster, query);
  if (page === "what-if") return whatIfView(cluster, query);
  if (page === "decisions") return decisionsView(cluster);
  return {
    title: [cluster, page],
    element: h("div", {}, empty(`There is no page "${page}".`, h("a", { href: href(cluster), text: `To the overview of ${cluster}` }))),
    load: async () => null,
    draw: () => {},
  };
}
