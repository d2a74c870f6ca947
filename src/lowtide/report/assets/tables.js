// Tables that sort and filter, bars in rows, findings and facts.

const FIRST_ROWS = 100;

function cell(column, value) {
  if (column.holds === "bytes") return element("td", { class: "number", title: value === null ? null : `${number(value)} bytes` }, size(value));
  if (column.holds === "number") return element("td", { class: "number" }, number(value));
  const title = column.holds === "code" ? value : null;
  return element("td", { class: { name: "name", wide: "name wide", code: "name code", tag: "tag", label: "label" }[column.holds] || null, title }, value === null ? "" : value);
}

function compared(a, b) {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  return typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

function drawTable(block) {
  const numeric = (column) => column.holds === "bytes" || column.holds === "number";
  const state = { by: null, down: true, all: false, words: "", picked: "" };
  const haystack = block.rows.map((row) => row.filter((_, i) => !numeric(block.columns[i])).join(" ").toLowerCase());
  const body = element("tbody");
  const count = element("span", { class: "count", role: "status" });
  const more = element("button", { class: "more", type: "button", onclick: () => { state.all = true; show(); } }, "show all rows");
  const sizes = block.columns.findIndex((column) => column.holds === "bytes");

  function show() {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    let rows = block.rows.map((_, i) => i).filter((i) => words.every((word) => haystack[i].includes(word)));
    if (state.picked) rows = rows.filter((i) => block.rows[i][block.pick] === state.picked);
    if (state.by !== null) rows.sort((a, b) => compared(block.rows[a][state.by], block.rows[b][state.by]) * (state.down ? -1 : 1) || a - b);
    const shown = state.all ? rows : rows.slice(0, FIRST_ROWS);
    body.replaceChildren(...shown.map((i) => element("tr", {}, block.rows[i].map((value, c) => cell(block.columns[c], value)))));
    const sum = sizes < 0 ? "" : `, ${size(rows.reduce((total, i) => total + (block.rows[i][sizes] || 0), 0))}`;
    count.textContent = `${number(rows.length)} of ${number(block.rows.length)} rows${sum}`;
    more.hidden = shown.length === rows.length;
    heads.forEach((head, c) => head.setAttribute("aria-sort", state.by === c ? (state.down ? "descending" : "ascending") : "none"));
  }

  const heads = block.columns.map((column, c) => element("th", { scope: "col", class: numeric(column) ? "number" : null },
    element("button", { type: "button", onclick: () => { state.down = state.by === c ? !state.down : numeric(column); state.by = c; show(); } }, column.name)));
  const filter = element("input", { type: "search", placeholder: "filter: names, layers, lines", "aria-label": `filter ${block.title}`, oninput: (event) => { state.words = event.target.value; show(); } });
  const choices = block.pick === null ? [] : [...new Set(block.rows.map((row) => row[block.pick]))].filter(Boolean).sort();
  const pick = choices.length < 2 ? null : element("select", { "aria-label": block.columns[block.pick].name, onchange: (event) => { state.picked = event.target.value; show(); } },
    element("option", { value: "" }, `every ${block.columns[block.pick].name}`), choices.map((choice) => element("option", { value: choice }, choice)));
  show();
  const tools = block.rows.length > 8 ? element("div", { class: "tools" }, filter, pick, count) : null;
  return [element("div", { class: "tabled" }, tools, element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, heads)), body)), more), null];
}

function drawBars(block) {
  const most = Math.max(1, ...block.rows.flatMap((row) => row.sizes.map((value) => value || 0)));
  const totals = block.names.map((_, i) => block.rows.reduce((sum, row) => sum + (row.sizes[i] || 0), 0));
  const several = block.names.length > 1;
  const bar = (row, value, i) => element("div", { class: `bar bar-${i}` },
    element("span", { class: "rail" }, element("i", { style: `width:${(100 * (value || 0)) / most}%;background:${colourOf(row.role, 0)}` })),
    element("b", {}, size(value)),
    element("small", {}, several ? block.names[i] : totals[i] ? `${((100 * (value || 0)) / totals[i]).toFixed(1)} %` : ""));
  return [element("div", { class: "bars" }, block.rows.map((row) => element("div", { class: "bars-row" },
    element("div", { class: "bars-name" }, row.name, row.note ? element("small", {}, row.note) : null),
    element("div", { class: "bars-bars" }, row.sizes.map((value, i) => bar(row, value, i)))))), null];
}

function drawFacts(block) {
  return [element("dl", { class: "facts" }, block.rows.flatMap(([word, meaning]) => [element("dt", {}, word), element("dd", {}, meaning)])), null];
}

function drawFindings(block) {
  return [element("ol", { class: "findings" }, block.items.map((item) => element("li", { class: `finding ${item.level}` },
    element("h3", {}, element("span", { class: "level" }, item.level), item.title),
    item.where ? element("p", { class: "name" }, item.where) : null,
    item.why ? element("p", {}, item.why) : null,
    item.fix ? element("p", { class: "fix" }, item.fix) : null,
    item.mark ? element("small", {}, item.mark) : null))), null];
}
