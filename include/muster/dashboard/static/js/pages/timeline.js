/** The audit: every rebalance with its phases, moves and reasons, and everything that a person did. */

import { age, now } from "../ages.js";
import { of, read } from "../api.js";
import { did } from "../commands.js";
import { h } from "../dom.js";
import { clock, duration, moment, number, plural } from "../format.js";
import { consumerLink, empty, partitions, topicLink } from "../parts.js";
import { patchInside } from "../patch.js";
import { href, setQuery } from "../router.js";
import { look } from "../states.js";
import { happenings } from "../timeline_groups.js";

/** @typedef {import("../timeline_groups.js").Happening} Happening */

/** Entries a page of it; older ones are a page further, so that what is shown stays small. */
const ENTRIES = 150;
const NAMED = 3;
const MOVES = 60;

/** @param {string} cluster @param {URLSearchParams} query @returns {import("../views.js").View} */
export function timelineView(cluster, query) {
  const filter = (/** @type {string} */ name) => {
    const input = h("input", { type: "search", placeholder: `All ${name}s`, "aria-label": `Only this ${name}`, value: query.get(name) ?? "", spellcheck: "false", autocomplete: "off" });
    input.addEventListener("change", () => setQuery({ [name]: input.value.trim(), before: null }));
    return input;
  };
  const topic = filter("topic");
  const consumer = filter("consumer");
  const list = h("div", { class: "timeline", "aria-label": "What happened, the newest first" });
  const pager = h("nav", { class: "pager", "aria-label": "Older and newer" });
  const element = h("div", { class: "stack" }, h("div", { class: "filters" }, topic, consumer), list, pager);
  /** @type {TimelineAnswer | null} */
  let answer = null;
  let dag = "";
  return {
    title: [cluster, "Timeline"],
    element,
    load: async () => {
      const asked = new URLSearchParams({ limit: String(ENTRIES) });
      for (const name of ["topic", "consumer", "before"]) if (query.get(name)) asked.set(name, String(query.get(name)));
      const got = await read(`${of(cluster, "timeline")}?${asked}`);
      answer = got.body;
      return got;
    },
    draw: (known) => {
      if (!answer) return;
      dag = known?.summary.coordinator_dag ?? dag;
      const all = happenings(answer.entries);
      patchInside(list, ...days(all, cluster, dag));
      if (!all.length) patchInside(list, nothing(query));
      patchInside(pager, ...pages(answer, cluster, query));
    },
    query: (changed) => {
      query = changed;
      if (document.activeElement !== topic) topic.value = query.get("topic") ?? "";
      if (document.activeElement !== consumer) consumer.value = query.get("consumer") ?? "";
    },
  };
}

/** @param {URLSearchParams} query */
function nothing(query) {
  return query.get("topic") || query.get("consumer") || query.get("before")
    ? empty("Nothing is known of that.", "Take the filters away to see everything.")
    : empty("Nothing has happened yet.", "Every change of an assignment, and everything that a person does, will be here with its reason.");
}

/** @param {TimelineAnswer} answer @param {string} cluster @param {URLSearchParams} query */
function pages(answer, cluster, query) {
  const to = (/** @type {number | null} */ before) => {
    const next = new URLSearchParams(query);
    if (before === null) next.delete("before");
    else next.set("before", before);
    return href(cluster, "timeline", null, next);
  };
  return [
    query.get("before") ? h("a", { class: "button plain", href: to(null), text: "Newest" }) : null,
    answer.next_before !== null ? h("a", { class: "button plain", href: to(answer.next_before), text: "Older" }) : null,
  ].filter((one) => one !== null);
}

/** Under a heading a day. @param {Happening[]} all @param {string} cluster @param {string} dag */
function days(all, cluster, dag) {
  /** @type {Map<string, HTMLElement[]>} */
  const byDay = new Map();
  for (const one of all) {
    const day = moment(one.began).slice(0, 10);
    byDay.set(day, [...(byDay.get(day) ?? []), one.kind === "lever" ? command(one, cluster) : rebalance(one, cluster, dag)]);
  }
  const today = moment(now()).slice(0, 10);
  return [...byDay].map(([day, items]) => h("section", { data: { key: day } }, h("h2", { class: "day", text: day === today ? "Today" : day }), h("ol", {}, items)));
}

/** @param {Happening} one @param {string} cluster */
function command(one, cluster) {
  const [entry] = one.entries;
  if (entry.kind === "unreadable") {
    return h("li", { class: "happening", data: { key: one.id } }, when(one.began), h("span", { class: "mark", "aria-hidden": "true", text: "✕" }),
      h("div", { class: "body" }, h("p", { class: "error", text: `An entry that cannot be read: ${one.reason}` })));
  }
  const { consumer, topic, pattern, partitions: numbers } = /** @type {Record<string, any>} */ (entry.details);
  const on = [
    topic ? topicLink(cluster, String(topic)) : null,
    pattern ? h("code", { text: String(pattern) }) : null,
    numbers ? ` partitions ${Array.isArray(numbers) ? numbers.join(", ") : numbers}` : null,
    topic && consumer ? (entry.lever === "pin" ? " to " : " · ") : null,
    consumer ? consumerLink(cluster, String(consumer)) : null,
  ];
  return h(
    "li", { class: "happening command", data: { key: one.id } }, when(one.began), h("span", { class: "mark", "aria-hidden": "true", text: "◆" }),
    h("div", { class: "body" },
      h("p", {}, h("b", { text: one.who ?? "A person" }), ` ${did(entry.lever)} `, ...on, ": ", h("q", { text: one.reason }), entry.by ? h("span", { class: "muted", text: ` (${entry.by})` }) : null)),
  );
}

