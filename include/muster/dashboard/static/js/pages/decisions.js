/** What people have decided by hand and what still stands of it, each with the button that takes it back. */

import { age } from "../ages.js";
import { whyNot } from "../context.js";
import { h } from "../dom.js";
import { number } from "../format.js";
import { button, empty, pairText, panel, partitions, saidBy } from "../parts.js";
import { patchInside } from "../patch.js";
import { href } from "../router.js";

/** @typedef {import("../types.js").ClusterAnswer} ClusterAnswer */

/** @param {string} cluster @returns {import("../views.js").View} */
export function decisionsView(cluster) {
  const element = h("div", { class: "stack" });
  return {
    title: [cluster, "Decisions"],
    element,
    load: async () => null,
    draw: (known) => known && patchInside(element, ...drawn(known)),
  };
}

/** @param {ClusterAnswer} known */
function drawn(known) {
  const { isolated, pins, exclusions, assignor, summary } = known;
  const { name } = summary;
  /** @type {(lever: string, label: string, needs: any, what: string) => HTMLElement | null} */
  const back = (lever, label, needs, what) => {
    const why = whyNot(known, lever);
    return why === null ? null : button(label, lever, needs, { kind: "small", whyNot: why, name: `${label.replace("…", "")} ${what}` });
  };
  const add = (/** @type {string} */ lever, /** @type {string} */ label) => {
    const why = whyNot(known, lever);
    return why === null ? null : button(label, lever, {}, { kind: "small", whyNot: why });
  };
  const consumer = (/** @type {string} */ id) => h("a", { href: href(name, "consumers", id), text: id });
  const topic = (/** @type {string} */ id) => h("a", { href: href(name, "topics", id), text: id });
  const row = (/** @type {string} */ key, /** @type {any[]} */ what, /** @type {any} */ said, /** @type {any} */ action, extra = "") => h(
    "li", { data: { key } }, h("span", { class: "what" }, what), h("span", { class: "why" }, said ? saidBy(said, age(said.at)) : "", extra ? h("b", { class: "error", text: ` ${extra}` }) : ""), action,
  );
  const list = (/** @type {any[]} */ rows, /** @type {string} */ none, /** @type {string} */ next) => (rows.length ? h("ul", { class: "decision-list" }, rows) : empty(none, next));
  return [
    panel("Coordination", {}, summary.paused
      ? h("ul", { class: "decision-list" }, row("paused", [h("b", { text: "Paused" })], summary.paused, back("resume", "Resume…", {}, "coordination")))
      : h("ul", { class: "decision-list" }, row("runs", ["Runs"], null, back("pause", "Pause…", {}, "coordination")),
        summary.rebalance_asked ? row("rebalance", [h("b", { text: "Rebalance asked for" }), ", not carried out yet"], summary.rebalance_asked, null) : null)),
    panel("Assignor", {}, h("ul", { class: "decision-list" }, row(
      "assignor",
      [h("b", { text: assignor.name }), Object.keys(assignor.options).length ? h("code", { text: ` ${JSON.stringify(assignor.options)}` }) : "", assignor.from_settings ? " as clusters.yaml says" : ` instead of ${assignor.configured}`, known.shadow_assignor ? h("span", { class: "muted", text: `; ${known.shadow_assignor} plans beside it, for comparison` }) : ""],
      assignor.said,
      assignor.from_settings ? h("a", { class: "button small", href: href(name, "what-if"), text: "Try another…" }) : back("assignor", "Take back…", { assignor: null, configured: assignor.configured }, "the choice of assignor"),
    ))),
    panel("Isolated consumers", { note: number(isolated.length) }, list(
      isolated.map((one) => row(one.consumer, [consumer(one.consumer)], one.said, back("restore", "Restore…", { consumer: one.consumer }, one.consumer))),
      "No consumer is isolated.", "A consumer that misbehaves can be taken out on the page of the consumers.",
    )),
    panel("Pins", { note: known.pin_count > pins.length ? `${number(pins.length)} of ${number(known.pin_count)}` : number(known.pin_count), actions: [add("pin", "Pin…")] }, list(
      pins.map((one) => row(`${one.topic} ${pairText(one.partitions)}`, [topic(one.topic), ` ${partitions(one.partitions)} → `, consumer(one.consumer)], one.said,
        back("unpin", "Unpin…", { topic: one.topic, partitions: pairText(one.partitions).replaceAll(" ", "") }, `${one.topic} ${pairText(one.partitions)}`), one.obstacle ? `Not obeyed now: ${one.obstacle}` : "")),
      "No partition is pinned.", "A pin fixes a partition to a consumer, whatever the assignor would do.",
    )),
    panel("Exclusions", { note: number(exclusions.length), actions: [add("exclude", "Exclude…")] }, list(
      exclusions.map((one) => row(`${one.consumer} ${one.topic}`, [consumer(one.consumer), " is kept from ", topic(one.topic)], one.said, back("include", "Include…", { consumer: one.consumer, topic: one.topic }, `${one.consumer} for ${one.topic}`))),
      "No consumer is kept from a topic.", "An exclusion keeps one consumer from one topic.",
    )),
  ];
}
