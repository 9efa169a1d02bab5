/**
 * A list that the server filters, sorts and hands out in windows: the filter's controls, the table, and the address,
 * which holds the filter and the order so that a link leads to the same list.
 */

import { h, setText } from "./dom.js";
import { plural } from "./format.js";
import { patchInside } from "./patch.js";
import { setQuery } from "./router.js";
import { read } from "./api.js";
import { VirtualTable } from "./table.js";

/** Rows asked for at a time, and the step at which windows begin. */
const WINDOW = 200;
const STEP = 50;

/**
 * @template R
 * @typedef {object} ListOptions
 * @property {string} path of the endpoint
 * @property {"topics" | "consumers"} what the answer's list, and what its things are called
 * @property {string} one a thing of it
 * @property {import("./table.js").Column<R>[]} columns
 * @property {(row: R) => string} key
 * @property {[string, string][]} states value and name of what can be filtered by
 * @property {import("./table.js").Sort} sort where the address names none
 * @property {(filtered: boolean, cluster: ClusterAnswer | null) => HTMLElement} none
 *   what to show when there is nothing
 */

/** @template R */
export class RemoteList {
  /** @param {ListOptions<R>} options @param {URLSearchParams} query @param {() => void} refresh asks the server at once */
  constructor(options, query, refresh) {
    this.options = options;
    this.refresh = refresh;
    this.query = query;
    this.offset = 0;
    /** @type {any} */
    this.answer = null;
    const order = query.get("order");
    this.table = new VirtualTable({
      label: options.what, columns: options.columns, key: options.key,
      sort: query.get("sort") ? { column: String(query.get("sort")), down: order === "desc" } : options.sort,
      onSort: (sort) => setQuery({ sort: sort.column, order: sort.down ? "desc" : "asc" }),
      onWindow: (first) => this.#moveTo(first),
    });
    this.count = h("p", { class: "note", role: "status" });
    this.nothing = h("div", { class: "nothing" });
    this.search = h("input", {
      type: "search", placeholder: `Filter by name`, "aria-label": `Filter ${options.what} by name`, value: query.get("search") ?? "",
      oninput: () => this.#filterSoon(), spellcheck: "false", autocomplete: "off",
    });
    this.state = h(
      "select", { "aria-label": `Filter ${options.what} by state`, onchange: () => setQuery({ state: this.state.value }) },
      h("option", { value: "", text: "All states" }), options.states.map(([value, name]) => h("option", { value, text: name })),
    );
    this.state.value = query.get("state") ?? "";
    this.element = h("div", { class: "list" }, h("div", { class: "filters" }, this.search, this.state, this.count), this.table.element, this.nothing);
  }

  /** The address has changed. @param {URLSearchParams} query */
  changed(query) {
    this.query = query;
    if (document.activeElement !== this.search) this.search.value = query.get("search") ?? "";
    this.state.value = query.get("state") ?? "";
    if (query.get("sort")) this.table.sort = { column: String(query.get("sort")), down: query.get("order") === "desc" };
    this.offset = 0;
    this.table.toTop();
  }

  /** Ask the server for the window in sight. */
  async load() {
    const asked = new URLSearchParams({ offset: String(this.offset), limit: String(WINDOW) });
    for (const name of ["search", "state"]) if (this.query.get(name)) asked.set(name, String(this.query.get(name)));
    asked.set("sort", this.table.sort.column);
    asked.set("order", this.table.sort.down ? "desc" : "asc");
    const got = await read(`${this.options.path}?${asked}`);
    this.answer = got.body;
    return got;
  }

  /** Draw what was read. @param {ClusterAnswer | null} cluster */
  draw(cluster) {
    const { total, offset } = this.answer;
    const filtered = Boolean(this.query.get("search") || this.query.get("state"));
    setText(this.count, filtered ? `${plural(total, this.options.one)} of this kind` : plural(total, this.options.one));
    this.table.element.hidden = total === 0;
    patchInside(this.nothing, ...(total === 0 ? [this.options.none(filtered, cluster)] : []));
    this.table.show(this.answer[this.options.what], offset, total);
  }

  /** @param {number} first a row that is in sight and not here */
  #moveTo(first) {
    const offset = Math.max(0, Math.floor((first - STEP) / STEP) * STEP);
    if (offset === this.offset) return;
    this.offset = offset;
    this.refresh();
  }

  #filterSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => setQuery({ search: this.search.value.trim() }), 200);
  }
}

