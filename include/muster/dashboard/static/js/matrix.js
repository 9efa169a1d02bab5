/**
 * The matrix: a row a partition, a column a consumer, and in the cell how the partition stands there.
 *
 * A grid for the keyboard (arrows, page up and down, home, end; Enter chooses), and for any number of partitions and
 * consumers: only what is in sight has elements (virtual_rows.js). A state shows as colour, pattern and letter.
 */

import { fill, h, setAttribute, setText } from "./dom.js";
import { number, rate } from "./format.js";
import { look, word } from "./states.js";
import { cellOf, condition, obstacle, spoken } from "./topic_columns.js";
import { inSight, mostRows, place, Pool } from "./virtual_rows.js";

/** @typedef {import("./topic_columns.js").PartitionRow} PartitionRow */
/** @typedef {{heading: string, to: string} | PartitionRow} Row a topic's heading, or a partition */
/** @typedef {{id: string | null, label: string}} Column null: partitions without an owner */

const ROW = 28;
/** Pixels of a column: narrow ones have the letter only, and their names stand upright. */
const NARROW = 36;
const WIDE = 104;
const WIDEST = 420;
/** @type {Record<string, string>} what a wide cell says besides its letter; an owner's says the state */
const NAMES = { target: "next", standby: "standby" };
const HEAD_FLAT = 32;
const HEAD_UPRIGHT = 128;

export class Matrix {
  /** @param {(row: PartitionRow) => void} onChoose a cell was chosen */
  constructor(onChoose) {
    this.onChoose = onChoose;
    /** @type {Row[]} */
    this.rows = [];
    /** @type {Column[]} */
    this.columns = [];
    this.active = { row: 0, column: 0 };
    this.cut = 0;
    this.width = NARROW;
    this.headRow = h("div", { role: "row", class: "m-head", "aria-rowindex": 1 });
    this.space = h("div", { class: "m-space", role: "presentation" });
    this.element = h(
      "div", { class: "matrix scroll", role: "grid", "aria-label": "Partitions by consumer", tabindex: -1 }, this.headRow, this.space,
    );
    /** @type {Pool<HTMLElement>} */
    this.pool = new Pool(() => h("div", { role: "row", class: "m-row" }), (row) => row.remove());
    this.element.addEventListener("scroll", () => this.#draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("click", (event) => this.#click(event));
    new ResizeObserver(() => this.#layOut()).observe(this.element);
  }

  /**
   * Show `rows` by `consumers`. The column of partitions without an owner comes first, if there are any.
   * @param {Row[]} rows @param {string[]} consumers
   */
  show(rows, consumers) {
    const at = this.rows[this.active.row];
    const most = mostRows(ROW);
    this.cut = Math.max(0, rows.length - most);
    this.rows = rows.slice(0, most);
    const unowned = rows.some((row) => !("heading" in row) && row.owner === null && row.source === null);
    this.columns = [...(unowned ? [{ id: null, label: "no owner" }] : []), ...consumers.map((id) => ({ id, label: id }))];
    const again = at ? this.rows.findIndex((row) => keyOf(row) === keyOf(at)) : -1;
    this.active.row = again >= 0 ? again : Math.min(this.active.row, Math.max(0, rows.length - 1));
    this.active.column = Math.max(0, Math.min(this.active.column, this.columns.length - 1));
    if (again < 0 && this.rows[this.active.row] && "heading" in this.rows[this.active.row]) this.active.row = Math.min(1, rows.length - 1);
    setAttribute(this.element, "aria-rowcount", this.rows.length + 1);
    setAttribute(this.element, "aria-colcount", this.columns.length + 3);
    this.#layOut();
  }

  #layOut() {
    const narrow = this.element.clientWidth < 480;
    this.lead = narrow ? 104 : 224;
    const room = this.element.clientWidth - this.lead - 2;
    const even = Math.floor(room / Math.max(1, this.columns.length));
    this.width = even >= WIDE ? Math.min(WIDEST, even) : narrow && this.columns.length <= 4 ? Math.max(56, even) : NARROW;
    this.headHeight = this.width >= WIDE ? HEAD_FLAT : HEAD_UPRIGHT;
    this.element.classList.toggle("upright", this.width < WIDE);
    this.element.classList.toggle("narrow", narrow);
    this.element.style.setProperty("--lead", `${this.lead}px`);
    this.element.style.setProperty("--column", `${this.width}px`);
    this.element.style.setProperty("--head", `${this.headHeight}px`);
    const full = this.lead + this.columns.length * this.width;
    this.headRow.style.width = this.space.style.width = `${full}px`;
    this.space.style.height = `${this.rows.length * ROW}px`;
    this.#draw();
  }

  #draw() {
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = this.element;
    const down = inSight(scrollTop, Math.max(ROW, clientHeight - (this.headHeight ?? 0)), ROW, this.rows.length);
    const across = inSight(scrollLeft, Math.max(this.width, clientWidth - (this.lead ?? 0)), this.width, this.columns.length);
    const focused = this.element.contains(document.activeElement);
    this.#drawHead(across);
    const rows = this.rows.slice(down.first, down.last);
    const elements = this.pool.take(rows.map(keyOf));
    for (const [i, element] of elements.entries()) {
      const index = down.first + i;
      element.style.transform = `translateY(${index * ROW}px)`;
      setAttribute(element, "aria-rowindex", index + 2);
      element.dataset.row = String(index);
      this.#drawRow(element, rows[i], index, across);
    }
    place(this.space, elements);
    if (focused && !this.element.contains(document.activeElement)) this.element.focus({ preventScroll: true });
    else if (focused && document.activeElement !== this.element) this.#focus();
  }

