/** A cluster's first page: how it stands, what holds it up, and the matrix of the topics that need a look first. */

import { age } from "../ages.js";
import { of, read } from "../api.js";
import { h } from "../dom.js";
import { calm, duration, number, plural, rate, short } from "../format.js";
import { MatrixBox } from "../matrix_box.js";
import { below, consumerLink, empty, figure, figures, lacking, mark, panel, stateWords, topicLink } from "../parts.js";
import { patchInside } from "../patch.js";
import { href, setQuery } from "../router.js";
import { sign } from "../states.js";
import { last } from "./clusters.js";

/** So many topics, and partitions, the matrix of this page has; the topic pages have all of a topic. */
const TOPICS = 8;
const PARTITIONS = 4000;
/** Up to so many consumers, those without partitions have a column too. */
const CONSUMERS = 40;

/** @param {string} cluster @param {URLSearchParams} query @returns {import("../views.js").View} */
export function overviewView(cluster, query) {
  const box = new MatrixBox(cluster, { headings: true });
  const top = h("div", { class: "stack" });
  const choice = h("input", {
    type: "search", placeholder: "Topics by name", "aria-label": "Show topics by name", value: query.get("search") ?? "", spellcheck: "false", autocomplete: "off",
  });
  let search = query.get("search") ?? "";
  let timer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
  choice.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => setQuery({ search: choice.value.trim() }), 200);
  });
  const note = h("p", { class: "note" });
  const nothing = h("div");
  const element = h(
    "div", { class: "stack" }, top,
    h("section", { class: "panel" }, h("header", { class: "panel-head" }, h("h2", { text: "Partitions by consumer" }), note, h("div", { class: "actions" }, choice)), nothing, box.element),
  );
  const state = { topics: /** @type {any[]} */ ([]), total: 0, consumers: /** @type {any} */ (null) };
  return {
    title: [cluster],
    element,
    load: async () => {
      const asked = new URLSearchParams({ sort: "state", offset: "0", limit: String(TOPICS), ...(search ? { search } : {}) });
      const [list, consumers] = await Promise.all([
        read(`${of(cluster, "topics")}?${asked}`), read(`${of(cluster, "consumers")}?offset=0&limit=${CONSUMERS}`),
      ]);
      let room = PARTITIONS;
      const names = list.body.topics.filter((/** @type {any} */ row) => row.state !== "Unreadable" && (room -= row.partitions) >= Math.min(0, PARTITIONS - row.partitions));
      const answers = await Promise.all(names.map((/** @type {any} */ row) => read(of(cluster, "topics", row.topic)).catch(() => null)));
      state.topics = answers.filter(Boolean).map((/** @type {any} */ one) => one.body);
      state.total = list.body.total;
      state.consumers = consumers.body;
      return list;
    },
    draw: (known) => {
      if (!known) return;
      patchInside(top, ...drawn(known));
      const shown = state.topics.length;
      note.textContent = shown < state.total ? `${number(shown)} of ${plural(state.total, "topic")}: those first that need a look` : plural(state.total, "topic");
      const idle = state.consumers.total <= CONSUMERS ? state.consumers.consumers.filter((/** @type {any} */ one) => one.state !== "gone").map((/** @type {any} */ one) => one.consumer) : [];
      box.element.hidden = shown === 0;
      patchInside(nothing, ...(shown ? [] : [noTopic(known, search)]));
      box.show(state.topics, idle, known);
    },
    query: (changed) => {
      search = changed.get("search") ?? "";
      if (document.activeElement !== choice) choice.value = search;
    },
  };
}

/** @param {ClusterAnswer} known */
function drawn(known) {
  return [noConsumers(known), glance(known), troubles(known)].filter((one) => one !== null);
}

