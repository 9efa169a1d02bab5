/** What if: a plan that is not carried out, and then, if it is liked, brings about. What is supposed is in the address. */

import { of, read, send } from "../api.js";
import { whyNot } from "../context.js";
import { h } from "../dom.js";
import { number, plural, span } from "../format.js";
import { banner, button, empty, figure, figures, pairText } from "../parts.js";
import { patchInside } from "../patch.js";
import { href, setQuery } from "../router.js";
import { link, text, VirtualTable } from "../table.js";

/** Consumers that the form suggests at most. */
const SUGGESTED = 200;
const SHARES = 24;

/** @param {string} cluster @param {URLSearchParams} query @returns {import("../views.js").View} */
export function whatIfView(cluster, query) {
  const form = new WhatIfForm(cluster);
  const result = h("div", { class: "stack", "aria-live": "polite" });
  /** @type {import("../table.js").Column<MoveEntry>[]} */
  const columns = [
    { id: "topic", label: "Topic", by: (row) => row.topic, class: "name", show: link((row) => row.topic, (row) => href(cluster, "topics", row.topic)) },
    { id: "partitions", label: "Partitions", by: (row) => row.partitions[0]?.[0] ?? null, class: "mono", show: text((row) => pairText(row.partitions)) },
    { id: "source", label: "From", by: (row) => row.source, show: text((row) => row.source ?? "no consumer") },
    { id: "target", label: "To", by: (row) => row.target, show: text((row) => row.target ?? "no consumer") },
    { id: "why", label: "Why", by: (row) => row.why, width: "38%", class: "wrap", show: text((row) => row.why) },
  ];
  const table = new VirtualTable({ label: "What would move", columns, sort: { column: "topic", down: false },
    key: (row) => `${row.topic} ${row.source} ${row.target} ${pairText(row.partitions)} ${row.why}` });
  const moves = h("section", { class: "panel flush", hidden: true }, h("header", { class: "panel-head" }, h("h2", { text: "What would move" })), table.element);
  const element = h("div", { class: "stack" }, form.element, result, moves);
  form.fill(query);
  /** @type {{asked: object, answer: WhatIfAnswer | null, error: string} | null} */
  let seen = null;
  let turn = 0;
  /** @type {ClusterAnswer | null} */
  let known = null;

  const preview = async () => {
    const mine = (turn += 1);
    patchInside(result, h("p", { class: "muted", text: "Planning …" }));
    let asked = {};
    try {
      asked = wanted(query);
      const answer = await send(of(cluster, "what-if"), asked);
      if (mine === turn) seen = { asked, answer, error: "" };
    } catch (why) {
      if (mine === turn) seen = { asked, answer: null, error: why instanceof Error ? why.message : String(why) };
    }
    if (mine === turn) show();
  };
  const show = () => {
    if (!seen) return;
    patchInside(result, ...(seen.answer ? drawn(seen.answer, seen.asked, known) : [banner("critical", "error", h("p", { text: seen.error }))]));
    moves.hidden = !seen.answer?.moves.length;
    table.show(seen.answer?.moves ?? []);
  };
  return {
    title: [cluster, "What if"],
    element,
    load: async () => {
      await form.load();
      return null;
    },
    draw: (now) => {
      known = now;
      form.draw(now);
      if (!seen && query.size) preview();
      else if (seen) show();
      else patchInside(result, empty("Suppose something, and see what would move.", "Nothing is changed by looking. With nothing supposed it shows what the next run of the coordinator would do."));
    },
    query: (changed) => {
      query = changed;
      form.fill(query);
      preview();
    },
  };
}

/** What the address supposes, as the server takes it; throws for what cannot be read. @param {URLSearchParams} query */
export function wanted(query) {
  const assignor = query.get("assignor") ?? "";
  const options = pairs(query.get("options") ?? "", "an option", optionValue);
  const partitions = pairs(query.get("partitions") ?? "", "a topic", partitionCount);
  return {
    without: names(query.get("without") ?? ""),
    more: Math.max(0, Number(query.get("more") ?? 0) || 0),
    ...(Object.keys(partitions).length ? { partitions } : {}),
    ...(assignor || Object.keys(options).length ? { assignor: { ...(assignor ? { name: assignor } : {}), ...(Object.keys(options).length ? { options } : {}) } } : {}),
  };
}

