/** The overrides in force: what people have decided, each with the button that takes it back. */

import { age } from "../ages.js";
import { clusterButtons, commandButton, commandOf, commandsOn, takesPartitions } from "../commands.js";
import { h } from "../dom.js";
import { number } from "../format.js";
import { consumerLink, empty, pairText, panel, partitions, saidBy, topicLink } from "../parts.js";
import { patchInside } from "../patch.js";
import { href } from "../router.js";

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
  const { assignor, summary, pins } = known;
  const { name } = summary;
  const row = (/** @type {string} */ key, /** @type {any[]} */ what, /** @type {any} */ said, /** @type {any} */ action, extra = "") => h(
    "li", { data: { key } }, h("span", { class: "what" }, what), h("span", { class: "why" }, said ? saidBy(said, age(said.at)) : "", extra ? h("b", { class: "error", text: ` ${extra}` }) : ""), action,
  );
  const list = (/** @type {any[]} */ rows, /** @type {CommandEntry | undefined} */ command) => (rows.length
    ? h("ul", { class: "decision-list" }, rows) : empty(`Nothing is ${command?.override}.`, command?.happens[0] ?? ""));
  /** The overrides of one command on consumers or topics. @param {CommandEntry} command */
  const overrides = (command) => {
    const found = known.overrides.filter((one) => one.command === command.name);
    const about = (/** @type {Record<string, any>} */ on) => [
      on.consumer ? consumerLink(name, on.consumer) : "", on.consumer && on.topic ? " from " : "",
      on.pattern ? h("code", { text: on.topic }) : on.topic ? topicLink(name, on.topic) : on.topic === "" ? "All topics" : "",
      on.partitions ? ` partition ${on.partitions}` : "", on.error ? [" ", h("code", { text: on.error })] : "", on.text ? ` with "${on.text}"` : "",
    ];
    const title = `${command.override[0].toUpperCase()}${command.override.slice(1)} ${command.subject}s${takesPartitions(command) ? " and partitions" : ""}`;
    return panel(title, { note: number(found.length), actions: [commandButton(command.name, known)] }, list(
      found.map(({ on, said, does }) => row(Object.values(on).join(" "), [about(on), does ? `: ${does}` : ""], said, commandButton(command.undo, known, on))), command));
  };
  return [
    panel("Coordination", { actions: clusterButtons(known, "small") }, h("ul", { class: "decision-list" },
      summary.paused ? row("paused", [h("b", { text: "Paused" })], summary.paused, null) : row("runs", ["Runs"], null, null),
      summary.rebalance_asked ? row("rebalance", [h("b", { text: "Rebalance asked for" }), ", not carried out yet"], summary.rebalance_asked, null) : null)),
    panel("Assignor", { actions: [commandButton("assignor", known)] }, h("ul", { class: "decision-list" }, row(
      "assignor",
      [h("b", { text: assignor.name }), Object.keys(assignor.options).length ? h("code", { text: ` ${JSON.stringify(assignor.options)}` }) : "", assignor.from_settings ? " as the settings say" : ` instead of ${assignor.configured}`, known.shadow_assignor ? h("span", { class: "muted", text: `; ${known.shadow_assignor} plans beside it, for comparison` }) : ""],
      assignor.said,
      assignor.from_settings ? h("a", { class: "button small", href: href(name, "what-if"), text: "Try another…" }) : commandButton("assignor", known, { assignor: null }),
    ))),
    panel("Pinned partitions", { note: known.pin_count > pins.length ? `${number(pins.length)} of ${number(known.pin_count)}` : number(known.pin_count), actions: [commandButton("pin", known)] }, list(
      pins.map((one) => row(`${one.topic} ${pairText(one.partitions)}`, [topicLink(name, one.topic), ` ${partitions(one.partitions)} → `, consumerLink(name, one.consumer)], one.said,
        commandButton("unpin", known, { topic: one.topic }, { partitions: pairText(one.partitions).replaceAll(" ", "") }), one.obstacle ? `Not obeyed now: ${one.obstacle}` : "")),
      commandOf("pin"),
    )),
    ...[...commandsOn("consumer"), ...commandsOn("topic")].filter((one) => one.override).map(overrides),
  ];
}
