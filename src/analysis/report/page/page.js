"use strict";

// Fills the page: runs, figures, filters of the head table, provenance.
(() => {
  const at = (id) => document.getElementById(id);

  function fillTitle() {
    document.title = `${report.title} – qkscope`;
    at("title").textContent = report.title;
    const runs = report.runs.length === 1 ? "One run" : `${report.runs.length} runs`;
    at("subtitle").textContent = `${runs}, ${heads.count.toLocaleString("en")} heads; made by qkscope ${report.version}`;
  }

  function meanOf(name, members) {
    const absolute = name.startsWith("abs_");
    let sum = 0, count = 0;
    for (const head of members) {
      const value = absolute ? Math.abs(measureOf(name.slice(4), head)) : measureOf(name, head);
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

  const kMeans = ["r_q", "r_k", "explained_variance", "abs_r_k_a", "alpha_k", "bias_strength", "separation_strength", "plane_var_fraction", "ap_profile_overall", "ap_last20", "ap_drop", "ap_free_overall"];

  // Cells of a row of the run table: number of heads, means, shares of the classes.
  function summaryCells(members, measures, intervals) {
    const cells = [element("td", String(members.length))];
    for (const name of measures) {
      const cell = element("td", brief(meanOf(name, members)));
      const interval = intervals[name];
      if (interval) cell.title = `95 % interval over texts, jackknife: ${brief(interval[0])} to ${brief(interval[1])}`;
      cells.push(cell);
    }
    const classed = members.filter((head) => heads.kind[head] !== 255);
    report.heads.classes.forEach((kind, code) => {
      const share = classed.filter((head) => heads.kind[head] === code).length / classed.length;
      cells.push(element("td", classed.length > 0 ? `${(100 * share).toFixed(1)} %` : ""));
    });
    return cells;
  }

  // One row per run, followed by one row per attention kind if the run has several.
  function fillRuns() {
    const members = report.runs.map(() => []);
    for (let head = 0; head < heads.count; ++head) members[heads.run[head]].push(head);
    const measures = kMeans.filter((name) => heads.measures.has(name.replace("abs_", "")));
    const phases = report.runs.some((run) => run.phase);
    const states = report.runs.some((run) => (run.state || "done") !== "done");
    const header = element("tr");
    header.append(element("th", "run", "text"));
    if (phases) header.append(element("th", "phase", "text"));
    if (states) header.append(element("th", "state", "text"));
    header.append(element("th", "heads"));
    for (const name of measures) header.append(element("th", name === "abs_r_k_a" ? "|r_k_a|" : titleOf(name)));
    for (const kind of report.heads.classes) header.append(element("th", kind.title));
    const rows = [];
    report.runs.forEach((run, i) => {
      const row = element("tr");
      row.append(element("td", labelOf(run), "text name"));
      if (phases) row.append(element("td", run.phase || "", "text"));
      if (states) row.append(element("td", run.state || "done", run.state === "failed" ? "text failed" : "text"));
      row.append(...summaryCells(members[i], measures, run.intervals || {}));
      rows.push(row);
      const kinds = [...new Set(members[i].map(attentionOf))].sort();
      for (const kind of kinds.length > 1 ? kinds : []) {
        const part = element("tr", undefined, "part");
        part.append(element("td", `${kind} attention`, "text name"));
        for (let empty = Number(phases) + Number(states); empty > 0; --empty) part.append(element("td"));
        part.append(...summaryCells(members[i].filter((head) => attentionOf(head) === kind), measures, {}));
        rows.push(part);
      }
    });
    at("run-table").replaceChildren(header, ...rows);
    at("interval-note").hidden = !report.runs.some((run) => run.intervals);
  }

  function tableOf(csv) {
    const table = element("table");
    for (const cells of csv) {
      const row = element("tr");
      for (const cell of cells) {
        const number = typeof cell === "number" || cell === null;
        row.append(element(table.childElementCount === 0 ? "th" : "td", number ? shown(cell) : cell, number ? "" : "text"));
      }
      table.append(row);
    }
    return table;
  }

  // Lazy loading: pictures are decoded when they come near the viewport.
  const nearby = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) load(entry.target);
  }, { rootMargin: "300px" });

  function load(image) {
    nearby.unobserve(image);
    image.src = image.figure.picture;
  }

  window.addEventListener("beforeprint", () => {
    for (const image of document.querySelectorAll("figure img:not([src])")) load(image);
  });

  // Adds tooltips to the cells of a picture; a click on the cell of a head opens the head.
  function addTooltips(image, cells) {
    if (cells.length === 0) return;
    const cellAt = (event) => {
      const box = image.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
      return cells.find(([left, top, right, bottom]) => x >= left && x < right && y >= top && y < bottom);
    };
    image.addEventListener("mousemove", (event) => {
      const cell = cellAt(event);
      image.style.cursor = cell && cell.length > 5 ? "pointer" : "";
      if (cell) hint.show(event, cell[4]);
      else hint.hide();
    });
    image.addEventListener("mouseleave", hint.hide);
    image.addEventListener("click", (event) => {
      const cell = cellAt(event);
      if (cell && cell.length > 5) showHead(cell[5], cell[6]);
    });
  }

  function showHead(layer, number) {
    for (let head = 0; head < heads.count; ++head) {
      if (heads.layer[head] !== layer || heads.head[head] !== number) continue;
      if (!headTable.chooseHead(head)) {
        at("filters").reset();
        setTimeout(() => headTable.chooseHead(head));
      }
      at("head-view").scrollIntoView({ block: "center" });
      return;
    }
  }

  function fillFigures() {
    for (const figure of report.figures) {
      const box = element("figure", undefined, figure.width > 4 ? "large" : "");
      box.id = `figure-${figure.name}`;
      const image = element("img");
      image.alt = figure.title;
      image.style.aspectRatio = `${figure.width} / ${figure.height}`;
      image.figure = figure;
      nearby.observe(image);
      addTooltips(image, figure.hover);
      const caption = element("figcaption");
      caption.append(element("b", figure.title), figure.caption);
      box.append(image, caption);
      if (figure.table) {
        const details = element("details");
        details.append(element("summary", `The numbers (${figure.name}.csv)`));
        details.addEventListener("toggle", () => {
          if (details.querySelector("table")) return;
          const wide = element("div", undefined, "wide");
          wide.append(tableOf(figure.table));
          details.append(wide);
        });
        box.append(details);
      } else {
        box.append(element("p", `The numbers are in ${figure.name}.csv beside this page.`, "note"));
      }
      at("figure-list").append(box);
    }
    if (report.left_out.length > 0)
      at("left-out").textContent = `Not drawn: ${report.left_out.map(([name, why]) => `${name} (${why})`).join("; ")}.`;
    if (report.of_several.length > 0)
      at("left-out").textContent += ` Figures that compare runs need several: ${report.of_several.join(", ")}.`;
  }

  function options(select, any, names) {
    [any, ...names].forEach((name, i) => {
      const option = element("option", name);
      option.value = String(i - 1);
      select.append(option);
    });
  }

  function startHeads() {
    options(at("filter-run"), "all runs", report.runs.map(labelOf));
    at("filter-run").closest("label").hidden = report.runs.length === 1;
    at("filter-rope").closest("label").hidden = new Set(heads.rope).size < 2;
    at("filter-attention").closest("label").hidden = new Set(heads.attention).size < 2;
    at("filter-class-axis").closest("label").hidden = !heads.axisKind;
    for (const id of ["filter-class", "filter-class-axis"]) options(at(id), "all classes", report.heads.classes.map((kind) => kind.title));
    options(at("filter-attention"), "all kinds", report.heads.attentions);
    options(at("filter-rope"), "all layers", report.heads.ropes.map((rope) => kRopes[rope]));
    const filter = () => ({
      run: Number(at("filter-run").value),
      kind: Number(at("filter-class").value),
      axisKind: Number(at("filter-class-axis").value),
      rope: Number(at("filter-rope").value),
      attention: Number(at("filter-attention").value),
      layerLow: at("filter-layer-low").valueAsNumber,
      layerHigh: at("filter-layer-high").valueAsNumber,
      apLow: at("filter-ap-low").valueAsNumber,
      apHigh: at("filter-ap-high").valueAsNumber,
    });
    const changed = () => {
      headTable.toTop();
      headTable.refresh(filter());
    };
    at("filters").addEventListener("input", changed);
    at("filters").addEventListener("submit", (event) => event.preventDefault());
    at("filters").addEventListener("reset", () => setTimeout(changed));
    headTable.start(filter, headView.show);
  }

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

  function fillProvenance() {
    for (const run of report.runs) {
      const box = element("details");
      box.open = report.runs.length === 1 || Boolean(run.error);
      const what = ["summary.capture.dtype", "summary.capture.device", "timings.finished"].map((path) => known(run, path)).filter((said) => said !== "not said");
      box.append(element("summary", [labelOf(run), ...what].join(" · ")), factsOf(run));
      if (run.error) box.append(element("p", run.error, "failed"));
      const details = element("details");
      details.append(element("summary", "Everything known of this run"));
      const rest = tree(Object.fromEntries(Object.entries(run).filter(([name]) => name !== "title")));
      rest.className = "tree";
      details.append(rest);
      box.append(details);
      at("provenance-list").append(box);
    }
  }

  // Shows the warnings of the analyses, for example about too little data.
  function fillWarnings() {
    for (const run of report.runs)
      for (const warning of (run.summary && run.summary.warnings) || [])
        at("warnings").append(element("p", report.runs.length > 1 ? `${labelOf(run)}: ${warning}` : warning, "warning"));
  }

  fillTitle();
  fillWarnings();
  fillRuns();
  fillFigures();
  startHeads();
  fillProvenance();
})();
