/**
 * Life inside Airflow's frame: the address bar follows, links to Airflow's own pages lead there, and the page is light
 * or dark as Airflow is; outside a frame as chosen in Airflow last, else as the system is.
 *
 * Airflow shows the page in a frame of the same origin that may not navigate the window around it. Airflow's router
 * listens to the history of that window, so that is what is sent. Airflow (3.x, next-themes) keeps 'light' or 'dark' as
 * a class of its <html> and the choice under 'theme' in the local storage of the same origin.
 */

const system = globalThis.matchMedia("(prefers-color-scheme: dark)");

/** Choose light or dark now, and again whenever Airflow's or the system's choice changes. */
export function followTheme() {
  apply();
  system.addEventListener("change", apply);
  globalThis.addEventListener("storage", apply);
  const outer = outerDocument();
  if (outer) {
    new MutationObserver(apply).observe(outer.documentElement, { attributes: true, attributeFilter: ["class"] });
  }
}

function apply() {
  const outer = outerDocument()?.documentElement.classList;
  const dark = outer?.contains("dark") || (!outer?.contains("light") && (stored() ?? system.matches));
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

/** The document around the frame, null if there is none or it is not ours to read. */
function outerDocument() {
  try {
    return globalThis.parent === globalThis.self ? null : globalThis.parent.document;
  } catch {
    return null;
  }
}

/** Whether Airflow's stored choice is dark; null if there is none. @returns {boolean | null} */
function stored() {
  try {
    const theme = globalThis.localStorage.getItem("theme");
    return theme === "dark" ? true : theme === "light" ? false : null;
  } catch {
    return null; // storage is forbidden
  }
}

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
