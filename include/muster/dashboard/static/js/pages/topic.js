/** One topic: how it stands and why, and the matrix of all its partitions. */

import { age } from "../ages.js";
import { of, read } from "../api.js";
import { commandButton, commandsOn, isUndo, takesPartitions } from "../commands.js";
import { h } from "../dom.js";
import { calm, number, plural, rate, short } from "../format.js";
import { MatrixBox } from "../matrix_box.js";
import { banner, below, chip, consumerLink, figure, figures, holds, lacking, mark, pairText, partitions, saidBy } from "../parts.js";
import { patchInside } from "../patch.js";
import { href } from "../router.js";

/** Whether a command may be about topics by a pattern. @param {CommandEntry} command */
const takesPattern = (command) => command.fields.some((one) => one.name === "pattern");

/**
 * @param {string} cluster @param {string} topic
 * @returns {import("../views.js").View}
 */
export function topicView(cluster, topic) {
  const box = new MatrixBox(cluster, { headings: false });
  const top = h("div", { class: "stack" });
  const note = h("p", { class: "note" });
  const element = h(
    "div", { class: "stack" }, top,
    h("section", { class: "panel" }, h("header", { class: "panel-head" }, h("h2", { text: "Partitions by consumer" }), note), box.element),
  );
  /** @type {TopicAnswer | null} */
  let answer = null;
  return {
    title: [cluster, "Topics", topic],
    element,
    load: async () => {
      const got = await read(of(cluster, "topics", topic));
      answer = got.body;
      return got;
    },
    draw: (known) => {
      if (!answer) return;
      patchInside(top, ...drawn(answer, cluster, known));
      note.textContent = `${plural(answer.row.partitions, "partition")}, ${plural(answer.consumers.length, "consumer")}`;
      box.show([answer], [], known);
    },
  };
}

/** @param {TopicAnswer} answer @param {string} cluster @param {ClusterAnswer | null} known */
function drawn(answer, cluster, known) {
  const { row } = answer;
  return [
    row.error ? banner("critical", "unreadable", h("p", {}, h("b", { text: "This topic cannot be read, and is left alone. " }), row.error)) : null,
    row.stuck ? banner("critical", "stuck", h("p", { text: row.stuck })) : null,
    h(
      "section", { class: "panel", data: { key: "topic" }, "aria-label": `Topic ${row.topic}` },
      h(
        "header", { class: "panel-head item-head" },
        h("h2", { class: "item", text: row.topic }), chip(row.state), h("span", { class: "muted" }, "for ", age(row.since, "for")),
        h("div", { class: "actions" }, ...commandGroups(answer, known),
          h("a", { class: "button small", href: href(cluster, "timeline", null, { topic: row.topic }), text: "Timeline" })),
      ),
      figures(
        figure("Partitions", number(row.partitions), row.pinned ? `${number(row.pinned)} pinned` : ""),
        figure("Owners", number(row.owners)),
        figure("Lag", short(row.lag), "records"),
        figure("Behind", calm(row.behind.age), below(row.behind, row.max_lag)),
        figure("Arriving", rate(row.rate)),
        ...stateFigure(answer),
        figure("Group", h("span", { class: "mono small", text: answer.group_id || "–" }), answer.bootstrap_servers),
        figure("Epoch", String(row.epoch), "grows with each plan"),
      ),
      row.reason ? h("p", { class: "last" }, h("span", { class: "muted", text: `Why it is ${row.state}: ` }), h("q", { text: row.reason })) : null,
      answer.waiting.length ? h("ul", { class: "problems" }, answer.waiting.map((one) => h(
        "li", { class: "waiting" }, mark("↻"),
        h("span", {}, one.consumer ? consumerLink(cluster, one.consumer) : null, ` ${lacking(one)}: ${one.why}`,
          one.since === null ? null : h("span", { class: "muted" }, " (", age(one.since, "for"), ")")),
        one.offset === null ? null : commandsOn("record").map((each) => commandButton(each.name, known, {
          topic: one.topic, partition: pairText(one.partitions), offset: String(one.offset),
        })),
      ))) : null,
      decisions(answer, cluster, known),
    ),
  ].filter((one) => one !== null);
}

/** What one may want of a topic: who reads it, what is read, and what becomes of records that fail. @param {TopicAnswer} answer @param {ClusterAnswer | null} known */
function commandGroups({ row: { topic }, consumers }, known) {
  const all = commandsOn("topic");
  const failing = all.filter((one) => one.fields.some((field) => field.name === "error"));
  const reading = all.filter((one) => takesPartitions(one) && !failing.includes(one));
  const others = all.filter((one) => !reading.includes(one) && !failing.includes(one) && (isUndo(one) || !takesPattern(one)));
  const made = (/** @type {typeof all} */ some) =>
    some.map((one) => commandButton(one.name, known, { topic, ...(takesPattern(one) ? { pattern: false } : {}) }));
  const owning = ["pin", "exclude"].map((one) => commandButton(one, known, { topic }, { consumers: consumers.slice(0, 200) }));
  return [[...owning, ...made(others)], made(reading), made(failing)].map((buttons) => h("div", { class: "group" }, buttons));
}

/** How much state there is, and what of it is not there. @param {TopicAnswer} answer */
function stateFigure({ row, shards }) {
  const all = Object.values(shards);
  if (!all.length) return [];
  const [keys, size] = holds(all);
  const waiting = all.filter((one) => one.differs).length;
  const restoring = row.partition_states.T ?? 0;
  const below = [size, restoring ? `${number(restoring)} restoring` : "", waiting ? `${number(waiting)} waiting for a person` : ""];
  return [figure("State", keys, below.filter(Boolean).join(", "))];
}

/** Pins and exclusions of this topic. @param {TopicAnswer} answer @param {string} cluster @param {ClusterAnswer | null} known */
function decisions(answer, cluster, known) {
  if (!answer.pins.length && !answer.exclusions.length) return null;
  return h(
    "ul", { class: "problems decisions" },
    answer.pins.map((one) => h(
      "li", {}, mark("◆"),
      h("span", {}, `${partitions(one.partitions)} pinned to `, consumerLink(cluster, one.consumer), ": ", saidBy(one.said, age(one.said.at)),
        one.obstacle ? h("b", { class: "error", text: ` Not obeyed now: ${one.obstacle}` }) : ""),
      commandButton("unpin", known, { topic: one.topic }, { partitions: pairText(one.partitions).replaceAll(" ", "") }),
    )),
    answer.exclusions.map((one) => h(
      "li", {}, mark("⊘"),
      h("span", {}, consumerLink(cluster, one.consumer), " is kept from this topic: ", saidBy(one.said, age(one.said.at))),
      commandButton("include", known, { consumer: one.consumer, topic: one.topic }),
    )),
  );
}
