/**
 * The commands, from the server's table: which buttons there are, what each asks, and how it is given. What a command
 * does is decided by the server; there is no list of commands here.
 */

import { on } from "./actions.js";
import { ApiError, of, read, send } from "./api.js";
import { clusterInSight, refresh, whyNot } from "./context.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { button } from "./parts.js";
import { say } from "./toasts.js";

/** @typedef {Record<string, any>} Values by field */

/** Consumers and topics that a foreseen plan names. */
const NAMED = 5;

/** @type {CommandsAnswer} */
let table = { commands: [], did: {} };

/** Read the table, unless it is there, and let the page's buttons give its commands. */
export async function loadCommands() {
  if (table.commands.length) return;
  const { body } = await read("commands");
  table = body;
  for (const command of table.commands) on(command.name, (/** @type {Values} */ needs) => give(command, needs));
}

/** @param {string} name @returns {CommandEntry | undefined} */
export function commandOf(name) {
  return table.commands.find((one) => one.name === name);
}

/** The commands about `subject` ("cluster", "consumer", "topic", "partitions", "source"). @param {string} subject */
export function commandsOn(subject) {
  return table.commands.filter((one) => one.subject === subject);
}

/** Whether a command takes the override of another one back. @param {CommandEntry} command */
export function isUndo(command) {
  return table.commands.some((one) => one.undo === command.name && one !== command);
}

/** Whether a command is for partitions, too, of the topic that it names. @param {CommandEntry} command */
export function takesPartitions(command) {
  return command.fields.some((one) => one.kind === "partitions");
}

/** An override in an adjective. @param {OverrideEntry} entry */
export function overrideOf(entry) {
  return commandOf(entry.command)?.override ?? entry.command;
}

/** What a command did, to complete "anna ...". @param {string | null} name as in the timeline */
export function did(name) {
  return table.did[name ?? ""] ?? name ?? "";
}

/**
 * The button of a command, null where the user may not use it.
 * @param {string} name @param {ClusterAnswer | null} known
 * @param {Values} [fixed] fields that the button settles; the dialog asks for the others
 * @param {Values} [guess] what the dialog proposes for those
 * @param {"plain" | "danger" | "primary" | "small"} [kind]
 */
export function commandButton(name, known, fixed = {}, guess = {}, kind = "small") {
  const command = commandOf(name);
  const why = whyNot(known, name);
  if (!command || why === null) return null;
  const about = [...Object.values(fixed), ...Object.values(guess)].filter((one) => typeof one === "string" && one);
  const label = isBack(fixed) ? "Take back" : command.label;
  return button(`${label}…`, name, /** @type {any} */ ({ fixed, guess }), { kind, whyNot: why, name: [label, ...about].join(" ") });
}

/**
 * The buttons of the cluster as a whole: those that make sense now.
 * @param {ClusterAnswer} known @param {"plain" | "small"} [kind]
 */
export function clusterButtons(known, kind = "plain") {
  return commandsOn("cluster").filter((one) => whyNot(known, one.name) === "")
    .map((one) => commandButton(one.name, known, {}, {}, isUndo(one) && kind === "plain" ? "primary" : kind));
}

/**
 * The buttons of a consumer, as its row offers them.
 * @param {ConsumerRow} row @param {ClusterAnswer | null} known
 * @param {boolean} all also those that need more than the consumer
 */
export function consumerButtons(row, known, all) {
  if (row.state === "gone") return [];
  return row.commands.map(commandOf).filter((one) => one && (all || one.fields.length === 1))
    .map((one) => commandButton(/** @type {CommandEntry} */ (one).name, known, { consumer: row.consumer }));
}

/** Bring about what a preview showed. */
export function registerApply() {
  on("apply", ({ what_if: whatIf, plan, way, moved, assignor }) => pull("apply", {
    title: way === "pins" ? `Pin the ${moved} partitions that move?` : `Change the assignor to ${assignor}?`,
    happens: way === "pins"
      ? ["Each partition that moves in this preview is pinned to who gets it there. The pins stay until they are taken back."]
      : ["The coordinator plans with it from its next run on, until that is taken back."],
    confirm: way === "pins" ? "Apply as pins" : "Change the assignor",
  }, () => ({ what_if: whatIf, plan, way })));
}

const name = () => clusterInSight()?.summary.name ?? "";

/** Whether what a command settles is taken back: no value is left. @param {Values} fixed */
function isBack(fixed) {
  return Object.values(fixed).includes(null);
}

/** Ask what `command` needs, and give it. @param {CommandEntry} command @param {Values} needs */
async function give(command, { fixed = {}, guess = {} }) {
  const fields = command.fields.filter((one) => !(one.name in fixed));
  const subject = Object.values(fixed).filter((one) => typeof one === "string");
  const back = isBack(fixed);
  /** What is sent besides the reason. @param {Record<string, string>} values */
  const body = (values) => ({ ...fixed, ...Object.fromEntries(fields.map((one) => [one.name, valueOf(one, values)])) });
  await pull(command.name, {
    title: back ? "Take the choice back?" : filled(command.question, { ...fixed, cluster: name() }, command.label),
    happens: back ? ["What the settings say counts again."] : command.happens,
    fields: fields.map((one) => fieldOf(one, guess)),
    confirm: back ? "Take back" : command.subject === "record" ? command.label : [command.label, ...subject].join(" "),
    danger: command.risky,
    foresee: command.foresees ? (values) => foreseenLines(command, body, values)
      : command.preview && !fields.length && !back ? () => foresee(replaced(command.preview, fixed)) : undefined,
  }, body);
}

