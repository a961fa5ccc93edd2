"use strict";

// The tables: settings to choose from, what differs between the chosen ones, and their runs.

let settingsTable = null;
let runsTable = null;

// A filter of numbers: "500", ">=90", "< 0.1".
function numberFilter(wanted, value) {
  const [, sign, text] = String(wanted).trim().match(/^(<=|>=|<|>|=)?\s*(.*)$/);
  if (text === "") return true;
  const number = Number(text);
  if (Number.isNaN(number) || value === null || value === undefined) return false;
  switch (sign) {
    case "<": return value < number;
    case "<=": return value <= number;
    case ">": return value > number;
    case ">=": return value >= number;
    default: return value === number;
  }
}

// Every word stands in the method, or in one of the settings as "name=value".
function wordFilter(wanted, value, row) {
  const text = `${row.method} ${row.text}`.toLowerCase();
  return wanted.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function numberColumn(title, field, more = {}) {
  return {
    title, field, hozAlign: "right", headerHozAlign: "right", sorter: "number",
    sorterParams: { alignEmptyValues: "bottom" }, headerSortStartingDir: "desc",
    headerFilter: "input", headerFilterFunc: numberFilter, headerFilterPlaceholder: "> …",
    headerFilterLiveFilter: true, ...more,
  };
}

// Digits and signs alone, which need no escaping.
function meanColumn(title, field, digits, more = {}) {
  const show = (cell) => describe(cell.getData()[`${field}Std`], digits);
  return numberColumn(title, field, { formatter: show, ...more });
}

function settingsRow(group) {
  const names = settingNames();
  const text = names.map((name) => [name, settingOf(group, name)]).filter(([, v]) => v !== "");
  return {
    id: group.id,
    method: group.method,
    differs: group.differs,
    text: `${text.map((pair) => pair.join("=")).join(" ")} ${group.id}`,
    rate: group.rate,
    memory: group.memory,
    seeds: group.rows.length,
    seconds: group.seconds,
    ...meanFields("accuracy", group.accuracy),
    ...meanFields("forgetting", group.forgetting),
    ...meanFields("averagedAccuracy", group.averaged_accuracy),
    ...meanFields("averagedForgetting", group.averaged_forgetting),
  };
}

function meanFields(name, mean) {
  return { [name]: mean === null ? null : mean[0], [`${name}Std`]: mean };
}

const AVERAGED_COLUMNS = [
  meanColumn("averaged<br>accuracy %", "averagedAccuracy", 1),
  meanColumn("averaged<br>forgetting", "averagedForgetting", 3, { headerSortStartingDir: "asc" }),
];

const SETTINGS_COLUMNS = [
  {
    formatter: "rowSelection", width: 34, minWidth: 34, hozAlign: "center", headerSort: false,
    resizable: false,
  },
  {
    title: "method", field: "method", headerFilter: "input", headerFilterPlaceholder: "name",
    minWidth: 150,
  },
  meanColumn("accuracy<br>%", "accuracy", 1),
  meanColumn("forgetting", "forgetting", 3, { headerSortStartingDir: "asc" }),
  ...AVERAGED_COLUMNS,
  numberColumn("learning<br>rate", "rate"),
  numberColumn("memory", "memory"),
  numberColumn("seeds", "seeds"),
  numberColumn("training<br>seconds", "seconds", { formatter: (cell) => cell.getValue().toFixed(1) }),
  {
    title: "settings that differ", field: "differs", headerFilter: "input", minWidth: 220,
    headerFilterFunc: wordFilter, headerFilterPlaceholder: "words of any setting: batch_size=10",
  },
];

function makeSettingsTable(onChosen, onFiltered) {
  settingsTable = new Tabulator("#settings-table", {
    data: [], columns: SETTINGS_COLUMNS, index: "id", layout: "fitDataStretch", maxHeight: 460,
    selectableRows: true, initialSort: [{ column: "accuracy", dir: "desc" }],
    placeholder: "no settings that these filters leave", columnHeaderVertAlign: "bottom",
  });
  let ours = false; // a selection that the page makes, not the reader
  settingsTable.on("rowSelectionChanged", (rows) => {
    if (!ours) onChosen(rows.map((row) => row.id));
  });
  settingsTable.on("dataFiltered", (filters, rows) => {
    store.filtered = filters.length ? new Set(rows.map((row) => row.getData().id)) : null;
    if (!ours) onFiltered();
  });
  const built = new Promise((resolve) => settingsTable.on("tableBuilt", resolve));
  return {
    built,
    async fill() {
      ours = true;
      const groups = streamGroups();
      await settingsTable.replaceData(groups.map(settingsRow));
      const averaged = groups.some((group) => group.averaged_accuracy !== null);
      for (const { field } of AVERAGED_COLUMNS) {
        settingsTable[averaged ? "showColumn" : "hideColumn"](field);
      }
      settingsTable.selectRow(chosenGroups().map((group) => group.id));
      ours = false;
    },
    select() {
      ours = true;
      settingsTable.deselectRow();
      settingsTable.selectRow(chosenGroups().map((group) => group.id));
      ours = false;
    },
    clearFilters() {
      settingsTable.clearHeaderFilter();
    },
  };
}

const RUN_COLUMNS = [
  { title: "method", field: "label", minWidth: 150, headerFilter: "input" },
  numberColumn("seed", "seed", { headerSortStartingDir: "asc" }),
  numberColumn("accuracy<br>%", "accuracy", { formatter: (cell) => cell.getValue().toFixed(2) }),
  numberColumn("forgetting", "forgetting", {
    formatter: (cell) => (cell.getValue() === null ? "" : cell.getValue().toFixed(4)),
  }),
  numberColumn("training<br>seconds", "train_seconds", {
    formatter: (cell) => cell.getValue().toFixed(1),
  }),
  numberColumn("steps", "steps"),
  numberColumn("skipped", "skipped_steps"),
  numberColumn("memory<br>MB", "megabytes", { formatter: (cell) => cell.getValue().toFixed(0) }),
  { title: "device", field: "device", headerFilter: "input" },
  { title: "commit", field: "commit", headerFilter: "input" },
  { title: "state", field: "state", headerFilter: "input" },
];

// The runs of the chosen settings, or of the whole stream where none is chosen.
function shownRuns() {
  const groups = chosenGroups();
  return (groups.length ? groups : streamGroups()).flatMap((g) => g.rows.map((row) => [g, row]));
}

function makeRunsTable() {
  runsTable = new Tabulator("#runs-table", {
    data: [], columns: RUN_COLUMNS, layout: "fitDataStretch", maxHeight: 380,
    columnHeaderVertAlign: "bottom", placeholder: "no runs",
  });
  const built = new Promise((resolve) => runsTable.on("tableBuilt", resolve));
  return {
    built,
    fill() {
      const columns = store.data.columns;
      const value = (name, row) => columns[name]?.[row] ?? null;
      return runsTable.replaceData(
        shownRuns().map(([group, row]) => ({
          label: group.label,
          seed: value("seed", row),
          accuracy: 100 * value("average_accuracy", row),
          forgetting: value("forgetting", row),
          train_seconds: value("train_seconds", row),
          steps: value("steps", row),
          skipped_steps: value("skipped_steps", row),
          megabytes: value("peak_memory_bytes", row) / 1e6,
          device: value("device", row),
          commit: value("commit", row)?.slice(0, 12),
          state: value("state_sha256", row)?.slice(0, 12),
        })),
      );
    },
  };
}

// What differs between the chosen settings, a column each; all settings where one is chosen.
function fillDifferences(all) {
  const table = document.getElementById("differences");
  const groups = chosenGroups();
  const names = settingNames().filter((name) => {
    const values = groups.map((group) => settingOf(group, name));
    return all || groups.length < 2 ? values.some(Boolean) : new Set(values).size > 1;
  });
  const line = (kind, cells) => {
    const row = document.createElement("tr");
    cells.forEach((text, i) => {
      const cell = document.createElement(i === 0 ? "th" : kind);
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  };
  table.replaceChildren(
    line("th", ["setting", ...groups.map((group) => group.label)]),
    ...names.map((name) => line("td", [name, ...groups.map((g) => settingOf(g, name) || "-")])),
  );
}