/** @param {ClusterAnswer} known */
function noConsumers({ summary }) {
  const { live, starting, unknown } = summary.consumers;
  if (live > 0 || starting > 0 || unknown > 0 || summary.error) return null;
  const dag = `muster_consumers__${summary.name}`;
  return h(
    "div", { class: "panel", data: { key: "no consumers" } },
    empty("No consumer is live, so no record is read.", "Start them: unpause and trigger the DAG ",
      h("a", { href: new URL(`../dags/${encodeURIComponent(dag)}`, document.baseURI).href, text: dag, data: { airflow: "" } }),
      ". If they run, look at their checks in Consul."),
  );
}

/** @param {ClusterAnswer} known */
function glance(known) {
  const { summary } = known;
  const { consumers } = summary;
  const off = [
    [consumers.starting, "starting", "starting"], [consumers.isolated, "isolated", "isolated"], [consumers.missing, "missing", "gone"], [consumers.not_passing, "not passing", "not passing"], [consumers.unknown, "unknown", "unknown"],
  ].filter(([count]) => count);
  return h(
    "section", { class: "panel glance", "aria-label": "At a glance", data: { key: "glance" } },
    figures(
      figure("Topics", h("a", { href: href(summary.name, "topics"), text: number(Object.values(summary.topics).reduce((a, b) => a + b, 0)) }),
        Object.entries(summary.topics).map(([state, count]) => `${number(count)} ${state}`).join(", ") || "none"),
      figure("Partitions", number(summary.partitions), [stateWords(summary.partition_states), summary.pinned ? h("a", { href: href(summary.name, "decisions"), text: `${number(summary.pinned)} pinned` }) : null].map((one) => one && h("span", {}, one, " "))[0]),
      figure("Consumers live", h("a", { href: href(summary.name, "consumers"), text: number(consumers.live) }),
        off.length ? h("b", { class: "off" }, off.map(([count, name, state], i) => h("a", { href: href(summary.name, "consumers", null, { state: String(state === "gone" ? "" : state) }), text: `${i ? ", " : ""}${number(Number(count))} ${name}` }))) : consumers.live ? "all there are" : "none"),
      figure("Lag", short(summary.lag), summary.lag_unknown ? `${plural(summary.lag_unknown, "partition")} unknown` : "records"),
      figure("Behind", calm(summary.behind.age), below(summary.behind)),
      figure("Arriving", rate(summary.rate), `consumed: ${rate(summary.consumed_rate)}`),
      figure("Assignor", known.assignor.name, known.assignor.from_settings ? "by the settings" : h("a", { href: href(summary.name, "decisions"), text: "a person's choice" })),
    ),
    last(summary),
  );
}

/** @param {ClusterAnswer} known */
function troubles(known) {
  const { problems, waiting, summary } = known;
  if (!problems.length && !waiting.length) return null;
  return panel(
    "What needs a look", { key: "troubles", note: summary.problem_count > problems.length ? `${number(problems.length)} of ${number(summary.problem_count)}` : "" },
    h(
      "ul", { class: "problems" },
      problems.map((one) => h(
        "li", { class: one.level }, mark(sign(one.level)),
        h("span", {}, one.what, " ",
          one.topic ? topicLink(summary.name, one.topic) : null, one.topic && one.consumer ? ", " : "",
          one.consumer ? consumerLink(summary.name, one.consumer) : null),
      )),
      waiting.slice(0, 10).map((one) => h(
        "li", { class: "waiting" }, mark("↻"),
        h("span", {}, one.consumer ? consumerLink(summary.name, one.consumer) : null, ` ${lacking(one)} of `,
          topicLink(summary.name, one.topic), `: ${one.why}`,
          one.since === null ? null : h("span", { class: "muted" }, " (", age(one.since, "for"), ")")),
      )),
      known.waiting_count > 10 ? h("li", { class: "muted", text: `and ${number(known.waiting_count - 10)} more that wait` }) : null,
    ),
  );
}

/** @param {ClusterAnswer} known @param {string} search */
function noTopic(known, search) {
  if (search) return empty(`No topic has "${search}" in its name.`);
  return empty("The cluster has no topic yet.", "Topics that the settings name, or that match their patterns, show up when the coordinator has run: is its DAG ",
    h("code", { text: known.summary.coordinator_dag }), ` unpaused? It looks every ${duration(known.tick)}.`);
}