/**
 * What a command would do, as the server says it, once all that it needs is filled in.
 * @param {CommandEntry} command @param {(values: Record<string, string>) => Record<string, any>} body @param {Record<string, string>} values
 */
async function foreseenLines(command, body, values) {
  const given = body(values);
  const open = command.fields.find((one) => !one.optional && one.kind !== "flag" && !given[one.name]);
  if (open) return `What it would do is shown here when ${open.label} is filled in.`;
  const sources = command.fields.filter((one) => one.kind === "source");
  if (sources.length && !sources.some((one) => given[one.name])) return "What it would do is shown here when a source is filled in.";
  const { lines } = await send(of(name(), "levers", command.name, "foresee"), { ...given, reason: values.reason || "preview" });
  return h("ul", { class: "lines" }, lines.map((/** @type {string} */ line) => h("li", { text: line })));
}

/** @param {CommandField} field @param {Values} guess @returns {import("./dialog.js").Field} */
function fieldOf({ name: field, kind, label, hint, optional }, guess) {
  const known = clusterInSight();
  const suggestions = kind === "consumer" ? guess.consumers : kind === "assignor" ? known?.assignors : [];
  return { name: field, label, hint, value: guess[field] ?? "", suggestions, flag: kind === "flag", options: kind === "assignor", optional };
}

/** A field as the server takes it. @param {CommandField} field @param {Record<string, string>} values */
function valueOf({ name: field, kind }, values) {
  if (kind === "flag") return values[field] === "on";
  if (kind === "assignor") return { name: values[field], options: JSON.parse(values[`${field}-options`] || "{}") };
  return values[field];
}

/** `text` with its braces filled; `otherwise` where one stays open. @param {string} text @param {Values} values @param {string} otherwise */
function filled(text, values, otherwise) {
  const done = text.replace(/\{(\w+)\}/g, (whole, key) => String(values[key] ?? whole));
  return /\{\w+\}/.test(done) ? `${otherwise}?` : done;
}

/** What a preview supposes, with the fields in the place of their braces. @param {any} part @param {Values} values @returns {any} */
function replaced(part, values) {
  if (typeof part === "string") return /^\{\w+\}$/.test(part) ? values[part.slice(1, -1)] : part;
  if (Array.isArray(part)) return part.map((one) => replaced(one, values));
  return Object.fromEntries(Object.entries(part).map(([key, one]) => [key, replaced(one, values)]));
}

/**
 * Ask, then give the command.
 * @param {string} path of the command
 * @param {Omit<import("./dialog.js").Question, "act">} question
 * @param {(values: Record<string, string>) => object} body what is sent besides the reason
 */
async function pull(path, question, body) {
  const cluster = name();
  await ask({
    ...question,
    act: async (values) => {
      /** @type {{lines: string[]}} */
      const done = await send(of(cluster, "levers", path), { ...body(values), reason: values.reason }).catch((why) => {
        // What was shown is no longer so: behind the dialog it is read again.
        if (why instanceof ApiError && why.status === 409) globalThis.dispatchEvent(new Event("muster:query"));
        throw why;
      });
      say(done.lines.join(" · ") || "Done");
      refresh();
    },
  });
}

/** What would move under `whatIf`, in a few lines. @param {object} whatIf */
async function foresee(whatIf) {
  return moveSummary(await send(of(name(), "what-if"), whatIf));
}

/** What a plan would move, in a few lines. @param {WhatIfAnswer} seen @returns {HTMLElement} */
function moveSummary(seen) {
  if (seen.held) return h("p", { text: `Nothing would move: ${seen.held}.` });
  if (!seen.moved) return h("p", { text: "Nothing would move as things stand." });
  const gains = seen.shares.filter((share) => share.after > share.before);
  const named = gains.slice(0, NAMED).map((share) => `${share.consumer} +${share.after - share.before}`);
  const more = gains.length - named.length;
  return h(
    "div", {},
    h("p", {}, h("b", { text: `${plural(seen.moved, "partition")} would move` }),
      named.length ? `: ${named.join(", ")}${more > 0 ? ` and ${plural(more, "more consumer")}` : ""}.` : "."),
    seen.after.unowned ? h("p", { class: "error", text: `${plural(seen.after.unowned, "partition")} would have no owner.` }) : null,
    seen.under_way.length ? h("p", { class: "muted", text: `What is under way is finished first: ${seen.under_way.slice(0, NAMED).join(", ")}${seen.under_way.length > NAMED ? " …" : ""}.` }) : null,
  );
}
