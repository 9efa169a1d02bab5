/**
 * What buttons do. A button names its action and what that needs (`parts.button`); one listener for the whole page
 * calls it, so that what is drawn again needs no handlers.
 */

import { say } from "./toasts.js";

/** @typedef {(needs: Record<string, any>, button: HTMLElement) => void | Promise<void>} Action */

/** @type {Map<string, Action>} */
const actions = new Map();

/** @param {string} name @param {Action} action */
export function on(name, action) {
  actions.set(name, action);
}

/** Listen to every button of the page. */
export function listen() {
  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target.closest("[data-action]") : null;
    if (!(target instanceof HTMLElement)) return;
    if (target.dataset.whyNot) {
      say(target.dataset.whyNot, "warning");
      return;
    }
    actions.get(target.dataset.action ?? "")?.(JSON.parse(target.dataset.needs || "{}"), target);
  });
}
