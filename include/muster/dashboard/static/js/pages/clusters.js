/** All clusters at a glance: one panel a cluster, what needs a person first. */

import { age } from "../ages.js";
import { read } from "../api.js";
import { outOfReach } from "../banners.js";
import { h } from "../dom.js";
import { calm, duration, number, plural, rate, short } from "../format.js";
import { askedChip, pausedChip, standsFor } from "../head.js";
import { below, chip, empty, figure, figures, mark, saidBy, stateBar, stateWords } from "../parts.js";
import { patchInside } from "../patch.js";
import { href } from "../router.js";
import { sign } from "../states.js";

const URGENCY = ["critical", "warning", "unknown", "rebalancing", "ok"];

/** @returns {import("../views.js").View} */
export function clustersView() {
  const element = h("div", { class: "clusters" }, h("p", { class: "muted", text: "Reading …" }));
  /** @type {ClustersAnswer | null} */
  let answer = null;
  return {
    title: [],
    element,
    load: async () => {
      const got = await read("clusters");
      answer = got.body;
      return { readAt: got.readAt, ttl: Math.min(...got.body.clusters.map((/** @type {ClusterSummary} */ one) => one.freshness.ttl), 5) };
    },
    draw: () => answer && patchInside(element, ...drawn(answer)),
  };
}

/** @param {ClustersAnswer} answer */
function drawn({ clusters, error }) {
  const sorted = [...clusters].sort((a, b) => URGENCY.indexOf(a.health) - URGENCY.indexOf(b.health) || a.name.localeCompare(b.name));
  return [
    h("h1", { text: "Clusters" }),
    error ? h("div", { class: "banner critical" }, mark("✕"), h("div", {}, h("p", {}, h("b", { text: "The settings cannot be read. " }), error))) : h("span", { hidden: true }),
    sorted.length ? h("ul", { class: "cluster-list" }, sorted.map(card)) : empty(
      "There is no cluster that you may read.",
      error ? "Mend the settings first." : "Add one to clusters.d, or ask for the right to read its coordinator's DAG.",
    ),
  ];
}

/** @param {ClusterSummary} one */
function card(one) {
  return h(
    "li", { class: `cluster-card ${one.health}`, data: { key: one.name } },
    h(
      "div", { class: "cluster-title" },
      h("h2", {}, h("a", { href: href(one.name), text: one.name })),
      chip(one.health), one.paused ? pausedChip() : null, one.rebalance_asked ? askedChip() : null,
      one.error ? null : h("span", { class: "muted" }, standsFor(one)),
    ),
    one.error ? h("p", { class: "error", text: one.error }) : [facts(one), last(one), troubles(one)],
    one.freshness.sources.filter((source) => !source.reachable).map(outOfReach),
  );
}

/** @param {ClusterSummary} one */
function facts(one) {
  const { consumers } = one;
  const off = [
    consumers.starting ? `${number(consumers.starting)} starting` : "",
    consumers.isolated ? `${number(consumers.isolated)} isolated` : "",
    consumers.missing ? `${number(consumers.missing)} missing` : "",
    consumers.not_passing ? `${number(consumers.not_passing)} not passing` : "",
    consumers.unknown ? `${number(consumers.unknown)} unknown` : "",
  ].filter(Boolean);
  const topics = Object.entries(one.topics).map(([state, count]) => `${number(count)} ${state}`).join(", ");
  return h(
    "div", { class: "card-body" },
    figures(
      figure("Topics", number(Object.values(one.topics).reduce((a, b) => a + b, 0)), topics || "none"),
      figure("Partitions", number(one.partitions), one.pinned ? `${number(one.pinned)} pinned` : stateWords(one.partition_states)),
      figure("Consumers live", number(consumers.live), off.length ? h("b", { class: "off", text: off.join(", ") }) : consumers.live ? "all there are" : "none"),
      figure("Lag", short(one.lag), one.lag_unknown ? `${plural(one.lag_unknown, "partition")} unknown` : "records"),
      figure("Behind", calm(one.behind.age), below(one.behind)),
      figure("Arriving", rate(one.rate), one.consumed_rate === null ? "consumed: –" : `consumed: ${rate(one.consumed_rate)}`),
    ),
    stateBar(one.partition_states, "Partitions"),
  );
}

/** @param {ClusterSummary} one */
export function last(one) {
  const { last_rebalance: was } = one;
  if (!was) return h("p", { class: "last muted", text: "No rebalance is known yet." });
  const details = [
    plural(was.topics, "topic"), was.moved === null ? "" : `${plural(was.moved, "partition")} moved`,
    was.lasted === null ? "" : `took ${duration(was.lasted)}`,
  ].filter(Boolean).join(", ");
  return h("p", { class: "last" }, h("span", { class: "muted" }, "Last rebalance "), age(was.at), ": ", h("q", { text: was.reason }), h("span", { class: "muted", text: ` (${details})` }));
}

/** @param {ClusterSummary} one */
function troubles(one) {
  const shown = one.problems.slice(0, 3);
  return h(
    "ul", { class: "problems" },
    one.paused ? h("li", { class: "paused" }, mark("‖"), h("span", {}, "Coordination is paused: ", saidBy(one.paused, age(one.paused.at)))) : null,
    one.rebalance_asked ? h("li", { class: "waiting" }, mark("↻"), h("span", {}, "A rebalance was asked for: ", saidBy(one.rebalance_asked, age(one.rebalance_asked.at)))) : null,
    shown.map((problem) => h("li", { class: problem.level }, mark(sign(problem.level)), h("span", { text: problem.what }))),
    one.problem_count > shown.length ? h("li", { class: "muted" }, h("a", { href: href(one.name), text: `and ${plural(one.problem_count - shown.length, "more")}`.replace(/mores$/, "more") })) : null,
  );
}
