/** Making elements. Text from outside only ever becomes text: nothing here, or anywhere, parses HTML. */

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Make an element.
 *
 * `props`: `class`, `text`, `on<event>` (a function), `style` (an object of CSS properties, set through the CSSOM, as the page's
 * Content-Security-Policy asks), `data` (an object); anything else is an attribute, left out when null or false.
 *
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) setProp(element, name, value);
  append(element, children);
  return element;
}

/**
 * Make an SVG element, with attributes.
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...(Element | string)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/**
 * Put `children` in the place of what `element` holds.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/**
 * Set the text of `element` if it differs, so that selections and screen readers are left in peace.
 * @param {Node} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Set an attribute if it differs; null takes it away.
 * @param {Element} element
 * @param {string} name
 * @param {string | number | null} value
 */
export function setAttribute(element, name, value) {
  if (value === null) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, String(value));
  }
}

/** @param {Element} element @param {(Child | Child[])[]} children */
function append(element, children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
}

/** @param {any} element @param {string} name @param {any} value */
function setProp(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "class") element.className = value;
  else if (name === "text") element.textContent = value;
  else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
  else if (name === "data") Object.assign(element.dataset, value);
  else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

let ids = 0;

/** An id that no other element of the page has. @param {string} stem @returns {string} */
export function uniqueId(stem) {
  ids += 1;
  return `${stem}-${ids}`;
}
