/**
 * Bring what stands on the page in line with what was drawn again, touching only what differs: focus, selection, scroll
 * and open details stay as they are while the data changes.
 *
 * Children are matched by `data-key`, else by their place. What is inside an element with `data-slot` belongs to a
 * component that draws itself, and is left alone. Handlers do not belong on what is drawn this way, because an old
 * element keeps its old ones: use `data-action` (actions.js).
 */

/** @param {Element} old @param {Element} wanted has the same tag */
export function patch(old, wanted) {
  patchAttributes(old, wanted);
  if (wanted instanceof HTMLElement && wanted.dataset.slot !== undefined) return;
  patchChildren(old, wanted);
}

/** As `patch`, for what is inside only. @param {Element} old @param {...Node} children */
export function patchInside(old, ...children) {
  const wanted = document.createElement(old.tagName);
  wanted.append(...children);
  patchChildren(old, wanted);
}

/** @param {Element} old @param {Element} wanted */
function patchAttributes(old, wanted) {
  for (const { name } of [...old.attributes]) {
    if (!wanted.hasAttribute(name) && !ownState(old, name)) old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    // A style cannot be copied as an attribute under the page's Content-Security-Policy.
    if (name === "style") copyStyle(old, wanted);
    else if (old.getAttribute(name) !== value && !ownState(old, name)) old.setAttribute(name, value);
  }
}

/** What the user changes by hand. @param {Element} element @param {string} name */
function ownState(element, name) {
  return name === "open" && element instanceof HTMLDetailsElement;
}

/** @param {Element} old @param {Element} wanted */
function copyStyle(old, wanted) {
  if (!(old instanceof HTMLElement && wanted instanceof HTMLElement)) return;
  if (old.style.cssText !== wanted.style.cssText) old.style.cssText = wanted.style.cssText;
}

/** @param {Element} old @param {Element} wanted */
function patchChildren(old, wanted) {
  const keyed = new Map();
  for (const child of old.children) {
    if (child instanceof HTMLElement && child.dataset.key) keyed.set(child.dataset.key, child);
  }
  let at = /** @type {ChildNode | null} */ (old.firstChild);
  for (const child of [...wanted.childNodes]) {
    const key = child instanceof HTMLElement ? child.dataset.key : undefined;
    const found = key ? keyed.get(key) : at;
    if (found && same(found, child)) {
      if (found === at) at = found.nextSibling;
      else old.insertBefore(found, at);
      if (child instanceof Element) patch(/** @type {Element} */ (found), child);
      else if (found.nodeValue !== child.nodeValue) found.nodeValue = child.nodeValue;
    } else {
      old.insertBefore(child, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** Whether one can become the other. @param {Node} old @param {Node} wanted */
function same(old, wanted) {
  if (old.nodeName !== wanted.nodeName) return false;
  if (!(old instanceof HTMLElement && wanted instanceof HTMLElement)) return true;
  return old.dataset.key === wanted.dataset.key && old.dataset.slot === wanted.dataset.slot;
}
