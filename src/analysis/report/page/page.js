"use strict";

// Fills the page and connects its parts.
(() => {
  const at = (id) => document.getElementById(id);

  // The name of a sweep, the run's title, or the name of the folder.
  function titleOfResults({ name, runs, folder }) {
    return name || (runs.length === 1 ? labelOf(runs[0]) : folder);
  }

  // Titles of both results of a comparison, with folders if both are of one model.
  function titlesOfBoth() {
    const parts = [report, report.other];
    const [first, second] = parts.map(titleOfResults);
    return first === second ? parts.map(({ folder }) => `${first} (${folder})`) : [first, second];
  }

  function fillTitle() {
    const counted = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
    let title = titleOfResults(report);
    let subtitle = `${counted(report.runs.length, "run")}, ${counted(heads.count, "head")}`;
    if (others) {
      const both = heads.layer.filter((_, head) => matchOf(head) >= 0).length;
      const [first, second] = titlesOfBoth();
      title = `A: ${first} – B: ${second}`;
      subtitle = `${counted(both, "head")} in both, ${heads.count - both} only in A, ${others.count - both} only in B (not in the table)`;
    }
    document.title = `${title} – qkscope`;
    at("title").textContent = title;
    at("subtitle").textContent = `${subtitle}; made by qkscope ${report.version}`;
  }

  // Shows the warnings of the analyses, for example about too little data.
  function fillWarnings() {
    const runs = allRuns();
    for (const [run, letter] of runs)
      for (const warning of (run.summary && run.summary.warnings) || [])
        at("warnings").append(element("p", runs.length > 1 ? `${letter}${labelOf(run)}: ${warning}` : warning, "warning"));
  }

  // Heads have addresses: #head-LAYER.HEAD, or #head-RUN-LAYER.HEAD in a report of several runs.
  function addressOf(head) {
    const run = report.runs.length > 1 ? `${heads.run[head]}-` : "";
    return `#head-${run}${heads.layer[head]}.${heads.head[head]}`;
  }

  function headAt(address) {
    const found = /^#head-(?:(\d+)-)?(\d+)\.(\d+)$/.exec(address);
    if (!found) return -1;
    const [run, layer, number] = found.slice(1).map(Number);
    return heads.layer.findIndex((_, head) => heads.layer[head] === layer && heads.head[head] === number && (Number.isNaN(run) || heads.run[head] === run));
  }

  // Selects a head and scrolls to its view; filters that hide the head are cleared.
  function openHead(head) {
    if (head < 0) return;
    if (!headTable.chooseHead(head)) {
      clearFilters();
      headTable.chooseHead(head);
    }
    at("head-view").scrollIntoView({ block: "start" });
    at("head-view").focus({ preventScroll: true });
  }

  function openFromMap(layer, number) {
    const head = headAt(`#head-${layer}.${number}`);
    if (head < 0) return;
    history.pushState(null, "", addressOf(head));
    openHead(head);
  }

  function showColumns() {
    const parts = { both: [0, 1, 2], A: [0], B: [1], difference: [2] }[at("values").value];
    headTable.setColumns(headColumns(at("all-columns").checked, parts));
    const rows = headTable.columns().map((column) => [element("dt", column.title), element("dd", column.meaning)]);
    at("glossary").replaceChildren(...rows.flat());
  }

  function clearFilters() {
    filters.clear();
    showColumns();
  }

  function startHeads() {
    at("values").closest("label").hidden = !others;
    headTable.start((head) => {
      headView.show(head);
      headMaps.outline(heads.layer[head], heads.head[head]);
      if (headAt(location.hash) !== head) history.replaceState(null, "", addressOf(head));
    });
    at("all-columns").addEventListener("input", showColumns);
    at("values").addEventListener("input", showColumns);
    at("clear").addEventListener("click", clearFilters);
    at("download").addEventListener("click", () => downloadCsv("heads.csv", headTable.csv()));
    at("tools").addEventListener("submit", (event) => event.preventDefault());
    showColumns();
  }

  fillTitle();
  fillWarnings();
  runTable.fill(at("run-table"));
  at("pair-note").hidden = !others;
  at("interval-note").hidden = !allRuns().some(([run]) => run.intervals);
  figureList.fill(at("figure-list"), at("left-out"), openFromMap);
  startHeads();
  provenance.fill(at("provenance-list"));
  openHead(headAt(location.hash));
  window.addEventListener("hashchange", () => openHead(headAt(location.hash)));
})();
