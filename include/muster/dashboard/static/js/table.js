/**
 * A table of any length: sorted by a click on a heading, walked with the arrow keys, and with elements only for the
 * rows in sight (virtual_rows.js). Its rows are all here, or come from the server a window at a time.
 *
 * Keys on a row: up, down, page up, page down, home and end walk, Tab goes on to the row's buttons.
 */

import { fill, h, setAttribute, setText } from "./dom.js";
import { inSight, place, Pool } from "./virtual_rows.js";

/**
 * @template R
 * @typedef {object} Column
 * @property {string} id
 * @property {string} label
 * @property {(cell: HTMLElement, row: R) => void} show puts the row's value into the cell
 * @property {boolean | ((row: R) => number | string | null)} [by] what to sort by; true: the server knows
 * @property {string} [class] of heading and cells: `number`, `wide` (not on a narrow screen), ...
 * @property {string} [width] CSS width; without one the column takes what is left
 * @property {string} [hint] what the column means
 */

/** @typedef {{column: string, down: boolean}} Sort */

/**
 * @template R
 * @typedef {object} TableOptions
 * @property {string} label the table's name for screen readers
 * @property {Column<R>[]} columns the first is the row's heading, and has its link
 * @property {(row: R) => string} key
 * @property {Sort} sort
 * @property {(sort: Sort) => void} [onSort]
 * @property {(first: number, last: number) => void} [onWindow] rows in sight that are not here, `last` not included
 * @property {number} [rowHeight] pixels
 */

/** @template R */
export class VirtualTable {
  /** @param {TableOptions<R>} options */
  constructor(options) {
    const { columns, label } = options;
    this.options = options;
    this.rowHeight = options.rowHeight ?? 36;
    this.sort = { ...options.sort };
    /** @type {R[]} */
    this.rows = [];
    this.offset = 0;
    this.total = 0;
    this.active = 0;
    this.focusSoon = false;
    this.body = h("tbody");
    const spacer = () => h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: columns.length }));
    this.above = spacer();
    this.below = spacer();
    this.headings = columns.map((column) => this.#heading(column));
    this.table = h(
      "table", { class: "data", "aria-label": label },
      h("thead", {}, h("tr", { "aria-rowindex": 1 }, this.headings)), this.body,
    );
    this.element = h("div", { class: "scroll table-box", tabindex: -1 }, this.table);
    this.pool = new Pool(
      () => h("tr", {}, columns.map((c, i) => h(i ? "td" : "th", { class: c.class, scope: i ? null : "row" }))),
      (row) => row.remove(),
    );
    this.element.addEventListener("scroll", () => this.#draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.body.addEventListener("focusin", (event) => this.#focused(event));
    new ResizeObserver(() => this.#draw()).observe(this.element);
  }

  /**
   * Show these rows; they are sorted here unless the server does it.
   * @param {R[]} rows @param {number} [offset] the number of the first one @param {number} [total] of all
   */
  show(rows, offset = 0, total = rows.length) {
    const by = this.options.columns.find((c) => c.id === this.sort.column)?.by;
    this.rows = typeof by === "function" ? sorted(rows, by, this.sort.down, this.options.key) : rows;
    this.offset = offset;
    this.total = total;
    this.active = Math.max(0, Math.min(this.active, total - 1));
    setAttribute(this.table, "aria-rowcount", total + 1);
    for (const [i, heading] of this.headings.entries()) {
      const on = this.options.columns[i].id === this.sort.column;
      setAttribute(heading, "aria-sort", on ? (this.sort.down ? "descending" : "ascending") : null);
    }
    this.#draw();
  }

  /** Go to the first row, because the rows are others now. */
  toTop() {
    this.element.scrollTop = 0;
    this.active = 0;
  }

  #draw() {
    const { columns, key, onWindow } = this.options;
    const sight = Math.max(this.element.clientHeight - this.headings[0].offsetHeight, this.rowHeight);
    const top = this.element.scrollTop;
    const { first, last } = inSight(top, sight, this.rowHeight, this.total);
    const numbers = Array.from({ length: last - first }, (_, i) => first + i);
    const rows = numbers.map((number) => this.rows[number - this.offset]);
    if (rows.includes(/** @type {any} */ (undefined))) onWindow?.(first, last);
    const elements = this.pool.take(rows.map((row, i) => (row === undefined ? `#${first + i}` : key(row))));
    const tabbable = this.active >= first && this.active < last ? this.active : first;
    for (const [i, element] of elements.entries()) {
      const row = rows[i];
      element.dataset.row = String(first + i);
      setAttribute(element, "aria-rowindex", first + i + 2);
      const wanted = row === undefined ? "missing" : (first + i) % 2 ? "odd" : "even";
      if (element.className !== wanted) element.className = wanted;
      for (const [j, column] of columns.entries()) {
        if (row === undefined) fill(element.cells[j], "…");
        else column.show(/** @type {HTMLElement} */ (element.cells[j]), row);
      }
      for (const control of controls(element)) control.tabIndex = first + i === tabbable ? 0 : -1;
    }
    this.above.style.height = `${first * this.rowHeight}px`;
    this.below.style.height = `${(this.total - last) * this.rowHeight}px`;
    place(this.body, [this.above, ...elements, this.below]);
    // While rows were out of the page the table was shorter, and a browser that measured it then has scrolled back.
    if (this.element.scrollTop !== top) this.element.scrollTop = top;
    if (this.focusSoon) this.#focus();
  }

  /** @param {Column<R>} column */
  #heading(column) {
    const props = { scope: "col", class: column.class, title: column.hint, style: column.width ? { width: column.width } : {} };
    if (!column.by) return h("th", props, h("span", { class: column.label ? "" : "sr", text: column.label || "Actions" }));
    const click = () => {
      const again = this.sort.column === column.id;
      this.sort = { column: column.id, down: again ? !this.sort.down : (column.class ?? "").includes("number") };
      this.toTop();
      this.show(this.rows, this.offset, this.total);
      this.options.onSort?.(this.sort);
    };
    return h("th", props, h("button", { type: "button", class: "sort", onclick: click }, h("span", { text: column.label })));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 2);
    const steps = /** @type {Record<string, number>} */ ({
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity,
    });
    const step = steps[event.key];
    const onRow = event.target === this.element || this.body.contains(/** @type {Node} */ (event.target));
    if (step === undefined || !onRow || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.active = Math.max(0, Math.min(this.total - 1, this.active + step));
    const top = this.active * this.rowHeight;
    const sight = this.element.clientHeight - this.headings[0].offsetHeight - this.rowHeight;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + sight) this.element.scrollTop = top - sight;
    this.focusSoon = true;
    this.#draw();
  }

  /** Focus the active row, as soon as it is here; until then the box has the focus, so that keys go on to count. */
  #focus() {
    const row = [...this.body.rows].find((one) => one.dataset.row === String(this.active));
    const control = row && controls(row)[0];
    if (control) this.focusSoon = false;
    (control ?? this.element).focus({ preventScroll: true });
  }

  /** @param {FocusEvent} event */
  #focused(event) {
    const row = /** @type {HTMLElement} */ (event.target).closest("tr");
    if (row?.dataset.row && Number(row.dataset.row) !== this.active) {
      this.active = Number(row.dataset.row);
      this.#draw();
    }
  }
}