/** @param {Happening} one @param {string} cluster @param {string} dag */
function rebalance(one, cluster, dag) {
  const by = [...new Set(one.entries.map((entry) => entry.by).filter(Boolean))].slice(0, NAMED);
  return h(
    "li", { class: `happening ${one.done ? "done" : "under-way"}`, data: { key: one.id } }, when(one.began),
    h("span", { class: "mark", "aria-hidden": "true", text: one.done ? "●" : "↻" }),
    h(
      "div", { class: "body" },
      h("p", { class: "reason" }, h("b", { text: one.reason }), one.who ? h("span", { class: "muted", text: `, by ${one.who}` }) : null),
      h("p", { class: "muted summary" }, ...topicLinks(one.topics, cluster, ""), ` · ${one.moved ? `${plural(one.moved, "partition")} moved` : "nothing moved"}`,
        one.done ? (one.lasted === null ? "" : ` · took ${duration(one.lasted)}`) : h("span", {}, " · under way for ", age(one.began, "for"))),
      one.phases.length ? phaseBar(one) : null,
      h(
        "details", { data: { key: "details" } },
        h("summary", { text: `${plural(one.entries.length, "step")}${one.moved ? " and what moved" : ""}` }),
        h("ol", { class: "steps" }, one.entries.slice(0, 40).map((entry) => step(entry, one.topics.length > 1, cluster))),
        one.entries.length > 40 ? h("p", { class: "muted", text: `and ${number(one.entries.length - 40)} more steps; filter by a topic to see its own` }) : null,
        by.length ? h("p", { class: "muted" }, `Written by ${by.join(", ")}. `, dag ? h("a", { href: new URL(`../dags/${encodeURIComponent(dag)}`, document.baseURI).href, text: "Its runs", data: { airflow: "" } }) : null) : null,
      ),
    ),
  );
}

/** @param {number} at */
function when(at) {
  return h("time", { class: "when", datetime: new Date(at * 1000).toISOString(), title: moment(at), text: clock(at) });
}

/** @param {string[]} topics @param {string} cluster @param {string} before */
function topicLinks(topics, cluster, before) {
  if (!topics.length) return [];
  const links = topics.slice(0, NAMED).flatMap((topic, i) => [i ? ", " : "", topicLink(cluster, topic)]);
  return [before, ...links, topics.length > NAMED ? ` and ${plural(topics.length - NAMED, "more topic")}` : ""];
}

/** How long each phase took, to scale. @param {Happening} one */
function phaseBar(one) {
  const total = one.phases.reduce((sum, { lasted }) => sum + lasted, 0) || 1;
  const words = one.phases.map(({ phase, lasted }) => `${phase.toLowerCase()} ${duration(lasted)}`).join(", ");
  return h(
    "div", { class: "phases", role: "img", "aria-label": `Phases: ${words}` },
    h("div", { class: "phase-bar" }, one.phases.map(({ phase, lasted }) => h("span", { class: look(phase), style: { "flex-grow": String(Math.max(lasted / total, 0.02)) } }))),
    h("div", { class: "phase-words" }, one.phases.map(({ phase, lasted }) => h("span", { class: look(phase) }, h("span", { class: "swatch", "aria-hidden": "true" }), `${phase.toLowerCase()} ${duration(lasted)}`))),
  );
}

/** @param {TimelineEntry} entry @param {boolean} named whether its topic has to be said @param {string} cluster */
function step(entry, named, cluster) {
  const shown = entry.moves.slice(0, MOVES);
  return h(
    "li", { data: { key: entry.id } },
    h("p", {}, h("span", { class: "mono", text: clock(entry.at) }), " ", named ? h("b", { text: `${entry.topic} ` }) : null,
      h("span", { text: `${entry.before ?? "new"} → ${entry.after ?? "?"}` }),
      entry.lasted === null || entry.before === "Stable" ? "" : h("span", { class: "muted", text: ` after ${duration(entry.lasted)}` }),
      h("span", { class: "muted", text: `: ${entry.reason}${entry.epoch === null ? "" : ` (epoch ${entry.epoch})`}` })),
    shown.length ? h("ul", { class: "moves" }, shown.map((move) => h(
      "li", {}, `${partitions(move.partitions)} `, h("span", { class: "way" }, consumerLink(cluster, move.source), " → ", consumerLink(cluster, move.target)), h("span", { class: "muted", text: ` ${move.why}` }),
    ))) : null,
    entry.moves.length > shown.length ? h("p", { class: "muted", text: `and ${number(entry.moves.length - shown.length)} more` }) : null,
  );
}
