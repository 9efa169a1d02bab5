/** What stands above a view: where one is, how fresh it is, and the cluster with its commands and pages. */

import { age } from "./ages.js";
import { clusterButtons } from "./commands.js";
import { h } from "./dom.js";
import { chip, mark } from "./parts.js";
import { href } from "./router.js";

/** The pages of a cluster, in their order: name in the address, name for people. */
export const PAGES = /** @type {[string, string][]} */ ([
  ["", "Overview"], ["topics", "Topics"], ["consumers", "Consumers"], ["timeline", "Timeline"],
  ["what-if", "What if"], ["decisions", "Decisions"],
]);

/** @param {import("./router.js").Route} route */
export function trail(route) {
  const steps = [h("li", {}, h("a", { href: "#/", class: "brand", "aria-current": route.cluster ? null : "page" },
    h("img", { src: "static/icon.svg", alt: "", width: 20, height: 20 }), h("span", { text: "Muster" })))];
  const add = (/** @type {string} */ text, /** @type {string} */ to, /** @type {boolean} */ last) =>
    steps.push(h("li", {}, h("a", { href: to, text, "aria-current": last ? "page" : null })));
  if (route.cluster) add(route.cluster, href(route.cluster), !route.page);
  const name = PAGES.find(([page]) => page === route.page)?.[1];
  if (route.cluster && route.page && name) add(name, href(route.cluster, route.page), !route.item);
  if (route.cluster && route.item) add(route.item, href(route.cluster, route.page, route.item), true);
  return h("ol", {}, steps);
}

/** @param {{readAt: number | null, held: boolean, failed: boolean}} how */
export function freshLine({ readAt, held, failed }) {
  const state = failed ? "failed" : held ? "held" : "live";
  const words = { failed: "No answer", held: "On hold", live: "Live" }[state];
  return h(
    "div", { class: `fresh-line ${state}` },
    h("span", { class: "dot", "aria-hidden": "true" }), h("span", { class: "word", text: words }),
    readAt === null ? null : h("span", { class: "muted read-at" }, "read ", age(readAt)),
    h("button", {
      type: "button", class: "button small", text: held ? "Go live" : "Hold",
      title: held ? "Let the page update itself again" : "Keep the page as it is; nothing else is held",
      data: { action: "hold" },
    }),
  );
}

/** @param {import("./router.js").Route} route @param {ClusterAnswer | null} cluster */
export function clusterHead(route, cluster) {
  const name = /** @type {string} */ (route.cluster);
  return h(
    "div", { class: "cluster-head", data: { key: name } },
    h(
      "div", { class: "cluster-line" },
      h("h1", { text: name }),
      cluster ? standing(cluster) : null,
      cluster ? h("div", { class: "actions" }, actions(cluster)) : null,
    ),
    h(
      "nav", { class: "tabs", "aria-label": `Pages of ${name}` },
      PAGES.map(([page, label]) => h("a", {
        href: href(name, page), text: label, "aria-current": page === route.page ? (route.item ? "true" : "page") : null,
      })),
    ),
  );
}

/** @param {ClusterAnswer} cluster */
function standing({ summary }) {
  return h(
    "div", { class: "standing" },
    chip(summary.health),
    summary.paused ? pausedChip() : null,
    summary.rebalance_asked ? askedChip() : null,
    h("span", { class: "muted" }, standsFor(summary)),
    summary.may_edit ? null : h("span", { class: "chip is-quiet", text: "View only", title: "You may look at this cluster, and not change it" }),
  );
}

/** "Stable for 3 min", or only "Stable". @param {ClusterSummary} summary */
export function standsFor({ state, since }) {
  return since === null ? state : h("span", {}, `${state} for `, age(since, "for"));
}

/** That nothing is planned. */
export function pausedChip() {
  return h("span", { class: "chip paused" }, mark("‖"), "Coordination paused");
}

/** That a person asked for a rebalance now, and it is not carried out yet. */
export function askedChip() {
  return chip("rebalancing", "Rebalance asked for");
}

/** @param {ClusterAnswer} cluster */
function actions(cluster) {
  const { coordinator_dag: dag } = cluster.summary;
  return [
    ...clusterButtons(cluster),
    dag ? h("a", { class: "button plain", href: new URL(`../dags/${encodeURIComponent(dag)}`, document.baseURI).href, text: "DAG", title: `Open ${dag} in Airflow`, data: { airflow: "" } }) : null,
  ];
}
