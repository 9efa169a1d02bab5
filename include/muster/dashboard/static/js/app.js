/** The page as a whole: which view is shown, the frame around it, and asking the server again and again. */

import { listen, on } from "./actions.js";
import { growAges, now } from "./ages.js";
import { ApiError, of, read } from "./api.js";
import { banners } from "./banners.js";
import { loadCommands, registerApply } from "./commands.js";
import { setContext } from "./context.js";
import { fill } from "./dom.js";
import { followFrame, followTheme } from "./frame.js";
import { clusterHead, freshLine, trail } from "./head.js";
import { patchInside } from "./patch.js";
import { current } from "./router.js";
import { viewOf } from "./views.js";

/** Seconds between two questions where the server does not say, and the least there may be. */
const USUAL = 2;
const LEAST = 1;

const page = {
  route: current(),
  view: /** @type {import("./views.js").View | null} */ (null),
  /** @type {ClusterAnswer | null} */
  cluster: null,
  /** @type {number | null} */
  readAt: null,
  /** @type {{message: string, status: number, since: number} | null} */
  failure: null,
  held: false,
  turn: 0,
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  timer: undefined,
};

/** @param {string} id */
const box = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Show the view that the address asks for. @param {boolean} moved whether the user went there just now */
function show(moved) {
  const before = page.route;
  page.route = current();
  const { cluster, page: name, item } = page.route;
  if (page.view && before.cluster === cluster && before.page === name && before.item === item) {
    page.view.query?.(page.route.query);
    cycle();
    return;
  }
  page.view?.leave?.();
  if (before.cluster !== cluster) page.cluster = null;
  page.failure = null;
  page.view = viewOf(page.route, cycle);
  document.title = [...page.view.title].reverse().concat("Muster").join(" · ");
  fill(box("main"), page.view.element);
  box("main").setAttribute("aria-label", page.view.title.join(", ") || "Clusters");
  if (moved) {
    box("main").focus({ preventScroll: true });
    globalThis.scrollTo(0, 0);
  }
  frame();
  cycle();
}

/** Ask the server for what is shown, draw it, and see to it that it is asked again. */
async function cycle() {
  clearTimeout(page.timer);
  const turn = (page.turn += 1);
  const { view, route } = page;
  if (!view) return;
  let wait = USUAL;
  try {
    const [cluster, own] = await Promise.all([
      route.cluster === null ? null : read(of(route.cluster)), view.load(), loadCommands(),
    ]);
    if (turn !== page.turn || view !== page.view) return;
    page.cluster = cluster?.body ?? null;
    page.readAt = cluster?.readAt ?? own?.readAt ?? null;
    page.failure = null;
    wait = page.cluster?.summary.freshness.ttl ?? own?.ttl ?? USUAL;
    setContext(page.cluster, cycle);
    view.draw(page.cluster);
  } catch (why) {
    if (turn !== page.turn || view !== page.view) return;
    const message = why instanceof Error ? why.message : String(why);
    const status = why instanceof ApiError ? why.status : -1;
    if (status === -1) console.error(why);
    page.failure = { message, status, since: page.failure?.since ?? now() };
  }
  frame();
  if (!page.held && !document.hidden) page.timer = setTimeout(cycle, Math.max(LEAST, wait) * 1000);
}

/** Draw what stands around the view. */
function frame() {
  const { route, cluster, failure, readAt, held, view } = page;
  patchInside(box("trail"), trail(route));
  patchInside(box("fresh"), freshLine({ readAt, held, failed: failure !== null }));
  patchInside(box("head"), ...(route.cluster === null ? [] : [clusterHead(route, cluster)]));
  patchInside(box("banners"), ...banners({ cluster, failure, readAt, sources: view?.sources?.() ?? [] }));
}

followTheme();
listen();
registerApply();
on("hold", () => {
  page.held = !page.held;
  page.turn += 1; // what is on its way is not shown any more
  clearTimeout(page.timer);
  frame();
  if (!page.held) cycle();
});
on("again", () => void cycle());
on("close-details", (_, button) => button.closest("details")?.removeAttribute("open"));
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault(); // what is behind '#' is the route
  box("main").focus();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !page.held) cycle();
});
globalThis.addEventListener("hashchange", () => show(true));
globalThis.addEventListener("muster:query", () => show(false));
setInterval(growAges, 1000);
followFrame();
fill(box("toasts"));
show(false);
