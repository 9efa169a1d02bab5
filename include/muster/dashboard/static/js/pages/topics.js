/** The topics of a cluster, a row each. */

import { age } from "../ages.js";
import { of } from "../api.js";
import { commandButton, commandsOn } from "../commands.js";
import { h, setText } from "../dom.js";
import { calm, catchUp, duration, number, rate } from "../format.js";
import { chip, empty, stateBar } from "../parts.js";
import { patchInside } from "../patch.js";
import { RemoteList } from "../remote_list.js";
import { href } from "../router.js";
import { link, text } from "../table.js";

/**
 * @param {string} cluster @param {URLSearchParams} query @param {() => void} refresh
 * @returns {import("../views.js").View}
 */
export function topicsView(cluster, query, refresh) {
  /** @type {import("../table.js").Column<TopicRow>[]} */
  const columns = [
    { id: "topic", label: "Topic", by: true, class: "name", show: link((row) => row.topic, (row) => href(cluster, "topics", row.topic)) },
    { id: "state", label: "State", by: true, width: "8.5rem", show: (cell, row) => patchInside(cell, chip(row.state)) },
    { id: "since", label: "For", by: true, class: "number wide", width: "7rem", hint: "How long it has been Stable, or not Stable", show: (cell, row) => patchInside(cell, age(row.since, "for")) },
    { id: "partition_states", label: "Partitions", class: "wide", width: "9rem", show: (cell, row) => patchInside(cell, stateBar(row.partition_states, `Partitions of ${row.topic}`)) },
    { id: "partitions", label: "#", by: true, class: "number", width: "4.5rem", hint: "Partitions", show: text((row) => number(row.partitions)) },
    { id: "owners", label: "Owners", class: "number wide", width: "5.5rem", hint: "Consumers that have partitions of it", show: text((row) => number(row.owners)) },
    { id: "lag", label: "Lag", by: true, class: "number", width: "7rem", hint: "Records not yet consumed", show: text((row) => number(row.lag)) },
    { id: "age", label: "Behind", by: true, class: "number", width: "7rem", hint: "Age of the oldest record that is not committed, and how long it takes to catch up", show: (cell, row) => {
      setText(cell, calm(row.behind.age));
      cell.title = catchUp(row.behind);
    } },
    { id: "rate", label: "Arriving", by: true, class: "number wide", width: "6.5rem", show: text((row) => rate(row.rate)) },
    { id: "reason", label: "Why", class: "wide muted", width: "24%", hint: "Why it left or reached its state", show: text((row) => row.stuck || row.error || row.reason) },
  ];
  const list = new RemoteList({
    path: of(cluster, "topics"), what: "topics", one: "topic", columns, key: (row) => row.topic,
    states: ["Stable", "Starting", "Closing", "Initial", "Unreadable"].map((state) => [state, state]),
    sort: { column: "state", down: false },
    none: (filtered, known) => (filtered
      ? empty("No topic is like that.", h("a", { href: href(cluster, "topics"), text: "Show all topics" }))
      : empty("The cluster has no topic yet.", "Topics that the settings name, or that match their patterns, show up when the coordinator has run: is its DAG ",
        h("code", { text: known?.summary.coordinator_dag ?? "" }), ` unpaused?${known ? ` It looks every ${duration(known.tick)}.` : ""}`)),
  }, query, refresh);
  const actions = h("div", { class: "actions" });
  return {
    title: [cluster, "Topics"], element: h("div", { class: "stack" }, actions, list.element), load: () => list.load(), query: (changed) => list.changed(changed),
    draw: (known) => {
      patchInside(actions, ...[...commandsOn("topic"), ...commandsOn("source")].map((one) => commandButton(one.name, known)).filter((one) => one !== null));
      list.draw(known);
    },
  };
}
