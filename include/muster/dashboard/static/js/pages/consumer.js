/** One consumer: who it is, how it is, and what it has. */

import { age } from "../ages.js";
import { of, read } from "../api.js";
import { commandButton, consumerButtons, overrideOf } from "../commands.js";
import { h } from "../dom.js";
import { number, rate, short } from "../format.js";
import { banner, chip, empty, figure, figures, mark, pairText, panel, saidBy, topicLink } from "../parts.js";
import { patchInside } from "../patch.js";
import { href } from "../router.js";
import { link, text, VirtualTable } from "../table.js";
import { share } from "./consumers.js";

/** @param {string} cluster @param {string} consumer @returns {import("../views.js").View} */
export function consumerView(cluster, consumer) {
  const top = h("div", { class: "stack" });
  /** @type {import("../table.js").Column<ConsumerTopic>[]} */
  const columns = [
    { id: "topic", label: "Topic", by: (row) => row.topic, class: "name", show: link((row) => row.topic, (row) => href(cluster, "topics", row.topic)) },
    ranges("running", "Running"), ranges("parked", "Parked"), { ...ranges("paused", "Paused"), class: "wide mono" }, ranges("restoring", "Restoring"), ranges("starting", "Starting"), ranges("closing", "Closing"), ranges("unknown", "Not known"),
    { ...ranges("standby", "Standby"), class: "wide mono" }, { ...ranges("pinned", "Pinned"), class: "wide mono" },
    { id: "lag", label: "Lag", by: (row) => row.lag, class: "number", width: "6rem", show: text((row) => number(row.lag)) },
    { id: "rate", label: "Arriving", by: (row) => row.rate, class: "number wide", width: "6rem", show: text((row) => rate(row.rate)) },
  ];
  const table = new VirtualTable({ label: `What ${consumer} has`, columns, key: (row) => row.topic, sort: { column: "topic", down: false } });
  const nothing = h("div");
  const element = h("div", { class: "stack" }, top, h("section", { class: "panel flush" }, h("header", { class: "panel-head" }, h("h2", { text: "What it has" })), table.element, nothing));
  /** @type {ConsumerAnswer | null} */
  let answer = null;
  return {
    title: [cluster, "Consumers", consumer],
    element,
    load: async () => {
      const got = await read(of(cluster, "consumers", consumer));
      answer = got.body;
      return got;
    },
    draw: (known) => {
      if (!answer) return;
      patchInside(top, ...drawn(answer, cluster, known));
      table.element.hidden = answer.topics.length === 0;
      patchInside(nothing, ...(answer.topics.length ? [] : [empty("It has no partition.", why(answer))]));
      table.show(answer.topics);
    },
  };
}

/** @param {"running" | "paused" | "parked" | "restoring" | "starting" | "closing" | "unknown" | "standby" | "pinned"} id @param {string} label */
function ranges(id, label) {
  return { id, label, class: "mono", show: text((/** @type {ConsumerTopic} */ row) => pairText(row[id]) || "·") };
}

/** @param {ConsumerAnswer} answer */
function why({ row, subscribes }) {
  if (row.overrides.length) return `It is ${row.overrides.map(overrideOf).join(" and ")}; take that back to have it take part again.`;
  if (row.state !== "live") return "It is not live, so nothing is given to it.";
  return subscribes ? `It takes only: ${subscribes.join(", ")}.` : "It gets some when the coordinator runs, if there are enough for all.";
}

/** @param {ConsumerAnswer} answer @param {string} cluster @param {ClusterAnswer | null} known */
function drawn(answer, cluster, known) {
  const { row, details } = answer;
  const fact = (/** @type {string} */ label, /** @type {any} */ value) => (value === "" || value === null ? null : h("div", {}, h("dt", { text: label }), h("dd", {}, value)));
  return [
    ...row.overrides.map((one) => banner("info", one.command, h("p", {}, h("b", { text: `${row.consumer} is ${overrideOf(one)}. ` }), saidBy(one.said, age(one.said.at))))),
    ...[...(row.error ? [row.error] : []), ...details.errors.filter((one) => one !== row.error)].map((one, i) => banner(row.state === "live" ? "warning" : "critical", `error ${i}`, h("p", { text: one }))),
    h(
      "section", { class: "panel", data: { key: "consumer" }, "aria-label": `Consumer ${row.consumer}` },
      h(
        "header", { class: "panel-head item-head" },
        h("h2", { class: "item", text: row.consumer }), chip(row.state), row.doing && row.doing !== "running" ? h("span", { class: "muted", text: row.doing }) : null,
        h("div", { class: "actions" }, ...consumerButtons(row, known, true),
          h("a", { class: "button small", href: href(cluster, "what-if", null, { without: row.consumer }), text: "What if it left?" }),
          h("a", { class: "button small", href: href(cluster, "timeline", null, { consumer: row.consumer }), text: "Timeline" })),
      ),
      figures(
        figure("Partitions", number(row.partitions), [row.parked ? `${number(row.parked)} parked` : "", row.paused ? `${number(row.paused)} paused` : "", row.restoring ? `${number(row.restoring)} restoring` : "", row.starting ? `${number(row.starting)} starting` : "", row.closing ? `${number(row.closing)} closing` : "", row.pinned ? `${number(row.pinned)} pinned` : ""].filter(Boolean).join(", ") || `${number(row.running)} running`),
        figure("Load", share(row.share)),
        figure("Lag", short(row.lag), "records"),
        figure("Arriving", rate(row.rate)),
        figure("Uptime", age(row.started_at, "for")),
        figure("Processed", short(details.records), details.batches === null ? "" : `${short(details.batches)} batches`),
      ),
      h(
        "dl", { class: "facts" },
        fact("Host", row.host), fact("Status page", row.address), fact("Version", row.version), fact("Incarnation", row.incarnation && h("span", { class: "mono", text: row.incarnation })),
        fact("Last batch", details.last_batch_at === null ? "" : age(details.last_batch_at)), fact("Zone", row.zone ?? ""),
        fact("Weight", row.weight === null ? "" : String(row.weight)), fact("Priority", row.priority === null ? "" : String(row.priority)),
        fact("Subscribes to", answer.subscribes?.join(", ") ?? ""), fact("Run by Airflow", row.expected ? "yes" : "no"),
      ),
    ),
    answer.exclusions.length ? panel("Kept from", { key: "exclusions" }, h("ul", { class: "problems decisions" }, answer.exclusions.map((one) => h(
      "li", {}, mark("⊘"), h("span", {}, topicLink(cluster, one.topic), ": ", saidBy(one.said, age(one.said.at))),
      commandButton("include", known, { consumer: one.consumer, topic: one.topic }),
    )))) : null,
  ].filter((one) => one !== null);
}
