/**
 * Light or dark: as Airflow has it where the page stands in Airflow's frame, else as chosen there last, else as the
 * system has it.
 *
 * Airflow (3.x, next-themes) keeps 'light' or 'dark' as a class of its <html> and the choice under 'theme' in the
 * local storage of the same origin.
 */

const system = globalThis.matchMedia("(prefers-color-scheme: dark)");

/** Choose now, and again whenever Airflow's or the system's choice changes. */
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
export function outerDocument() {
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
