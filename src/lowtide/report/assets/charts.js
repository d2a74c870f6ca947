// The charts, on Apache ECharts. Formatters are functions that return text or elements: no name is ever a template.

const charts = [];

// Okabe and Ito's colours, told apart by every kind of eye; `ink` is the text that reads on each.
const ROLES = {
  "parameters": { colour: "#0072B2", ink: "#fff" },
  "optimizer state": { colour: "#56B4E9", ink: "#06263a" },
  "gradients": { colour: "#D55E00", ink: "#fff" },
  "activations": { colour: "#E69F00", ink: "#2b1d00" },
  "temporaries": { colour: "#009E73", ink: "#fff" },
  "inputs": { colour: "#CC79A7", ink: "#2c0a1d" },
  "constants": { colour: "#8C6BB1", ink: "#fff" },
  "other": { colour: "#9AA0A6", ink: "#14171a" },
};
const SERIES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C6BB1", "#9AA0A6"];

function colourOf(role, index) {
  return ROLES[role] ? ROLES[role].colour : SERIES[index % SERIES.length];
}

function roleOf(category) { return ROLES[category] || ROLES.other; }

function theme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return { ink: of("--ink"), soft: of("--soft"), line: of("--line"), paper: of("--paper"), raised: of("--raised"), font: of("--font") };
}

function narrow() { return window.innerWidth < 640; }

// Draws now, and again when the page's width, colours or medium change.
function drawn(place, option) {
  const chart = echarts.init(place, null, { renderer: "svg" });
  const entry = { chart, place, draw: () => chart.setOption(option(theme()), true) };
  entry.draw();
  charts.push(entry);
  return chart;
}

function redraw() { for (const entry of charts) { entry.chart.resize(); entry.draw(); } }

function tooltip(colours) {
  return {
    confine: true, appendTo: "body", backgroundColor: colours.raised, borderColor: colours.line, padding: 0,
    textStyle: { color: colours.ink, fontFamily: colours.font, fontSize: 12 }, extraCssText: "box-shadow: none;",
  };
}

function swatch(colour) { return element("i", { class: "swatch", style: `background:${colour}` }); }

function tipRow(colour, name, value) {
  return element("div", { class: "tip-row" }, swatch(colour), element("span", {}, name), element("b", {}, value));
}

function axis(colours, more) {
  return {
    nameTextStyle: { color: colours.soft, fontFamily: colours.font },
    axisLabel: { color: colours.soft, fontFamily: colours.font, hideOverlap: true },
    axisLine: { lineStyle: { color: colours.line } }, axisTick: { lineStyle: { color: colours.line } },
    splitLine: { lineStyle: { color: colours.line, opacity: 0.6 } }, ...more,
  };
}

function zooms(colours) {
  const look = {
    borderColor: colours.line, fillerColor: "rgba(86,180,233,0.16)", backgroundColor: "transparent",
    textStyle: { color: colours.soft, fontFamily: colours.font }, handleStyle: { color: colours.paper, borderColor: colours.soft },
    moveHandleSize: 4, dataBackground: { lineStyle: { color: colours.soft, opacity: 0.5 }, areaStyle: { color: colours.soft, opacity: 0.12 } },
    selectedDataBackground: { lineStyle: { color: colours.soft }, areaStyle: { color: colours.soft, opacity: 0.25 } },
  };
  return [
    { type: "inside", xAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: false, moveOnMouseWheel: false },
    { type: "slider", xAxisIndex: 0, filterMode: "none", height: 24, bottom: 8, labelFormatter: "", ...look },
  ];
}

function toolbox(colours) {
  return {
    right: 0, top: 0, itemSize: 13, iconStyle: { borderColor: colours.soft },
    emphasis: { iconStyle: { borderColor: colours.ink, textFill: colours.soft, textBackgroundColor: colours.paper } },
    feature: { dataZoom: { yAxisIndex: "none", title: { zoom: "zoom to a stretch", back: "back" } }, restore: { title: "all" } },
  };
}

