"use strict";
// Words and numbers. Whatever comes from the script reaches the screen through `element`, as text.

const data = JSON.parse(document.getElementById("data").textContent);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) made.append(child);
  }
  return made;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

// The same digits as lowtide.units.format_size, so that page and terminal agree.
function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let rest = Math.abs(bytes), unit = 0;
  while (rest >= 1024 && unit < UNITS.length - 1) { rest /= 1024; unit += 1; }
  const digits = unit === 0 || rest >= 999.95 ? 0 : rest >= 99.995 ? 1 : 2;
  return `${bytes < 0 ? "−" : ""}${rest.toFixed(digits)} ${UNITS[unit]}`;
}

// One unit for a whole axis: MiB, unless that would make long numbers.
function axisUnit(most) {
  if (most >= 16 * 2 ** 30) return { name: "GiB", bytes: 2 ** 30 };
  if (most < 2 ** 20) return { name: "KiB", bytes: 2 ** 10 };
  return { name: "MiB", bytes: 2 ** 20 };
}

function number(value) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en-US", { maximumFractionDigits: 3 });
}

function clipped(text, length) {
  return text.length > length ? text.slice(0, length - 1) + "…" : text;
}