/** What is separated by commas, but for those within brackets. @param {string} text */
function names(text) {
  return text.split(/,(?![^[{]*[\]}])/).map((one) => one.trim()).filter(Boolean);
}

/**
 * `key=value, key=value` as an object.
 * @template V
 * @param {string} text @param {string} what a key is @param {(text: string, key: string) => V} value
 * @returns {Record<string, V>}
 */
function pairs(text, what, value) {
  return Object.fromEntries(names(text).map((one) => {
    const at = one.indexOf("=");
    if (at < 1) throw new Error(`"${one}" is not ${what}, "=" and a value`);
    const key = one.slice(0, at).trim();
    return [key, value(one.slice(at + 1).trim(), key)];
  }));
}

/** A number, true, false or JSON where it is one, else the text itself. @param {string} text */
function optionValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** @param {string} text @param {string} topic */
function partitionCount(text, topic) {
  if (!/^\d+$/.test(text)) throw new Error(`topic ${topic}: "${text}" is no number of partitions`);
  return Number(text);
}

/** The form of what is supposed. */
class WhatIfForm {
  /** @param {string} cluster */
  constructor(cluster) {
    this.cluster = cluster;
    /** @type {string[]} */
    this.names = [];
    this.assignors = h("datalist", { id: "what-if-assignors" });
    this.consumers = h("datalist", { id: "what-if-consumers" });
    this.assignor = h("input", { id: "what-if-assignor", type: "text", list: "what-if-assignors", autocomplete: "off", spellcheck: "false" });
    this.options = h("input", { id: "what-if-options", type: "text", autocomplete: "off", spellcheck: "false", "aria-describedby": "what-if-options-hint" });
    this.partitions = h("input", { id: "what-if-partitions", type: "text", autocomplete: "off", spellcheck: "false", "aria-describedby": "what-if-partitions-hint" });
    this.without = h("input", { id: "what-if-without", type: "text", list: "what-if-consumers", autocomplete: "off", spellcheck: "false", "aria-describedby": "what-if-without-hint" });
    this.more = h("input", { id: "what-if-more", type: "number", min: 0, max: 1000, value: "0" });
    const field = (/** @type {HTMLInputElement} */ input, /** @type {string} */ label, /** @type {string} */ hint) =>
      h("div", { class: "field" }, h("label", { for: input.id, text: label }), input, h("p", { class: "hint", id: `${input.id}-hint`, text: hint }));
    this.element = h(
      "form", { class: "panel what-if-form" },
      field(this.assignor, "Another assignor", "Built in, or in the settings"),
      field(this.options, "Options of it", "As tolerance=0.2"),
      field(this.without, "Without consumers", "Separated by commas"),
      field(this.more, "More consumers", "Of weight 1, of all topics"),
      field(this.partitions, "Numbers of partitions", "As flights=24, weather=8"),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "button primary", text: "Preview" })),
      this.assignors, this.consumers,
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      setQuery({
        assignor: this.assignor.value.trim(), options: this.options.value.trim(), partitions: this.partitions.value.trim(), without: names(this.without.value).join(","),
        more: this.more.value && this.more.value !== "0" ? this.more.value : null, at: String(Date.now() % 100000),
      });
    });
  }

  async load() {
    if (this.names.length) return;
    const { body } = await read(`${of(this.cluster, "consumers")}?state=live&offset=0&limit=${SUGGESTED}`);
    this.names = body.consumers.map((/** @type {any} */ row) => row.consumer);
  }

  /** @param {ClusterAnswer | null} known */
  draw(known) {
    patchInside(this.assignors, ...(known?.assignors ?? []).map((value) => h("option", { value })));
    patchInside(this.consumers, ...this.names.map((value) => h("option", { value })));
    this.assignor.placeholder = known ? `${known.assignor.name}, as now` : "";
  }

  /** @param {URLSearchParams} query */
  fill(query) {
    this.assignor.value = query.get("assignor") ?? "";
    this.options.value = query.get("options") ?? "";
    this.partitions.value = query.get("partitions") ?? "";
    this.without.value = query.get("without") ?? "";
    this.more.value = query.get("more") ?? "0";
  }
}