function markings(block, colours) {
  const lines = block.marks.filter((mark) => mark.until === null);
  const areas = block.marks.filter((mark) => mark.until !== null);
  const span = block.x.length ? block.x[block.x.length - 1] - block.x[0] : 0;
  const said = (mark) => ({ formatter: () => (mark.until - mark.at < 0.06 * span ? "" : clipped(mark.text, 24)) });
  return {
    markLine: {
      silent: true, symbol: "none", lineStyle: { color: colours.ink, type: [4, 3], width: 1 },
      label: { color: colours.ink, fontFamily: colours.font, fontSize: 11, distance: 4 },
      data: lines.map((mark) => ({
        xAxis: mark.at, lineStyle: mark.faint ? { color: colours.soft, opacity: 0.35, type: "solid" } : undefined,
        label: mark.faint
          ? { formatter: () => (lines.length > 16 || narrow() ? "" : mark.text), color: colours.soft, fontSize: 10, distance: 2, position: "insideEndTop", rotate: 0, align: "left", padding: [0, 0, 0, 3] }
          : { formatter: () => clipped(mark.text, narrow() ? 24 : 60) },
      })),
    },
    markArea: {
      silent: true, itemStyle: { color: colours.soft, opacity: 0.09 },
      label: { color: colours.soft, fontFamily: colours.font, fontSize: 10, position: "insideTop" },
      data: areas.map((mark) => [{ xAxis: mark.at, label: said(mark) }, { xAxis: mark.until }]),
    },
  };
}

function largest(block, kind) {
  const chosen = block.series.filter((series) => series.axis === kind);
  if (!chosen.length) return 0;
  let most = 0;
  for (let i = 0; i < block.x.length; i += 1) {
    let total = 0;
    for (const series of chosen) total = block.stacked ? total + (series.values[i] || 0) : Math.max(total, series.values[i] || 0);
    most = Math.max(most, total);
  }
  return most;
}

function chartOption(block, colours) {
  const unit = axisUnit(largest(block, "bytes"));
  const counts = block.series.some((series) => series.axis === "count");
  const scaled = (series, value) => (value === null || series.axis === "count" ? value : value / unit.bytes);
  const made = block.series.map((series, index) => ({
    name: series.name, type: "line", symbol: "none", step: block.steps ? "end" : false,
    stack: block.stacked ? "all" : undefined, yAxisIndex: series.axis === "count" ? 1 : 0, connectNulls: !block.stacked,
    color: colourOf(series.role, index), emphasis: { disabled: true }, animation: false,
    lineStyle: { width: block.stacked ? 0.5 : 1.6, type: series.dashed ? [5, 4] : "solid" },
    areaStyle: block.stacked ? { opacity: 0.82 } : undefined,
    data: block.x.map((x, i) => [x, scaled(series, series.values[i])]),
  }));
  if (made.length) Object.assign(made[made.length - 1], markings(block, colours));
  return {
    aria: { enabled: true, label: { description: `${block.title}. ${block.note}` } }, animation: false,
    textStyle: { fontFamily: colours.font },
    grid: { left: narrow() ? 44 : 58, right: counts ? 52 : 18, top: counts && !narrow() ? 68 : 56, bottom: 76 },
    legend: {
      type: "scroll", left: 0, right: narrow() ? 0 : 72, top: 0, itemWidth: 12, itemHeight: 12, icon: "roundRect",
      textStyle: { color: colours.ink, fontFamily: colours.font }, pageTextStyle: { color: colours.soft }, pageIconColor: colours.soft,
    },
    toolbox: narrow() ? undefined : toolbox(colours), dataZoom: zooms(colours),
    tooltip: { ...tooltip(colours), trigger: "axis", axisPointer: { lineStyle: { color: colours.soft } }, formatter: (items) => chartTip(block, items, unit) },
    xAxis: axis(colours, { type: "value", name: block.x_label, nameLocation: "middle", nameGap: 24, min: "dataMin", max: "dataMax", splitLine: { show: false }, axisLabel: { color: colours.soft, fontFamily: colours.font, hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: number } }),
    yAxis: [
      axis(colours, { type: "value", name: unit.name, min: 0, nameTextStyle: { align: "right", padding: [0, 6, 0, 0], color: colours.soft } }),
      ...(counts ? [axis(colours, { type: "value", name: "count", min: 0, splitLine: { show: false } })] : []),
    ],
    series: made,
  };
}

function chartTip(block, items, unit) {
  if (!items.length) return "";
  const at = items[0].dataIndex;
  const rows = block.series.map((series, index) => ({ series, index, value: series.values[at] })).filter((row) => row.value);
  if (block.stacked) rows.reverse();
  const lines = rows.map((row) => tipRow(colourOf(row.series.role, row.index), row.series.name, row.series.axis === "count" ? number(row.value) : size(row.value)));
  if (block.stacked) lines.push(element("div", { class: "tip-row total" }, element("span", {}, "together"), element("b", {}, size(rows.reduce((sum, row) => sum + row.value, 0)))));
  const said = block.said.length ? block.words[block.said[at]] : "";
  return element("div", { class: "tip" }, element("div", { class: "tip-head" }, `${block.x_label}: ${number(block.x[at])}`), said ? element("div", { class: "tip-said" }, said) : null, lines);
}

function drawChart(block) {
  const place = element("div", { class: "chart", role: "img", "aria-label": block.title });
  return [place, () => drawn(place, (colours) => chartOption(block, colours))];
}

