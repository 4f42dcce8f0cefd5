"use strict";

// Fills the page: runs, figures, filters of the heads, provenance.
(() => {
  const at = (id) => document.getElementById(id);

  function fillTitle() {
    document.title = `${report.title} – qkscope`;
    at("title").textContent = report.title;
    const runs = report.runs.length === 1 ? "1 run" : `${report.runs.length} runs`;
    at("subtitle").textContent = `${runs}, ${heads.count.toLocaleString("en")} heads; made by qkscope ${report.version}`;
  }

  function meanOf(name, members) {
    let sum = 0, count = 0;
    for (const head of members) {
      const value = measureOf(name, head);
      if (Number.isNaN(value)) continue;
      sum += value;
      ++count;
    }
    return count > 0 ? sum / count : NaN;
  }

  function fillRuns() {
    const members = report.runs.map(() => []);
    for (let head = 0; head < heads.count; ++head) members[heads.run[head]].push(head);
    const measures = ["r_q", "r_k", "explained_variance", "r_k_a", "alpha_k", "bias_strength", "separation_strength", "ap_overall", "ap_first20", "ap_last20", "ap_drop"].filter((name) => heads.measures.has(name));
    const header = element("tr");
    const kinds = report.heads.classes;
    for (const title of ["run", "phase", "state"]) header.append(element("th", title, "text"));
    header.append(element("th", "heads"));
    for (const name of measures) header.append(element("th", titleOf(name)));
    for (const kind of kinds) header.append(element("th", kind.title));
    const rows = report.runs.map((run, i) => {
      const row = element("tr");
      row.append(element("td", run.label, "text"), element("td", run.phase || "", "text"));
      row.append(element("td", run.state || "done", run.state === "failed" ? "text failed" : "text"));
      row.append(element("td", String(members[i].length)));
      for (const name of measures) row.append(element("td", shown(meanOf(name, members[i]))));
      const classed = members[i].filter((head) => heads.kind[head] !== 255);
      kinds.forEach((kind, code) => {
        const share = classed.filter((head) => heads.kind[head] === code).length / classed.length;
        row.append(element("td", classed.length > 0 ? `${(100 * share).toFixed(1)} %` : ""));
      });
      return row;
    });
    at("run-table").replaceChildren(header, ...rows);
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

  // Pictures are decoded when they come near the window: the page opens at once.
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

  function fillFigures() {
    for (const figure of report.figures) {
      const box = element("figure", undefined, figure.width > 4 ? "large" : "");
      box.id = `figure-${figure.name}`;
      const image = element("img");
      image.alt = figure.title;
      image.style.aspectRatio = `${figure.width} / ${figure.height}`;
      image.figure = figure;
      nearby.observe(image);
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
  }

  function options(select, any, names) {
    [any, ...names].forEach((name, i) => {
      const option = element("option", name);
      option.value = String(i - 1);
      select.append(option);
    });
  }

  function startHeads() {
    options(at("filter-run"), "all runs", report.runs.map((run) => run.label));
    options(at("filter-class"), "all classes", report.heads.classes.map((kind) => kind.title));
    options(at("filter-rope"), "all layers", report.heads.ropes.map((rope) => kRopes[rope]));
    const filter = () => ({
      run: Number(at("filter-run").value),
      kind: Number(at("filter-class").value),
      rope: Number(at("filter-rope").value),
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

  // Nested names and values.
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

  function fillProvenance() {
    for (const run of report.runs) {
      const details = element("details");
      details.open = report.runs.length === 1;
      details.append(element("summary", run.label));
      const summary = run.summary || {};
      const known = Object.assign({}, run, { summary: undefined, label: undefined });
      for (const part of ["capture", "versions", "data_root", "options", "counts"]) known[part === "capture" ? "captured" : part] = summary[part];
      const named = Object.fromEntries(Object.entries(known).filter(([, value]) => value !== undefined));
      const box = tree(named);
      box.className = "tree";
      details.append(box);
      at("provenance-list").append(details);
    }
  }

  fillTitle();
  fillRuns();
  fillFigures();
  startHeads();
  fillProvenance();
})();
