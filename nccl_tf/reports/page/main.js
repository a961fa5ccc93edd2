"use strict";

// Puts the parts together: what the reader chooses, and new runs where the page is served.

(async () => {
  const byId = (id) => document.getElementById(id);
  readData(byId("data").textContent);

  const settings = makeSettingsTable(
    (ids) => show(ids),
    () => drawScatter(pick),
  );
  const runs = makeRunsTable();
  await Promise.all([settings.built, runs.built]);

  function show(ids) {
    choose(ids);
    byId("count").textContent = `${chosenGroups().length} chosen`;
    fillMatrixChoice();
    drawAll();
    fillDifferences(byId("all-settings").checked);
    runs.fill();
  }

  function pick(id) {
    const chosen = store.chosen.includes(id);
    show(chosen ? store.chosen.filter((one) => one !== id) : [...store.chosen, id]);
    settings.select();
  }

  function drawAll() {
    drawCurves();
    drawScatter(pick);
    drawMatrix();
    drawDistributions(byId("steps-log").checked);
  }

  const countRuns = (count) => `${count} ${count === 1 ? "run" : "runs"}`;

  function fillStreams() {
    byId("stream").replaceChildren(
      ...store.data.streams.map((stream, i) => {
        const option = document.createElement("option");
        const runsOf = store.data.groups.filter((group) => group.stream === i);
        const count = runsOf.reduce((sum, group) => sum + group.rows.length, 0);
        option.value = i;
        option.textContent = `${stream.title}: ${countRuns(count)}`;
        return option;
      }),
    );
    byId("stream").value = store.stream;
    const count = store.data.groups.reduce((sum, group) => sum + group.rows.length, 0);
    byId("title").textContent = `Continual learning: ${countRuns(count)}`;
  }

  async function showStream(number, ids) {
    store.stream = number;
    byId("stream").value = number;
    const tasks = store.data.streams[number]?.tasks ?? 1;
    if (Number(byId("matrix-time").max) !== tasks) {
      byId("matrix-time").max = tasks;
      byId("matrix-time").value = tasks;
    }
    choose(ids ?? bestOfMethods());
    await settings.fill();
    show(store.chosen);
  }

  byId("stream").addEventListener("change", (event) => {
    settings.clearFilters();
    showStream(Number(event.target.value));
  });
  const choices = {
    best: () => bestOfMethods(),
    none: () => [],
    visible: () => streamGroups().map((g) => g.id).filter((id) => store.filtered?.has(id) ?? true),
  };
  for (const [name, ids] of Object.entries(choices)) {
    byId(`choose-${name}`).addEventListener("click", () => {
      show(ids());
      settings.select();
    });
  }
  byId("matrix-of").addEventListener("change", drawMatrix);
  byId("matrix-time").addEventListener("input", drawMatrix);
  byId("steps-log").addEventListener("change", () => drawDistributions(byId("steps-log").checked));
  byId("all-settings").addEventListener("change", () => fillDifferences(byId("all-settings").checked));
  byId("download-chosen").addEventListener("click", () => {
    download("chosen_runs.csv", runsCsv(shownRuns().map(([, row]) => row)));
  });
  byId("download-all").addEventListener("click", () => {
    const count = store.data.columns.method?.length ?? 0;
    download("runs.csv", runsCsv(Array.from({ length: count }, (_, i) => i)));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let resized = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(drawAll, 100);
  });

  fillStreams();
  await showStream(largestStream());
  document.body.dataset.ready = "yes";
  if (document.body.dataset.live) follow();

  // Asks its own server again and again; shows what is new, and keeps what is chosen.
  async function follow() {
    let tag = "";
    for (;;) {
      let text = null;
      try {
        const reply = await fetch("data.json", { headers: { "If-None-Match": tag } });
        if (reply.status === 200) {
          tag = reply.headers.get("ETag");
          text = await reply.text();
        }
      } catch {
        byId("live").textContent = "The command that served this page has ended.";
        return;
      }
      if (text !== null) {
        const empty = store.data.streams.length === 0;
        const title = store.data.streams[store.stream]?.title;
        readData(text);
        fillStreams();
        const same = store.data.streams.findIndex((stream) => stream.title === title);
        await showStream(Math.max(0, same), empty || same < 0 ? null : store.chosen);
        showUnfinished();
      }
      await new Promise((resolve) => setTimeout(resolve, 1000 * store.data.live.seconds));
    }
  }

  function showUnfinished() {
    const { unfinished, time } = store.data.live;
    const running = unfinished.map(([name, step]) => `${name} (step ${step})`).join(", ");
    byId("live").textContent = `Followed live, last change ${time}. `
      + (running ? `Not finished: ${running}.` : "No unfinished run.");
  }
})();
