/**
 * Life inside Airflow's frame: the address bar follows, and links to Airflow's own pages lead there.
 *
 * Airflow shows the page in a frame of the same origin that may not navigate the window around it. Airflow's router
 * listens to the history of that window, so that is what is sent.
 */

import { outerDocument } from "./theme.js";

/** Keep the address bar in step, and let links marked `data-airflow` lead out of the frame. */
export function followFrame() {
  document.addEventListener("click", (event) => {
    const anchor = event.target instanceof Element ? event.target.closest("a[data-airflow]") : null;
    if (!(anchor instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const outer = outerDocument()?.defaultView;
    if (!outer) return;
    event.preventDefault();
    outer.history.pushState(null, "", anchor.href);
    outer.dispatchEvent(new PopStateEvent("popstate", { state: null }));
  });
  globalThis.addEventListener("hashchange", tell);
  globalThis.addEventListener("muster:query", tell);
  globalThis.addEventListener("load", () => setTimeout(tell));
}

/** Airflow's address is its own path, then the frame's; only what is behind '#' changes here. */
function tell() {
  const outer = outerDocument()?.defaultView;
  if (!outer || !outer.location.pathname.endsWith(globalThis.location.pathname)) return;
  const to = `${outer.location.pathname}${outer.location.search}${globalThis.location.hash}`;
  outer.history.replaceState(outer.history.state, "", to);
}
