/**
 * The matrix with what belongs to it: how many partitions are in each state (and a filter by that), the legend, and
 * the chosen partition in detail with its commands.
 */

import { commandButton, commandsOn, isUndo, takesPartitions } from "./commands.js";
import { h } from "./dom.js";
import { calm, number, rate } from "./format.js";
import { age } from "./ages.js";
import { Matrix } from "./matrix.js";
import { consumerLink, empty, holds, legend, saidBy, topicLink } from "./parts.js";
import { patchInside } from "./patch.js";
import { href } from "./router.js";
import { look, PARTITION_ORDER, word } from "./states.js";
import { condition, obstacle, partitionRows } from "./topic_columns.js";

/** @typedef {import("./topic_columns.js").PartitionRow} PartitionRow */

export class MatrixBox {
  /** @param {string} cluster @param {{headings: boolean}} options whether topics have headings of their own */
  constructor(cluster, options) {
    this.name = cluster;
    this.options = options;
    /** @type {Set<string>} */
    this.hidden = new Set();
    /** @type {{topic: string, partition: number} | null} */
    this.chosen = null;
    /** @type {PartitionRow[]} */
    this.rows = [];
    /** @type {string[]} */
    this.consumers = [];
    /** @type {ClusterAnswer | null} */
    this.cluster = null;
    this.matrix = new Matrix((row) => {
      this.chosen = row;
      this.#drawDetail();
    });
    this.filters = h("div", { class: "state-filters", role: "group", "aria-label": "Show partitions that are" });
    this.filters.addEventListener("click", (event) => this.#toggle(event));
    this.none = h("div");
    this.detail = h("div", { class: "partition-detail", "aria-live": "polite" });
    this.element = h("div", { class: "matrix-box" }, h("div", { class: "matrix-top" }, this.filters, legend()), this.matrix.element, this.none, this.detail);
  }

  /**
   * @param {TopicAnswer[]} topics @param {string[]} others consumers that have a column though they have nothing here
   * @param {ClusterAnswer | null} cluster
   */
  show(topics, others, cluster) {
    this.cluster = cluster;
    this.answers = topics;
    this.consumers = natural([...new Set([...topics.flatMap((topic) => topic.consumers), ...others])]);
    this.rows = topics.flatMap(partitionRows);
    this.#draw();
  }

  #draw() {
    const rows = (this.answers ?? []).flatMap((topic) => {
      const shown = this.rows.filter((row) => row.topic === topic.row.topic && !this.hidden.has(row.state));
      if (!this.options.headings || !shown.length) return shown;
      return [{ heading: topic.row.topic, to: href(this.name, "topics", topic.row.topic) }, ...shown];
    });
    this.matrix.show(rows, this.consumers);
    this.matrix.element.hidden = rows.length === 0;
    patchInside(this.none, ...(rows.length ? [] : [empty(this.rows.length ? "No partition is in a state that is switched on above." : "There is no partition yet.")]));
    this.#drawFilters();
    this.#drawDetail();
  }

  #drawFilters() {
    const counts = /** @type {Record<string, number>} */ ({});
    for (const row of this.rows) counts[row.state] = (counts[row.state] ?? 0) + 1;
    patchInside(this.filters, ...PARTITION_ORDER.filter((state) => counts[state]).map((state) => h(
      "button",
      { type: "button", class: `state-filter ${look(state)}`, "aria-pressed": this.hidden.has(state) ? "false" : "true", data: { key: state, state } },
      h("b", { text: number(counts[state]) }), ` ${word(state)}`,
    )));
  }

  /** @param {Event} event */
  #toggle(event) {
    const state = event.target instanceof Element ? event.target.closest("button")?.dataset.state : undefined;
    if (!state) return;
    if (!this.hidden.delete(state)) this.hidden.add(state);
    this.#draw();
  }

  #drawDetail() {
    const row = this.rows.find((one) => one.topic === this.chosen?.topic && one.partition === this.chosen.partition);
    patchInside(this.detail, ...(row ? detail(row, this.name, this.cluster, this.consumers) : []));
  }
}

/** @param {PartitionRow} row @param {string} name @param {ClusterAnswer | null} cluster @param {string[]} consumers */
function detail(row, name, cluster, consumers) {
  const fact = (/** @type {string} */ label, /** @type {any} */ value) => h("div", {}, h("dt", { text: label }), h("dd", {}, value));
  return [
    h("h3", {}, topicLink(name, row.topic), ` partition ${row.partition}: `, h("span", { class: `chip ${look(row.state)}`, text: condition(row, row.state, word) })),
    h(
      "dl", { class: "facts" },
      fact("Owner", consumerLink(name, row.owner)),
      row.source ? fact("To close it", consumerLink(name, row.source)) : null,
      row.target ? fact("To have it next", consumerLink(name, row.target)) : null,
      fact("Lag", number(row.lag)), fact("Behind", calm(row.age)), fact("Arriving", rate(row.rate)),
      fact("Committed", number(row.committed)), fact("End", number(row.end)),
      row.state === "K" || row.state === "T" ? fact(row.state === "K" ? "Held up by" : "Restored", obstacle(row)) : null,
      row.shard && row.state !== "T" && !row.shard.differs ? fact("State", holds([row.shard]).join(", ")) : null,
      row.shard && row.shard.offset !== null ? fact("State at offset", number(row.shard.offset)) : null,
      row.shard?.executor ? fact("State computed by", row.shard.executor) : null,
      row.parked?.answer ? fact("Decided", `${row.parked.answer.replace("_", " ")}, not done yet`) : null,
      row.standbys.length ? fact("Standby", row.standbys.join(", ")) : null,
      Object.keys(row.copies).length ? fact("Copies of its state", Object.entries(row.copies).map(([who, how]) => `${who} ${how}`).join("; ")) : null,
      row.pin ? fact("Pinned to", h("span", {}, consumerLink(name, row.pin.consumer), " ", saidBy(row.pin.said, age(row.pin.said.at)))) : null,
      row.pin?.obstacle ? fact("Not obeyed", row.pin.obstacle) : null,
    ),
    h(
      "div", { class: "actions" },
      ...commandsOn("partitions").filter((one) => row.pin || !isUndo(one)).map((one) => commandButton(one.name, cluster, { topic: row.topic },
        { partitions: String(row.partition), consumer: row.owner ?? "", consumers: consumers.slice(0, 200) })),
      ...commandsOn("topic").filter(takesPartitions).map((one) => commandButton(one.name, cluster, { topic: row.topic, partitions: String(row.partition) })),
      h("a", { class: "button small", href: href(name, "timeline", null, { topic: row.topic }), text: "Its timeline" }),
    ),
  ];
}

const collator = new Intl.Collator("en", { numeric: true });

/** @param {string[]} names @returns {string[]} c-2 before c-10 */
export function natural(names) {
  return names.sort(collator.compare);
}
