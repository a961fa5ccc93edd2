"use strict";

// The accuracy matrix as heat maps: of one settings up to a time, and of all chosen at that time.
// Tasks that are not trained yet stay empty.

function shownMatrix() {
  const groups = chosenGroups();
  const id = document.getElementById("matrix-of").value;
  return groups.find((group) => group.id === id) ?? groups[0];
}

function fillMatrixChoice() {
  const choice = document.getElementById("matrix-of");
  const before = choice.value;
  choice.replaceChildren(
    ...chosenGroups().map((group) => {
      const option = document.createElement("option");
      option.value = group.id;
      option.textContent = group.label;
      return option;
    }),
  );
  const groups = chosenGroups();
  const shown = groups.find((group) => group.id === before) ?? groups.find((one) => !one.joint);
  if (shown) choice.value = shown.id;
}

function colorRange(matrices) {
  const values = matrices
    .flatMap((matrix) => matrix.flatMap((row, i) => row.slice(0, i + 1)))
    .filter((value) => value !== null);
  return [Math.min(90, 10 * Math.floor(Math.min(90, ...values) / 10)), 100];
}

function heatMap(place, z, labels, range, hover, height) {
  const count = z[0]?.length ?? 0;
  const roomy = count <= Math.min(20, Math.floor(window.innerWidth / 45));
  const tasks = Array.from({ length: count }, (_, i) => i + 1);
  draw(document.getElementById(place), [{
    type: "heatmap", z, x: tasks, y: labels.map((_, i) => i), zmin: range[0], zmax: range[1],
    colorscale: "Cividis", xgap: 1, ygap: 1, hovertemplate: hover, hoverongaps: false,
    customdata: z.map((row, i) => row.map(() => labels[i])),
    texttemplate: roomy ? "%{z:.0f}" : "", colorbar: { title: { text: "%" }, thickness: 12 },
  }], {
    ...layout({
      height, showlegend: false,
      xaxis: { title: { text: "evaluated on task" }, dtick: taskTick(), showgrid: false },
      yaxis: {
        autorange: "reversed", showgrid: false, tickvals: labels.map((_, i) => i), ticktext: labels,
      },
    }),
    height,
  });
}

function drawMatrix() {
  const group = shownMatrix();
  const slider = document.getElementById("matrix-time");
  for (const id of ["matrix", "matrix-all"]) document.getElementById(id).hidden = !group;
  if (!group) return;
  const time = Number(slider.value);
  document.getElementById("matrix-when").textContent = `after task ${time}`;
  const groups = chosenGroups();
  const range = colorRange(groups.map((one) => one.matrix));
  const cell = window.innerWidth < 700 ? 15 : 26;
  heatMap(
    "matrix", group.matrix.map((row, i) => row.map((a, j) => (i < time && j <= i ? a : null))),
    group.matrix.map((_, i) => String(i + 1)), range,
    "after task %{customdata}, on task %{x}: %{z:.1f} %<extra></extra>",
    cell * group.matrix.length + 90,
  );
  const short = (text) => (text.length > 28 ? `${text.slice(0, 27)}…` : text);
  heatMap(
    "matrix-all", groups.map((one) => one.matrix[time - 1].map((a, j) => (j < time ? a : null))),
    groups.map((one) => plain(short(one.label))), range,
    "<b>%{customdata}</b><br>on task %{x}: %{z:.1f} %<extra></extra>", 26 * groups.length + 90,
  );
}
