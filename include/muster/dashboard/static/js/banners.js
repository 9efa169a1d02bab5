/** What everybody has to know before believing what is shown: what is out of reach, how old it is, what is paused. */

import { age } from "./ages.js";
import { whyNot } from "./context.js";
import { h } from "./dom.js";
import { moment } from "./format.js";
import { banner, button, saidBy } from "./parts.js";

/** @type {Record<string, string>} */
const NAMES = { zookeeper: "ZooKeeper", consul: "Consul", kafka: "Kafka", consumers: "The consumers' status pages", history: "The history" };

/**
 * @param {object} known
 * @param {ClusterAnswer | null} known.cluster
 * @param {{message: string, status: number, since: number} | null} known.failure of the last question
 * @param {number | null} known.readAt when what is shown was read
 * @param {SourceHealth[]} known.sources of the view, where there is no cluster
 */
export function banners({ cluster, failure, readAt, sources }) {
  const list = [];
  if (failure) list.push(failed(failure, readAt));
  if (cluster?.summary.error) {
    list.push(banner("critical", "error", h("p", {}, h("b", { text: "The cluster's settings cannot be used. " }), cluster.summary.error)));
  }
  for (const source of cluster?.summary.freshness.sources ?? sources) {
    if (!source.reachable) list.push(outOfReach(source));
  }
  if (cluster?.summary.paused) list.push(paused(cluster));
  if (cluster?.summary.rebalance_asked) list.push(asked(cluster.summary.rebalance_asked, cluster.summary.name));
  return list;
}

/** @param {SourceHealth} source */
export function outOfReach(source) {
  const name = NAMES[source.source] ?? source.source;
  const plural = source.source === "consumers";
  return banner(
    "critical", source.source,
    h("p", {}, h("b", {}, `${name}${source.address ? ` (${source.address})` : ""} cannot be reached`),
      source.unreachable_since === null ? "." : h("span", {}, " for ", age(source.unreachable_since, "for"), "."),
      " What is shown of ", plural ? "them" : "it", " ",
      source.last_read_at === null ? "is not known." : h("span", {}, "was read ", age(source.last_read_at), ` (${moment(source.last_read_at)}).`)),
    source.error ? h("p", { class: "detail", text: source.error }) : null,
  );
}

/** @param {{message: string, status: number, since: number}} failure @param {number | null} readAt */
function failed(failure, readAt) {
  const again = button("Ask again", "again", {}, { kind: "small" });
  if (failure.status === 401) {
    return banner("critical", "failure", h("p", {}, h("b", { text: "You are logged out of Airflow. " }), "Log in again, then ask again. ", again));
  }
  if (failure.status === 403 || failure.status === 404) {
    return banner("critical", "failure", h("p", {}, h("b", { text: failure.message }), " ", h("a", { href: "#/", text: "To all clusters" })));
  }
  return banner(
    "critical", "failure",
    h("p", {}, h("b", { text: failure.status === 0 ? "Airflow's API server does not answer" : failure.message }), " for ", age(failure.since, "for"), ". ",
      readAt === null ? "Nothing has been read yet. " : h("span", {}, "What is shown was read ", age(readAt), ` (${moment(readAt)}). `), again),
  );
}

/** @param {Said} said @param {string} name */
function asked(said, name) {
  return banner(
    "info", "rebalance",
    h("p", {}, h("b", { text: `A rebalance of ${name} was asked for. ` }), "It stands until a run of the coordinator has carried it out; until then no absent consumer is waited for."),
    h("p", { class: "detail" }, saidBy(said, age(said.at))),
  );
}

/** @param {ClusterAnswer} cluster */
function paused(cluster) {
  const { paused: said, name } = cluster.summary;
  const why = whyNot(cluster, "resume");
  if (!said) return banner("paused", "paused");
  return banner(
    "paused", "paused",
    h("p", {}, h("b", { text: `Coordination of ${name} is paused. ` }),
      "Consumers go on with what they have; nothing is planned, not even when a consumer dies."),
    h("p", { class: "detail" }, saidBy(said, age(said.at)), " ", why === null ? null : button("Resume…", "resume", {}, { kind: "small", whyNot: why })),
  );
}
