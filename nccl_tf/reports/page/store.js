"use strict";

// The runs of the page: which stream is shown, which settings are chosen, and how each looks.
// An element of `store.groups` is the seeds of one settings; `store.columns` has a row for each run.

const store = {
  data: null,
  stream: 0,
  chosen: [], // ids of groups, in the order in which they were chosen
  filtered: null, // ids that the filters of the table leave; null for all
  slots: new Map(), // id of a chosen group -> number of its look, kept while it is chosen
};

function readData(text) {
  store.data = JSON.parse(text);
  const ids = new Set(store.data.groups.map((group) => group.id));
  store.chosen = store.chosen.filter((id) => ids.has(id));
}

function streamGroups() {
  return store.data.groups.filter((group) => group.stream === store.stream);
}

function chosenGroups() {
  const byId = new Map(streamGroups().map((group) => [group.id, group]));
  return store.chosen.filter((id) => byId.has(id)).map((id) => byId.get(id));
}

function choose(ids) {
  store.chosen = [...ids];
  for (const id of store.slots.keys()) if (!store.chosen.includes(id)) store.slots.delete(id);
  for (const id of store.chosen) {
    if (store.slots.has(id)) continue;
    const taken = new Set(store.slots.values());
    let slot = 0;
    while (taken.has(slot)) slot += 1;
    store.slots.set(id, slot);
  }
}

// The most accurate settings of each of the six best methods, and of joint training.
function bestOfMethods(count = 6) {
  const groups = streamGroups().sort((a, b) => b.accuracy[0] - a.accuracy[0]);
  const best = new Map();
  for (const group of groups.filter((one) => !one.joint)) {
    if (!best.has(group.method)) best.set(group.method, group.id);
  }
  const joint = groups.filter((one) => one.joint).slice(0, 1);
  return [...[...best.values()].slice(0, count), ...joint.map((group) => group.id)];
}

// The stream with the most settings of evaluated tasks.
function largestStream() {
  const counts = store.data.streams.map(
    (stream, i) => store.data.groups.filter((g) => g.stream === i).length * (stream.tuning ? 0.001 : 1),
  );
  return Math.max(0, counts.indexOf(Math.max(...counts)));
}

// Okabe and Ito's colours, which differ without colour vision too; the first is that of text.
const COLORS = [null, "#E69F00", "#56B4E9", "#009E73", "#3B82C4", "#D55E00", "#CC79A7"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon"];
const DASHES = ["solid", "dash", "dot", "dashdot"];

function cssColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function lookOf(group) {
  const slot = store.slots.get(group.id) ?? 0;
  return {
    color: COLORS[slot % COLORS.length] ?? cssColor("--ink"),
    symbol: SYMBOLS[slot % SYMBOLS.length],
    dash: DASHES[Math.floor(slot / COLORS.length) % DASHES.length],
  };
}

function transparent(color, alpha) {
  const digits = color.slice(1).match(/../g).map((pair) => parseInt(pair, 16));
  return `rgba(${digits.join(",")},${alpha})`;
}

// Text as Plotly shows it: it would take tags and entities for its own.
function plain(text) {
  const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
  return String(text).replace(/[&<>]/g, (character) => entities[character]);
}

function settingNames() {
  return store.data.setting_names;
}

// The value of a column for the first run of a group, as text; "" where it has none.
function settingOf(group, name) {
  const value = store.data.columns[name][group.rows[0]];
  return value === null ? "" : String(value);
}

function describe(mean, digits) {
  if (mean === null) return "";
  const [value, std] = mean;
  return value.toFixed(digits) + (std === null ? "" : ` ± ${std.toFixed(digits)}`);
}

// Rows of `data.columns` as CSV; a text that a spreadsheet would take for a formula begins with '.
function asCsv(names, rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value !== "string") return String(value);
    const text = /^\s*[=+\-@]/.test(value) ? `'${value}` : value;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function runsCsv(rows) {
  const names = Object.keys(store.data.columns);
  return asCsv(names, rows.map((row) => names.map((name) => store.data.columns[name][row])));
}

function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
