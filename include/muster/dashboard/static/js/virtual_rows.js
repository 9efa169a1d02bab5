/**
 * Which of many equally high rows are in sight, and elements for those only.
 *
 * However many rows there are, at most the ones in sight and `SPARE` above and below have elements. An element keeps
 * its row as long as that is in sight, so that focus and selection stay where they are while data changes.
 */

const SPARE = 6;

/** The highest a box may become; browsers clip what is higher than some 17 million pixels. */
const TALLEST = 15_000_000;

/**
 * The rows of `count` that are in sight.
 * @param {number} top pixels scrolled @param {number} height pixels in sight
 * @param {number} row pixels a row @param {number} count
 * @returns {{first: number, last: number}} `last` is not included
 */
export function inSight(top, height, row, count) {
  const first = Math.max(0, Math.min(count, Math.floor(top / row) - SPARE));
  return { first, last: Math.min(count, Math.ceil((top + height) / row) + SPARE) };
}

/** @param {number} row pixels a row @returns {number} how many rows can be shown at all */
export function mostRows(row) {
  return Math.floor(TALLEST / row);
}

/**
 * Keeps elements for keyed things: makes the missing ones, and drops those no longer wanted.
 * @template T
 */
export class Pool {
  /** @param {() => T} make @param {(made: T) => void} drop takes it from the page */
  constructor(make, drop) {
    this.make = make;
    this.drop = drop;
    /** @type {Map<string, T>} */
    this.kept = new Map();
  }

  /**
   * The things of `keys`, in their order. A dropped one is used again for a new key, which is cheaper than to make it.
   * @param {string[]} keys
   * @returns {T[]}
   */
  take(keys) {
    const wanted = new Set(keys);
    const free = [...this.kept].filter(([key]) => !wanted.has(key)).map(([key]) => key);
    const taken = keys.map((key) => {
      let made = this.kept.get(key);
      if (made === undefined) {
        const old = free.pop();
        made = old === undefined ? this.make() : /** @type {T} */ (this.kept.get(old));
        if (old !== undefined) {
          this.kept.delete(old);
          this.drop(made); // so that those which stay are in their order, and need not be moved
        }
        this.kept.set(key, made);
      }
      return made;
    });
    for (const key of free) {
      this.drop(/** @type {T} */ (this.kept.get(key)));
      this.kept.delete(key);
    }
    return taken;
  }
}

/**
 * Put `elements` into `parent` in this order, without moving those that are in place.
 * @param {Element} parent @param {Element[]} elements
 */
export function place(parent, elements) {
  for (const [i, element] of elements.entries()) {
    if (parent.children[i] !== element) parent.insertBefore(element, parent.children[i] ?? null);
  }
}