function treeOption(block, colours) {
  const nodes = block.groups.map((group) => ({
    name: group.name, said: group.name, itemStyle: { color: roleOf(group.leaves[0].category).colour },
    children: group.leaves.map((leaf) => ({
      name: leaf.name, value: leaf.size, said: leaf.said, category: leaf.category,
      itemStyle: { color: roleOf(leaf.category).colour }, label: { color: roleOf(leaf.category).ink },
    })),
  }));
  const box = { borderColor: colours.paper, borderWidth: 2, gapWidth: 1 };
  return {
    animation: false, textStyle: { fontFamily: colours.font },
    tooltip: { ...tooltip(colours), formatter: (item) => treeTip(item) },
    series: [{
      type: "treemap", name: "all", data: nodes, roam: false, nodeClick: "zoomToNode", left: 0, right: 0, top: 0, bottom: 34,
      visibleMin: 40, childrenVisibleMin: 60, squareRatio: 1,
      breadcrumb: { bottom: 2, left: 0, height: 22, itemStyle: { color: colours.raised, borderColor: colours.line, textStyle: { color: colours.ink, fontFamily: colours.font } }, emphasis: { itemStyle: { color: colours.line, textStyle: { color: colours.ink } } } },
      label: { show: true, fontSize: 11, lineHeight: 14, fontFamily: colours.font, overflow: "truncate", formatter: (item) => `${item.name}\n${size(item.value)}` },
      upperLabel: { show: true, height: 18, fontSize: 11, color: colours.ink, fontFamily: colours.font, overflow: "truncate", formatter: (item) => `${item.name}  ${size(item.value)}` },
      levels: [
        { itemStyle: { ...box, borderWidth: 0, gapWidth: 3 }, upperLabel: { show: false } },
        { itemStyle: { ...box, borderColor: colours.raised, borderWidth: 2, gapWidth: 1 }, emphasis: { itemStyle: { borderColor: colours.line }, upperLabel: { show: true, color: colours.ink } } },
        { itemStyle: { borderColor: colours.raised, borderWidth: 0, gapWidth: 1 }, emphasis: { itemStyle: { opacity: 0.85 } } },
      ],
    }],
  };
}

function treeTip(item) {
  const node = item.data || {};
  const role = ROLES[node.category];
  return element("div", { class: "tip" },
    element("div", { class: "tip-head" }, item.name || "all"),
    node.said && node.said !== item.name ? element("div", { class: "tip-said" }, node.said) : null,
    tipRow(role ? role.colour : "transparent", node.category || "together", size(item.value)));
}

function drawTree(block) {
  const place = element("div", { class: "chart tall", role: "img", "aria-label": block.title });
  const used = [...new Set(block.groups.flatMap((group) => group.leaves.map((leaf) => leaf.category)))];
  const known = Object.keys(ROLES).filter((role) => used.includes(role));
  const key = element("div", { class: "key" }, known.map((role) => element("span", {}, swatch(ROLES[role].colour), role)));
  return [element("div", {}, key, place), () => drawn(place, (colours) => treeOption(block, colours))];
}

function curveOption(block, colours) {
  const unit = axisUnit(Math.max(...block.points.map((point) => point[0])));
  return {
    animation: false, textStyle: { fontFamily: colours.font },
    grid: { left: 58, right: 24, top: 36, bottom: 52 },
    tooltip: { ...tooltip(colours), trigger: "item", formatter: (item) => element("div", { class: "tip" }, tipRow(SERIES[0], size(block.points[item.dataIndex][0]), `${(100 * block.points[item.dataIndex][1]).toFixed(1)} % slower`)) },
    xAxis: axis(colours, { type: "value", scale: true, name: `budget, ${unit.name}`, nameLocation: "middle", nameGap: 28 }),
    yAxis: axis(colours, { type: "value", name: "time paid, %", nameTextStyle: { align: "left", color: colours.soft }, min: 0 }),
    series: [{
      type: "line", step: "end", color: SERIES[0], symbol: "circle", symbolSize: 6, lineStyle: { width: 1.6 },
      data: block.points.map((point) => [point[0] / unit.bytes, 100 * point[1]]),
      markLine: {
        silent: true, symbol: "none", lineStyle: { color: colours.ink, type: [4, 3], width: 1 },
        data: block.marks.map((mark) => ({ xAxis: mark[0] / unit.bytes, label: { color: colours.ink, fontFamily: colours.font, fontSize: 11, formatter: () => mark[1] } })),
      },
    }],
  };
}

function drawCurve(block) {
  const place = element("div", { class: "chart short", role: "img", "aria-label": block.title });
  return [place, () => drawn(place, (colours) => curveOption(block, colours))];
}
