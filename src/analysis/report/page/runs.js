"use strict";

// All runs of the page with the letter of their result: [run, "A: " or "B: " or ""].
function allRuns() {
  if (!report.other) return report.runs.map((run) => [run, ""]);
  return [...report.runs.map((run) => [run, "A: "]), ...report.other.runs.map((run) => [run, "B: "])];
}

// The table of runs: means of the measures over heads, shares of the classes.
const runTable = (() => {
  const kMeans = ["r_q", "r_k", "explained_variance", "abs_r_k_a", "alpha_k", "bias_strength", "separation_strength", "plane_var_fraction", "ap_profile_overall", "ap_last20", "ap_drop", "ap_free_overall"];
  const measures = kMeans.filter((name) => heads.measures.has(name.replace("abs_", "")));

  // Mean over the heads `members` of `set`.
  function meanOf(name, members, set) {
    const absolute = name.startsWith("abs_");
    let sum = 0, count = 0;
    for (const head of members) {
      const value = absolute ? Math.abs(measureOf(name.slice(4), head, set)) : measureOf(name, head, set);
      if (Number.isNaN(value)) continue;
      sum += value;
      ++count;
    }
    return count > 0 ? sum / count : NaN;
  }

  // Formats a mean over heads with three digits.
  function brief(value) {
    if (Number.isNaN(value)) return "";
    return Math.abs(value) < 0.01 && value !== 0 ? value.toExponential(2) : value.toFixed(3);
  }

  // Means of the measures, then shares of the classes.
  function summaryOf(members, set) {
    const classed = members.filter((head) => set.kind[head] !== 255);
    return {
      count: members.length,
      means: measures.map((name) => meanOf(name, members, set)),
      shares: report.heads.classes.map((_, code) => 100 * classed.filter((head) => set.kind[head] === code).length / classed.length),
    };
  }

  function cellsOf(summary, intervals) {
    const cells = [element("td", String(summary.count))];
    summary.means.forEach((mean, i) => {
      const cell = element("td", brief(mean));
      const interval = intervals[measures[i]];
      if (interval) {
        cell.classList.add("interval");
        explain(cell, `95 % interval over texts, jackknife: ${brief(interval[0])} to ${brief(interval[1])}`);
      }
      cells.push(cell);
    });
    for (const share of summary.shares) cells.push(element("td", Number.isNaN(share) ? "" : `${share.toFixed(1)} %`));
    return cells;
  }

  function headerOf(phases, states) {
    const header = element("tr");
    const add = (title, meaning, className) => {
      const cell = element("th", title, className);
      cell.scope = "col";
      explain(cell, meaning);
      header.append(cell);
    };
    add("run", "The run: a checkpoint or a model.", "text");
    if (phases) add("phase", "Phase of the training.", "text");
    if (states) add("state", "Whether the run of the sweep is done.", "text");
    add("heads", "Number of analysed heads.");
    for (const name of measures)
      add(name === "abs_r_k_a" ? "|r_k_a|" : titleOf(name), `Mean over heads${name === "abs_r_k_a" ? " of the absolute value" : ""}. ${meaningOf(name.replace("abs_", ""), report.heads.meanings)}`);
    for (const kind of report.heads.classes) add(kind.title, `Share of heads in the class ${kind.title}, of the heads that have a class.`);
    return header;
  }

  // The row of a run, followed by one row per attention kind if the run has several.
  function rowsOf(run, letter, members, set, phases, states) {
    const row = element("tr");
    row.append(element("td", letter + labelOf(run), "text name"));
    if (phases) row.append(element("td", run.phase || "", "text"));
    if (states) row.append(element("td", run.state || "done", run.state === "failed" ? "text failed" : "text"));
    row.append(...cellsOf(summaryOf(members, set), run.intervals || {}));
    const kinds = [...new Set(members.map((head) => attentionOf(head, set)))].sort();
    const parts = (kinds.length > 1 ? kinds : []).map((kind) => {
      const part = element("tr", undefined, "part");
      part.append(element("td", `${kind} attention`, "text name"));
      for (let empty = Number(phases) + Number(states); empty > 0; --empty) part.append(element("td"));
      part.append(...cellsOf(summaryOf(members.filter((head) => attentionOf(head, set) === kind), set), {}));
      return part;
    });
    return [row, ...parts];
  }

  // Row of differences: means of B minus means of A, over the heads in both.
  function differenceRow(phases, states) {
    const matched = [...heads.layer.keys()].filter((head) => matchOf(head) >= 0);
    const first = summaryOf(matched, heads), second = summaryOf(matched.map(matchOf), others);
    const minus = (name) => second[name].map((value, i) => value - first[name][i]);
    const row = element("tr", undefined, "difference");
    row.append(element("td", "B − A, heads in both", "text name"));
    for (let empty = Number(phases) + Number(states); empty > 0; --empty) row.append(element("td"));
    row.append(...cellsOf({ count: matched.length, means: minus("means"), shares: minus("shares") }, {}));
    return row;
  }

  function fill(table) {
    const runs = allRuns();
    const phases = runs.some(([run]) => run.phase);
    const states = runs.some(([run]) => (run.state || "done") !== "done");
    const rows = runs.flatMap(([run, letter]) => {
      const set = letter === "B: " ? others : heads;
      const index = (set === heads ? report : report.other).runs.indexOf(run);
      const members = [...set.run.keys()].filter((head) => set.run[head] === index);
      return rowsOf(run, letter, members, set, phases, states);
    });
    if (others) rows.push(differenceRow(phases, states));
    table.replaceChildren(headerOf(phases, states), ...rows);
  }

  return { fill };
})();
