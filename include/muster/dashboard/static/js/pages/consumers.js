/** The consumers of a cluster, a row each. */

import { age } from "../ages.js";
import { of } from "../api.js";
import { consumerButtons, overrideOf } from "../commands.js";
import { h, setText } from "../dom.js";
import { number, rate } from "../format.js";
import { chip, empty } from "../parts.js";
import { patchInside } from "../patch.js";
import { RemoteList } from "../remote_list.js";
import { href } from "../router.js";
import { link, text } from "../table.js";

/**
 * @param {string} cluster @param {URLSearchParams} query @param {() => void} refresh
 * @returns {import("../views.js").View}
 */
export function consumersView(cluster, query, refresh) {
  /** @type {ClusterAnswer | null} */
  let known = null;
  /** @type {import("../table.js").Column<ConsumerRow>[]} */
  const columns = [
    { id: "consumer", label: "Consumer", by: true, class: "name", show: link((row) => row.consumer, (row) => href(cluster, "consumers", row.consumer)) },
    { id: "state", label: "State", by: true, width: "8.5rem", show: stateCell },
    { id: "partitions", label: "Partitions", by: true, class: "number", width: "6.5rem", show: partitionsCell },
    { id: "share", label: "Load", class: "wide", width: "7.5rem", hint: "Its partitions, by weight, over the average: 1 is its fair share", show: (cell, row) => patchInside(cell, share(row.share)) },
    { id: "lag", label: "Lag", by: true, class: "number", width: "6.5rem", hint: "Records not yet consumed", show: text((row) => number(row.lag)) },
    { id: "rate", label: "Arriving", by: true, class: "number wide", width: "6.5rem", show: text((row) => rate(row.rate)) },
    { id: "host", label: "Host", by: true, class: "wide", width: "9rem", show: text((row) => row.host || row.address || "–") },
    { id: "version", label: "Version", class: "wide", width: "5rem", show: text((row) => row.version || "–") },
    { id: "incarnation", label: "Incarnation", class: "wide mono", width: "6.5rem", hint: "Which start of it this is", show: (cell, row) => { setText(cell, row.incarnation.slice(0, 8) || "–"); cell.title = row.incarnation; } },
    { id: "started_at", label: "Uptime", by: true, class: "number wide", width: "7.5rem", show: (cell, row) => patchInside(cell, age(row.started_at, "for")) },
    { id: "error", label: "Error", class: "wide error-cell", width: "12%", show: text((row) => row.error || (row.said ? `isolated by ${row.said.by}: ${row.said.why}` : "")) },
    { id: "commands", label: "", class: "commands", width: "11.6rem", show: (cell, row) => patchInside(cell, ...consumerButtons(row, known, false)) },
  ];
  const list = new RemoteList({
    path: of(cluster, "consumers"), what: "consumers", one: "consumer", columns, key: (row) => row.consumer,
    states: ["live", "starting", "isolated", "not passing", "gone", "unknown"].map((state) => [state, state]),
    sort: { column: "state", down: false },
    none: (filtered) => (filtered
      ? empty("No consumer is like that.", h("a", { href: href(cluster, "consumers"), text: "Show all consumers" }))
      : empty("No consumer is live.", "Start them: unpause and trigger the DAG ",
        h("a", { href: new URL(`../dags/muster_consumers__${encodeURIComponent(cluster)}`, document.baseURI).href, text: `muster_consumers__${cluster}`, data: { airflow: "" } }), ".")),
  }, query, refresh);
  return {
    title: [cluster, "Consumers"],
    element: list.element,
    load: () => list.load(),
    draw: (now) => {
      known = now;
      list.draw(now);
    },
    query: (changed) => list.changed(changed),
  };
}

/** Its state, and what a person decided besides. @param {HTMLElement} cell @param {ConsumerRow} row */
function stateCell(cell, row) {
  const more = row.overrides.filter((one) => overrideOf(one) !== row.state);
  patchInside(cell, chip(row.state), ...more.map((one) => h("span", { class: "chip is-quiet", text: overrideOf(one), title: `by ${one.said.by}: ${one.said.why}` })));
}

/** @param {HTMLElement} cell @param {ConsumerRow} row */
function partitionsCell(cell, row) {
  const under = [row.restoring ? `${row.restoring} restoring` : "", row.starting ? `${row.starting} starting` : "", row.closing ? `${row.closing} closing` : ""].filter(Boolean).join(", ");
  setText(cell, `${number(row.partitions)}${under ? " ↻" : ""}`);
  cell.title = [`${number(row.running)} running`, row.parked ? `${number(row.parked)} parked` : "", row.paused ? `${number(row.paused)} paused` : "", under, row.pinned ? `${number(row.pinned)} pinned` : ""].filter(Boolean).join(", ");
}

/** How much it has, against its fair share, as a bar and a number. @param {number | null} share */
export function share(share) {
  if (share === null) return h("span", { class: "muted", text: "–" });
  return h(
    "span", { class: "share", title: `${share.toFixed(2)} times its fair share` },
    h("span", { class: "share-bar", "aria-hidden": "true" }, h("span", { class: share > 1.5 ? "much" : "", style: { width: `${Math.min(100, share * 50)}%` } })),
    h("span", { text: `${share.toFixed(2)}×` }),
  );
}
