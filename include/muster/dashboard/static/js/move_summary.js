/** What a plan would move, in a few lines. */

import { h } from "./dom.js";
import { plural } from "./format.js";

const NAMED = 5;

/** @param {WhatIfAnswer} seen @returns {HTMLElement} */
export function moveSummary(seen) {
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
