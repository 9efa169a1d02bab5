/** Short messages on what was done, read out by screen readers. */

import { h } from "./dom.js";

const STAYS = 8000;

/** @param {string} message @param {"done" | "warning"} [level] */
export function say(message, level = "done") {
  const box = document.getElementById("toasts");
  const toast = h(
    "div", { class: `toast ${level}` }, h("p", { text: message }),
    h("button", { type: "button", class: "button small", "aria-label": "Dismiss this message", text: "✕", onclick: () => toast.remove() }),
  );
  box?.append(toast);
  while (box && box.children.length > 3) box.firstElementChild?.remove();
  setTimeout(() => {
    if (!toast.matches(":hover, :focus-within")) toast.remove();
  }, STAYS);
}
