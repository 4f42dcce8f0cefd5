"use strict";

// Provenance of every run: model, data, program, options.
const provenance = (() => {
  // Nested names and values of a JSON object as elements.
  function tree(value) {
    const box = element("div");
    for (const [name, inner] of Object.entries(value)) {
      if (inner !== null && typeof inner === "object" && Object.keys(inner).length > 0) {
        box.append(element("b", name), tree(inner));
      } else {
        const line = element("span");
        line.append(element("b", `${name}: `), inner !== null && typeof inner === "object" ? "none" : String(inner));
        box.append(line, element("br"));
      }
    }
    return box;
  }

  // Formats JSON as text: {a: 1, b: [2, 3]} becomes "a: 1; b: 2, 3".
  function inWords(value) {
    if (Array.isArray(value)) return value.map(inWords).join(", ") || "none";
    if (value === null || typeof value !== "object") return String(value);
    return Object.entries(value).filter(([, inner]) => inner !== null && inner !== "").map(([name, inner]) => `${name}: ${inWords(inner)}`).join("; ") || "none";
  }

  // Returns the first value found at one of these JSON paths ("summary.capture.model").
  function known(run, ...paths) {
    for (const path of paths) {
      const value = path.split(".").reduce((at, key) => (at === null || typeof at !== "object" ? undefined : at[key]), run);
      if (value !== undefined && value !== null && value !== "") return inWords(value);
    }
    return "not said";
  }

  const kFacts = [
    ["model", "summary.capture.model", "config.model.name", "summary.capture_state.model_name", "summary.model"],
    ["revision", "summary.capture.revision", "config.model.revision"],
    ["commit", "summary.capture.commit"],
    ["dtype", "summary.capture.dtype", "config.model.dtype"],
    ["device", "summary.capture.device"],
    ["stage", "summary.capture.stage"],
    ["dataset", "config.dataset", "summary.capture_state.configuration.dataset", "summary.capture_state.dataset_repo"],
    ["captured by", "summary.capture.version"],
    ["configuration's hash", "summary.capture.config_hash"],
    ["analysed by", "summary.versions.qkscope"],
    ["analysed on", "timings.finished"],
    ["options of the analysis", "summary.options"],
  ];

  function factsOf(run) {
    const table = element("table", undefined, "facts");
    for (const [name, ...paths] of kFacts) {
      const said = known(run, ...paths);
      const row = element("tr");
      row.append(element("td", name, "text"), element("td", (name.endsWith("by") && said !== "not said" ? "qkscope " : "") + said, "text"));
      table.append(row);
    }
    return table;
  }

  function fill(list) {
    for (const [run, letter] of allRuns()) {
      const box = element("details");
      box.open = allRuns().length === 1 || Boolean(run.error);
      const what = ["summary.capture.dtype", "summary.capture.device", "timings.finished"].map((path) => known(run, path)).filter((said) => said !== "not said");
      box.append(element("summary", [letter + labelOf(run), ...what].join(" · ")), factsOf(run));
      if (run.error) box.append(element("p", run.error, "failed"));
      const details = element("details");
      details.append(element("summary", "Everything known of this run"));
      const rest = tree(Object.fromEntries(Object.entries(run).filter(([name]) => name !== "title")));
      rest.className = "tree";
      details.append(rest);
      box.append(details);
      list.append(box);
    }
  }

  return { fill };
})();
