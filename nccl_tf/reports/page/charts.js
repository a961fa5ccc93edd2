"use strict";

// Curves over the tasks, accuracy against forgetting, and step sizes over training.

const CONFIG = {
  displaylogo: false,
  // Named, because others would send the data to Plotly's servers.
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
};

function layout(more) {
  const line = cssColor("--line");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
  const narrow = window.innerWidth < 700;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: cssColor("--ink"), size: 12, family: "system-ui, sans-serif" },
    margin: { l: 55, r: 15, t: 35, b: 45 },
    modebar: {
      bgcolor: "rgba(0,0,0,0)", color: cssColor("--faint"), activecolor: cssColor("--ink"),
    },
    hovermode: "closest",
    hoverlabel: { align: "left", namelength: -1, bgcolor: cssColor("--paper"),
      font: { color: cssColor("--ink") }, bordercolor: line },
    legend: narrow ? { orientation: "h", y: -0.25 } : { x: 1.01, y: 1 },
    showlegend: true,
    ...more,
    height: (more.height ?? 400) + (narrow ? 22 * chosenGroups().length : 0),
    xaxis: { ...axis, ...more.xaxis },
    yaxis: { ...axis, ...more.yaxis },
  };
}

// Draws or redraws a plot as wide as its place is now.
function draw(place, traces, content) {
  Plotly.react(place, traces, { ...content, width: place.clientWidth }, CONFIG);
}

function band(x, low, high, color, alpha) {
  const known = x.map((_, i) => i).filter((i) => low[i] !== null && high[i] !== null);
  const back = [...known].reverse();
  return {
    x: [...known.map((i) => x[i]), ...back.map((i) => x[i])],
    y: [...known.map((i) => high[i]), ...back.map((i) => low[i])],
    fill: "toself", fillcolor: transparent(color, alpha), line: { width: 0 }, mode: "lines",
    hoverinfo: "skip", showlegend: false,
  };
}

function showNote(id, text) {
  const note = document.getElementById(id);
  note.textContent = text;
  note.hidden = text === "";
}

function drawCurves() {
  const groups = chosenGroups().sort((a, b) => b.accuracy[0] - a.accuracy[0]);
  const traces = groups.flatMap((group) => {
    const look = lookOf(group);
    const [mean, std] = group.curve;
    const tasks = mean.map((_, i) => i + 1);
    const low = mean.map((value, i) => (value === null ? null : value - std[i]));
    const high = mean.map((value, i) => (value === null ? null : value + std[i]));
    return [
      band(tasks, low, high, look.color, 0.15),
      {
        x: tasks, y: mean, customdata: std, name: plain(group.label), mode: "lines+markers",
        connectgaps: true, line: { color: look.color, dash: look.dash, width: 2 },
        marker: { color: look.color, symbol: look.symbol, size: 7 },
        hovertemplate: `<b>${plain(group.label)}</b><br>after task %{x}: %{y:.1f} ± `
          + `%{customdata:.1f} %<br>${group.rows.length} seeds<extra></extra>`,
      },
    ];
  });
  showNote("curves-note", groups.length ? "" : "Choose settings in the table to draw them.");
  draw(document.getElementById("curves"), traces, layout({
    xaxis: { title: { text: "tasks trained" }, dtick: taskTick() },
    yaxis: { title: { text: "accuracy over the tasks so far (%)" } },
  }));
}

function taskTick() {
  const tasks = store.data.streams[store.stream]?.tasks ?? 1;
  return tasks > (window.innerWidth < 700 ? 10 : 25) ? 5 : 1;
}

function drawScatter(onPick) {
  const shown = streamGroups().filter((group) => group.forgetting !== null);
  const chosen = new Set(store.chosen);
  const others = shown.filter(
    (group) => !chosen.has(group.id) && (store.filtered === null || store.filtered.has(group.id)),
  );
  const hover = "<b>%{text}</b><br>accuracy %{y:.1f} %, forgetting %{x:.3f}<extra></extra>";
  const traces = [{
    x: others.map((group) => group.forgetting[0]), y: others.map((group) => group.accuracy[0]),
    text: others.map((group) => plain(group.label)), customdata: others.map((group) => group.id),
    name: "not chosen", mode: "markers", hovertemplate: hover,
    marker: { color: cssColor("--faint"), size: 7, opacity: 0.55 },
  }];
  for (const group of shown.filter((one) => chosen.has(one.id))) {
    const look = lookOf(group);
    const bars = (mean) => ({
      type: "data", array: [mean[1] ?? 0], color: look.color, thickness: 1.2, width: 3,
    });
    traces.push({
      x: [group.forgetting[0]], y: [group.accuracy[0]], error_x: bars(group.forgetting),
      error_y: bars(group.accuracy), text: [plain(group.label)], customdata: [group.id],
      name: plain(group.label), mode: "markers", hovertemplate: hover,
      marker: { color: look.color, symbol: look.symbol, size: 10 },
    });
  }
  const place = document.getElementById("scatter");
  draw(place, traces, layout({
    xaxis: { title: { text: "forgetting" } }, yaxis: { title: { text: "average accuracy (%)" } },
  }));
  if (!place.dataset.ready) {
    place.dataset.ready = "yes";
    place.on("plotly_click", (event) => onPick(event.points[0].customdata));
  }
}

const QUANTITIES = {
  lambda: "Λ, the inner product of the gradients",
  alpha_h: "α<sub>H</sub>, the step size of the memory gradient",
  beta_h: "β<sub>H</sub>, the step size of the stream gradient",
};

// Median, and bands of 50 and 90 percent, of the windows in each part of the training.
function drawDistributions(logarithmic) {
  const groups = chosenGroups().filter((group) => group.steps !== null);
  showNote("steps-note", groups.length ? "" : "None of the chosen settings has a steps.csv with "
    + "these quantities: choose NCCL or A-GEM, from a folder of runs; published records have none.");
  for (const [name, title] of Object.entries(QUANTITIES)) {
    const place = document.getElementById(`steps-${name}`);
    const measured = groups.filter((group) => group.steps[name] !== undefined);
    place.hidden = measured.length === 0;
    if (place.hidden) continue;
    const traces = measured.flatMap((group) => {
      const look = lookOf(group);
      const [p05, p25, p50, p75, p95] = group.steps[name];
      const steps = group.steps.step;
      return [
        band(steps, p05, p95, look.color, 0.12),
        band(steps, p25, p75, look.color, 0.25),
        {
          x: steps, y: p50, name: plain(group.label), mode: "lines",
          customdata: steps.map((_, i) => [p05[i], p25[i], p75[i], p95[i]]),
          line: { color: look.color, dash: look.dash, width: 2 },
          hovertemplate: `<b>${plain(group.label)}</b><br>up to step %{x}: median %{y:.3g}<br>`
            + "half of them %{customdata[1]:.3g} to %{customdata[2]:.3g}<br>"
            + "90 % of them %{customdata[0]:.3g} to %{customdata[3]:.3g}<extra></extra>",
        },
      ];
    });
    draw(place, traces, layout({
      height: 280, margin: { l: 65, r: 15, t: 35, b: 42 },
      title: { text: title, x: 0, xanchor: "left", font: { size: 13 } },
      xaxis: { title: { text: "training step" } },
      yaxis: { type: logarithmic ? "log" : "linear", exponentformat: "power" },
    }));
  }
}