/**
 * A cell's show function for plain text.
 * @template R
 * @param {(row: R) => string} text
 * @returns {(cell: HTMLElement, row: R) => void}
 */
export function text(text) {
  return (cell, row) => {
    setText(cell, text(row));
    setAttribute(cell, "title", text(row).length > 12 ? text(row) : null);
  };
}

/**
 * A cell's show function for a link.
 * @template R
 * @param {(row: R) => string} label @param {(row: R) => string} to
 * @returns {(cell: HTMLElement, row: R) => void}
 */
export function link(label, to) {
  return (cell, row) => {
    let anchor = cell.querySelector("a");
    if (!anchor) {
      anchor = h("a");
      fill(cell, anchor);
    }
    setAttribute(anchor, "href", to(row));
    setAttribute(anchor, "title", label(row));
    setText(anchor, label(row));
  };
}

/** @param {Element} row @returns {HTMLElement[]} */
function controls(row) {
  return [.../** @type {NodeListOf<HTMLElement>} */ (row.querySelectorAll("a, button"))];
}

/**
 * @template R
 * @param {R[]} rows @param {(row: R) => number | string | null} by @param {boolean} down @param {(row: R) => string} key
 */
function sorted(rows, by, down, key) {
  const names = new Intl.Collator("en", { numeric: true });
  const sign = down ? -1 : 1;
  const decorated = rows.map((row) => ({ row, value: by(row), key: key(row) }));
  decorated.sort((a, b) => {
    if (a.value === null || b.value === null) {
      return a.value === b.value ? names.compare(a.key, b.key) : a.value === null ? 1 : -1;
    }
    const order =
      typeof a.value === "number" && typeof b.value === "number"
        ? a.value - b.value
        : names.compare(String(a.value), String(b.value));
    return sign * order || names.compare(a.key, b.key);
  });
  return decorated.map(({ row }) => row);
}