/** @param {WhatIfAnswer} seen @param {object} asked @param {ClusterAnswer | null} known */
function drawn(seen, asked, known) {
  const total = seen.after.partitions || 1;
  return [
    ...seen.states.map((one, i) => banner("info", `state ${i}`, h("p", { text: one }))),
    ...seen.warnings.map((one, i) => banner("warning", `warning ${i}`, h("p", { text: one }))),
    ...seen.impossible_pins.map((one, i) => banner("warning", `pin ${i}`, h("p", { text: one }))),
    Object.keys(seen.unreadable).length ? banner("warning", "unreadable", h("p", { text: `Left out, because they cannot be read: ${Object.keys(seen.unreadable).slice(0, 10).join(", ")}` })) : null,
    seen.under_way.length ? banner("info", "under way", h("p", { text: `Finished first, because it is under way: ${seen.under_way.slice(0, 10).join(", ")}` })) : null,
    h(
      "section", { class: "panel", data: { key: "result" } },
      h("header", { class: "panel-head" },
        h("h2", { text: seen.held ? "Nothing would be planned" : seen.moved ? `${plural(seen.moved, "partition")} would move` : "Nothing would move" }),
        h("p", { class: "note", text: seen.held || `${((100 * seen.moved) / total).toFixed(seen.moved && seen.moved < total / 100 ? 1 : 0)}% of ${number(total)}, planned with ${seen.assignor}` }),
        h("div", { class: "actions" }, applyButtons(seen, asked, known))),
      figures(
        figure("Now", span(seen.before.least, seen.before.most), seen.before.words),
        figure("Then", span(seen.after.least, seen.after.most), seen.after.words),
      ),
      seen.reasons.length ? h("ul", { class: "reasons", "aria-label": "Why" }, seen.reasons.slice(0, 12).map(([why, count]) => h(
        "li", {}, h("b", { text: number(count) }), h("span", { class: "reason-bar", "aria-hidden": "true" }, h("span", { style: { width: `${(100 * count) / Math.max(1, seen.moved)}%` } })), h("span", { text: why }),
      ))) : null,
      shares(seen),
    ),
  ].filter((one) => one !== null);
}

/** @param {WhatIfAnswer} seen */
function shares(seen) {
  if (!seen.shares.length) return null;
  const most = Math.max(1, ...seen.shares.map((one) => Math.max(one.before, one.after)));
  const bar = (/** @type {number} */ value, /** @type {string} */ name) => h("span", { class: `bar ${name}` }, h("span", { style: { width: `${(100 * value) / most}%` } }));
  const shown = seen.shares.slice(0, SHARES);
  return h(
    "table", { class: "shares" },
    h("caption", { text: `Partitions by consumer${seen.share_count > shown.length ? `: the ${shown.length} that change most, of ${number(seen.share_count)}` : ""}` }),
    h("thead", {}, h("tr", {}, ["Consumer", "Now", "Then", "Change"].map((one) => h("th", { scope: "col", text: one })))),
    h("tbody", {}, shown.map((one) => h(
      "tr", { data: { key: one.consumer } }, h("th", { scope: "row", text: one.consumer }),
      h("td", {}, bar(one.before, "now"), h("span", { text: number(one.before) })), h("td", {}, bar(one.after, "then"), h("span", { text: number(one.after) })),
      h("td", { class: "number", text: one.after === one.before ? "0" : `${one.after > one.before ? "+" : "−"}${number(Math.abs(one.after - one.before))}` }),
    ))),
  );
}

/** @param {WhatIfAnswer} seen @param {object} asked @param {ClusterAnswer | null} known */
function applyButtons(seen, asked, known) {
  const why = whyNot(known, "apply");
  if (why === null || !seen.moved && !(/** @type {any} */ (asked).assignor)) return [];
  const needs = (/** @type {string} */ way) => /** @type {any} */ ({ what_if: asked, plan: seen.plan, way, moved: number(seen.moved), assignor: seen.assignor });
  return [
    button("Apply as pins…", "apply", needs("pins"), { whyNot: why || (seen.as_pins.possible ? "" : seen.as_pins.why_not) }),
    button("Change the assignor…", "apply", needs("assignor"), { whyNot: why || (seen.as_assignor.possible ? "" : seen.as_assignor.why_not) }),
  ];
}
