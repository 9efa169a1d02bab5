/* What the tests ask the page itself. Each is called by name (checks.py). */

/** WCAG 2: texts with less contrast to what is behind them than 4.5. */
function unreadable() {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const style = getComputedStyle(one);
      const pattern = style.backgroundImage.match(/(?:rgba?|color)\([^)]*\)/); // its plain ground comes first
      if (pattern) return rgb(pattern[0]);
      const colour = rgb(style.backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return [255, 255, 255, 255];
  };
  const bad = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.nodeValue.trim());
    if (!own || !element.checkVisibility() || element.closest("[aria-disabled=true], option, .sr, .skip")) continue;
    const [a, b] = [light(rgb(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) bad.add(`${contrast.toFixed(2)} .${element.className}: ${element.textContent.slice(0, 40)}`);
  }
  return [...bad];
}

/** Controls and pictures that a screen reader has no name for. */
function nameless() {
  const asked = document.querySelectorAll("a, button, input, select, textarea, [role=grid], [role=img], table");
  return [...asked]
    .filter((one) => one.checkVisibility())
    .filter((one) => !one.getAttribute("aria-label") && !one.innerText.trim() && !one.labels?.length && !one.querySelector("img"))
    .map((one) => one.outerHTML.slice(0, 120));
}

/** Tabs that stick out of their line, whose scrollbar is hidden. */
function hiddenTabs() {
  const lines = [...document.querySelectorAll(".tabs")];
  return lines.filter((line) => line.scrollWidth > line.clientWidth + 1).map((line) => line.innerText);
}

/** Whether the page shows what it is about. */
function settled() {
  const main = document.querySelector("main");
  return !!document.querySelector(".read-at") && !main.innerText.includes("Reading") && !!main.querySelector(".panel, .cluster-card, .table-box, .timeline");
}

/** How cells of each state look besides their letter and text colour. */
function looks() {
  return ["running", "starting", "closing", "unassigned", "unknown", "parked"].map((state) => {
    const style = getComputedStyle(document.querySelector(`.m-cell.is-${state}`));
    return [style.backgroundImage, style.backgroundColor, style.boxShadow, style.outlineStyle].join();
  });
}

/** Elements that stick out of the open dialog, or are cut off at its side. */
function widerThanDialog() {
  const { left, right } = document.querySelector("dialog[open]").getBoundingClientRect();
  return [...document.querySelectorAll("dialog[open] *")]
    .filter((one) => one.checkVisibility())
    .filter((one) => one.getBoundingClientRect().right > right || one.getBoundingClientRect().left < left || one.scrollWidth > one.clientWidth + 1 && one.tagName !== "INPUT" && getComputedStyle(one).display !== "inline")
    .map((one) => `${one.tagName}.${one.className} ${one.textContent.slice(0, 40)}`);
}

/** The numbers of the table's rows, in the order in which they stand. */
function rowNumbers() {
  return [...document.querySelectorAll("table.data tbody tr:not(.spacer)")].map((row) => Number(row.getAttribute("aria-rowindex")));
}

/** Draws a matrix of 100,000 partitions by 1,000 consumers in three far places; its last row, and all elements. */
async function largestMatrix() {
  const { Matrix } = await import("./static/js/matrix.js");
  const consumers = Array.from({ length: 1000 }, (_, i) => `worker-${i}`);
  const rows = Array.from({ length: 100_000 }, (_, i) => ({
    topic: `topic-${Math.floor(i / 100)}`, partition: i % 100, state: "R", owner: consumers[i % 1000], source: null,
    target: null, lag: i, rate: 1, committed: 0, end: i, pin: null, standbys: [], copies: {},
  }));
  const matrix = new Matrix(() => {});
  document.querySelector("main").replaceChildren(matrix.element);
  const frame = () => new Promise(requestAnimationFrame);
  matrix.show(rows, consumers);
  for (const [top, left] of [[1_400_000, 0], [50, 36_000], [2_799_999, 18_000]]) {
    await frame();
    Object.assign(matrix.element, { scrollTop: top, scrollLeft: left });
    await frame();
    await frame();
  }
  const last = [...document.querySelectorAll(".m-row")].pop().getAttribute("aria-rowindex");
  return { last, nodes: document.getElementsByTagName("*").length };
}
