// Puts the page together: head, figures, then each block by its kind.

const DRAW = { chart: drawChart, tree: drawTree, curve: drawCurve, table: drawTable, bars: drawBars, facts: drawFacts, findings: drawFindings };

function head() {
  return element("header", {},
    element("p", { class: "what" }, data.what),
    element("h1", {}, data.title),
    element("p", { class: "lead" }, data.lead),
    element("div", { class: "figures" }, data.figures.map((figure) => element("div", { class: "figure" },
      element("span", {}, figure.label), element("strong", {}, figure.value), figure.note ? element("small", {}, figure.note) : null))));
}

function contents() {
  return element("nav", { "aria-label": "contents" }, data.blocks.map((block, i) => element("a", { href: `#part-${i}` }, block.title)));
}

function section(block, i, later) {
  const [body, draw] = DRAW[block.kind](block);
  const made = element("section", { id: `part-${i}`, class: `block-${block.kind}` }, element("h2", {}, block.title), block.note ? element("p", { class: "note" }, block.note) : null, body);
  if (draw) later.push({ draw, made });
  return made;
}

const later = [];
document.getElementById("page").replaceChildren(
  head(), data.blocks.length > 3 ? contents() : "", ...data.blocks.map((block, i) => section(block, i, later)),
  element("footer", {}, data.foot));

// What is on the first screen is drawn at once, the rest one by one while the reader looks at it; all of it for paper.
function drawNext() { later.shift().draw(); }
function drawRest() {
  if (later.length) { drawNext(); setTimeout(drawRest); } else document.documentElement.dataset.ready = Math.round(performance.now());
}
while (later.length && later[0].made.getBoundingClientRect().top < window.innerHeight) drawNext();
document.documentElement.dataset.open = Math.round(performance.now());
requestAnimationFrame(() => setTimeout(drawRest));
window.addEventListener("beforeprint", () => { while (later.length) drawNext(); });

let waiting = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redraw); });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
window.matchMedia("print").addEventListener("change", redraw);