  /** @param {{first: number, last: number}} across */
  #drawHead(across) {
    const sign = `${across.first} ${across.last} ${this.width} ${this.lead} ${this.columns.map((column) => column.label).join("\n")}`;
    if (this.headSign === sign) return;
    this.headSign = sign;
    const lead = [["partition", "Partition"], ["lag", "Lag"], ["rate", "Rate"]].map(([name, label], i) =>
      h("span", { role: "columnheader", class: name, text: label, "aria-colindex": i + 1 }));
    const names = this.columns.slice(across.first, across.last).map((column, i) => h(
      "span",
      { role: "columnheader", class: `m-name${column.id === null ? " unowned" : ""}`, title: column.label, "aria-colindex": across.first + i + 4,
        style: { left: `${(this.lead ?? 0) + (across.first + i) * this.width}px` } },
      h("span", { text: column.label }),
    ));
    fill(this.headRow, h("div", { class: "m-lead", role: "presentation" }, lead), names);
  }

  /** @param {HTMLElement} element @param {Row} row @param {number} index @param {{first: number, last: number}} across */
  #drawRow(element, row, index, across) {
    const heading = "heading" in row;
    element.classList.toggle("m-topic", heading);
    if (heading) {
      const active = index === this.active.row;
      const anchor = h("a", { href: row.to, text: row.heading, tabindex: active ? 0 : -1, class: "m-topic-link" });
      const there = element.querySelector(".m-topic-link");
      if (there?.getAttribute("href") === row.to) {
        setAttribute(there, "tabindex", active ? 0 : -1);
      } else {
        fill(element, h("div", { class: "m-lead", role: "rowheader" }, anchor));
      }
      return;
    }
    let lead = /** @type {HTMLElement | null} */ (element.querySelector(".m-lead:not([role=rowheader])"));
    if (!lead) {
      lead = h("div", { class: "m-lead", role: "presentation" },
        h("span", { role: "rowheader", class: "partition", "aria-colindex": 1 }),
        h("span", { role: "gridcell", class: "lag", "aria-colindex": 2 }), h("span", { role: "gridcell", class: "rate", "aria-colindex": 3 }));
      fill(element, lead);
    }
    setText(lead.children[0], String(row.partition));
    setText(lead.children[1], number(row.lag));
    setText(lead.children[2], rate(row.rate));
    this.#drawCells(element, row, index, across);
  }

  /** @param {HTMLElement} element @param {PartitionRow} row @param {number} index @param {{first: number, last: number}} across */
  #drawCells(element, row, index, across) {
    const wanted = across.last - across.first;
    while (element.children.length - 1 > wanted) element.lastElementChild?.remove();
    while (element.children.length - 1 < wanted) element.append(h("div", { role: "gridcell" }, h("b"), h("span")));
    for (let i = 0; i < wanted; i += 1) {
      const at = across.first + i;
      const cell = /** @type {HTMLElement} */ (element.children[i + 1]);
      const consumer = this.columns[at].id;
      const shown = cellOf(row, consumer);
      const pinned = shown && row.pin && (shown.role === "owner" || row.pin.consumer === consumer);
      const classes = ["m-cell", shown ? (shown.role === "owner" ? look(shown.state) : shown.role === "target" ? "to-have" : "standby") : "nothing", pinned ? "pinned" : ""];
      const name = classes.filter(Boolean).join(" ");
      if (cell.className !== name) cell.className = name;
      cell.style.left = `${(this.lead ?? 0) + at * this.width}px`;
      cell.dataset.column = String(at);
      cell.tabIndex = index === this.active.row && at === this.active.column ? 0 : -1;
      setAttribute(cell, "aria-colindex", at + 4);
      setAttribute(cell, "aria-label", spoken(row, consumer, word));
      setAttribute(cell, "title", (shown?.state === "K" || shown?.state === "T") && shown.role === "owner" ? `${condition(row, shown.state, word)}: ${obstacle(row)}` : null);
      setText(cell.children[0], shown?.letter ?? "");
      setText(cell.children[1], shown && this.width >= WIDE ? NAMES[shown.role] ?? word(shown.state) : "");
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW) - 3);
    const { row, column } = this.active;
    const last = { row: this.rows.length - 1, column: this.columns.length - 1 };
    const to = /** @type {Record<string, [number, number]>} */ ({
      ArrowDown: [row + 1, column], ArrowUp: [row - 1, column], ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1],
      PageDown: [row + page, column], PageUp: [row - page, column],
      Home: event.ctrlKey ? [0, 0] : [row, 0], End: event.ctrlKey ? [last.row, last.column] : [row, last.column],
    })[event.key];
    if (to) {
      event.preventDefault();
      this.#go(Math.max(0, Math.min(last.row, to[0])), Math.max(0, Math.min(last.column, to[1])));
    } else if (event.key === "Enter" || event.key === " ") {
      const there = this.rows[row];
      if (there && !("heading" in there)) {
        event.preventDefault();
        this.onChoose(there);
      }
    }
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const target = /** @type {Element} */ (event.target);
    const element = /** @type {HTMLElement | null} */ (target.closest(".m-row"));
    const row = this.rows[Number(element?.dataset.row)];
    if (!element || !row || "heading" in row) return;
    const cell = /** @type {HTMLElement | null} */ (target.closest(".m-cell"));
    this.#go(Number(element.dataset.row), cell ? Number(cell.dataset.column) : this.active.column);
    this.onChoose(row);
  }

  /** Make a cell the active one, and bring it into sight. @param {number} row @param {number} column */
  #go(row, column) {
    this.active = { row, column };
    const box = this.element;
    const height = box.clientHeight - (this.headHeight ?? 0) - ROW;
    if (row * ROW < box.scrollTop) box.scrollTop = row * ROW;
    else if (row * ROW > box.scrollTop + height) box.scrollTop = row * ROW - height;
    const width = box.clientWidth - (this.lead ?? 0) - this.width;
    if (column * this.width < box.scrollLeft) box.scrollLeft = column * this.width;
    else if (column * this.width > box.scrollLeft + width) box.scrollLeft = column * this.width - width;
    this.#draw();
    this.#focus();
  }

  #focus() {
    const element = this.pool.kept.get(keyOf(this.rows[this.active.row]));
    const cell = /** @type {HTMLElement | null | undefined} */ (
      element?.querySelector(`.m-cell[data-column="${this.active.column}"]`) ?? element?.querySelector(".m-topic-link")
    );
    (cell ?? this.element).focus({ preventScroll: true });
  }
}

/** @param {Row | undefined} row */
function keyOf(row) {
  if (!row) return "";
  return "heading" in row ? row.heading : `${row.topic}/${row.partition}`;
}
