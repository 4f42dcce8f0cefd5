"use strict";

// State of the page and its parts. The state is in the address: #heads=3.1,5.0&query=12&run=0 ...
(() => {
  const at = (id) => document.getElementById(id);
  const kMostHeads = 4;
  let info;
  const state = { run: 0, heads: [[0, 0]], active: 0, query: 0 };
  let rows = [];  // of the selected heads; null while unknown

  function say(text, failed = false) {
    at("status").textContent = text;
    at("status").classList.toggle("failed", failed);
  }
  const failed = (error) => say(error.message || String(error), true);
  const headName = ([layer, head]) => `${layer}.${head}`;
  const fileName = () => `layer${state.heads[state.active][0]}-head${state.heads[state.active][1]}-query${state.query}`;

  // ---- The address ----

  function writeAddress() {
    const { query, key, span } = matrixMap.view();
    const parts = new URLSearchParams({ heads: state.heads.map(headName).join(","), active: state.active, query: state.query });
    if (info.runs.length > 1) parts.set("run", state.run);
    if (span < info.tokens.length) parts.set("zoom", [query, key, span].map(Math.round).join(","));
    parts.set("top", textPanes.topToken());
    parts.set("colour", headMap.column());
    if (at("cell").value === "1") parts.set("sum", 1);
    history.replaceState(null, "", `#${parts.toString().replaceAll("%2C", ",")}`);
  }
  let addressTimer = 0;
  function noteAddress() {
    clearTimeout(addressTimer);
    addressTimer = setTimeout(writeAddress, 200);
  }

  function readAddress() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const whole = (name, least, most, otherwise) => {
      const value = Number(parts.get(name) ?? NaN);
      return Number.isInteger(value) && value >= least && value <= most ? value : otherwise;
    };
    const heads = (parts.get("heads") ?? "").split(",").map((name) => name.split(".").map(Number)).filter(([layer, head]) => info.layers[layer]?.attends && head >= 0 && head < info.heads && source.has([layer, head]));
    state.heads = heads.length > 0 ? heads.slice(0, kMostHeads) : info.start.heads.filter((head) => source.has(head));
    state.active = whole("active", 0, state.heads.length - 1, 0);
    state.query = source.nearestQuery(whole("query", 0, info.tokens.length - 1, info.start.query));
    state.run = whole("run", 0, info.runs.length - 1, 0);
    at("run").value = state.run;
    at("cell").value = parts.get("sum") === "1" ? "1" : "0";
    matrixMap.setSum(at("cell").value === "1");
    const zoom = (parts.get("zoom") ?? "").split(",").map(Number);
    if (zoom.length === 3 && zoom.every(Number.isFinite)) matrixMap.setView({ query: zoom[0], key: zoom[1], span: zoom[2] });
    if (parts.get("colour")) headMap.setColumn(parts.get("colour"));
    at("column").value = headMap.column();
    return whole("top", 0, info.tokens.length - 1, -1);
  }

  // ---- Choices ----

  let asked = 0;
  // Loads the rows of all selected heads and shows them.
  async function load() {
    const mine = ++asked;
    const { run, heads, query } = state;
    rows = heads.map(() => null);
    document.querySelector("main").setAttribute("aria-busy", true);
    showSelection();
    try {
      await Promise.all(heads.map(async (head, i) => {
        const row = await source.row(run, head, query, `row${i}`);
        if (mine !== asked || !row) return;
        rows[i] = row;
        showPane(i);
        if (i === state.active) showRow();
      }));
      if (mine === asked) showRow();
    } catch (error) {
      failed(error);
    }
    if (mine === asked) document.querySelector("main").setAttribute("aria-busy", false);
  }

  function showRow() {
    rowPanel.show(state.heads, rows, state.active);
    const row = rows[state.active];
    if (!row) return;
    const key = topKeys(row, 1)[0];
    const quote = (token) => `“${textPanes.context(token, 0)[1]}”`;
    say(`Query ${row.query} ${quote(row.query)} attends most to key ${key} ${quote(key)}: ${shown(row.pattern[key - row.first])}. ${source.note()}`);
  }

  function showPane(i) {
    const [layer, head] = state.heads[i];
    const sampled = info.captured.find((entry) => entry.layer === layer && entry.head === head)?.positions;
    const note = sampled?.length > 0 ? `, ${sampled.length} captured positions` : "";
    textPanes.show(i, rows[i], `head ${headName(state.heads[i])}: query ${state.query}${note}`, sampled);
  }

  function showSelection() {
    textPanes.setCount(state.heads.length);
    textPanes.setQuery(state.query);
    state.heads.forEach((_, i) => showPane(i));
    headMap.select(state.heads);
    matrixMap.show(state.run, state.heads[state.active], state.query);
    at("query").value = state.query;
    at("run-name").textContent = info.runs[state.run];
    showChips();
    noteAddress();
  }

  function showChips() {
    at("chips").replaceChildren(...state.heads.map((head, i) => {
      const chip = element("span", undefined, i === state.active ? "chip active" : "chip");
      chip.style.borderColor = colours.heads[i];
      const name = element("button", `head ${headName(head)}`);
      name.setAttribute("aria-pressed", i === state.active);
      name.addEventListener("click", () => { state.active = i; showSelection(); showRow(); });
      chip.append(name);
      if (state.heads.length > 1) {
        const remove = element("button", "×");
        remove.setAttribute("aria-label", `Remove head ${headName(head)}`);
        remove.addEventListener("click", () => {
          state.heads = state.heads.filter((_, other) => other !== i);
          state.active = Math.min(state.active, state.heads.length - 1);
          load();
        });
        chip.append(remove);
      }
      for (const button of chip.children) button.type = "button";
      return chip;
    }));
  }

  function chooseQuery(token, reveal = false) {
    if (!Number.isInteger(token) || token < 0 || token >= info.tokens.length) return say(`The text has tokens 0 to ${info.tokens.length - 1}.`, true);
    state.query = source.nearestQuery(token);
    load();
    if (reveal || state.query !== token) textPanes.reveal(state.query);
  }

  function chooseHead(head, add) {
    if (!source.has(head)) return say(`Head ${headName(head)} is not in this file.`, true);
    const place = state.heads.findIndex((other) => headName(other) === headName(head));
    if (place >= 0) state.active = place;
    else if (add && state.heads.length < kMostHeads) {
      state.heads = [...state.heads, head];
      state.active = state.heads.length - 1;
    } else if (add) return say(`At most ${kMostHeads} heads are shown side by side.`, true);
    else [state.heads, state.active] = [[head], 0];
    load();
  }

  function chooseRun(run) {
    if (run < 0 || run >= info.runs.length || run === state.run) return;
    state.run = run;
    at("run").value = run;
    load();
    headMap.loadStatistics(run).catch(failed);
  }

  function search(direction) {
    const token = textSearch.go(direction, textPanes.topToken());
    at("matches").textContent = textSearch.state();
    if (token >= 0) textPanes.setCursor(token);
  }

  // ---- Files ----

  function saveRow(kind) {
    const row = rows[state.active];
    if (!row) return;
    const key = (i) => row.first + i;
    if (kind === "json")
      return downloadFile(`${fileName()}.json`, new Blob([JSON.stringify({
        run: info.runs[state.run], layer: state.heads[state.active][0], head: state.heads[state.active][1], query: row.query, entropy: row.entropy, log_sum_exp: row.logSumExp,
        keys: Array.from(row.pattern, (attention, i) => ({ key: key(i), token: info.tokens[key(i)], score: row.scores[i], attention })),
      })], { type: "application/json" }));
    const columns = [{ name: "key", value: key }, { name: "token", show: (i) => info.tokens[key(i)] }, { name: "score", value: (i) => row.scores[i] }, { name: "attention", value: (i) => row.pattern[i] }];
    downloadCsv(`${fileName()}.csv`, csvOf(columns, row.pattern.keys()));
  }

  // ---- Start ----

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    const action = {
      "/": () => at("search").focus(), n: () => search(1), N: () => search(-1),
      "[": () => chooseQuery(Math.max(0, state.query - 1), true), "]": () => chooseQuery(Math.min(info.tokens.length - 1, state.query + 1), true),
      "{": () => chooseRun(state.run - 1), "}": () => chooseRun(state.run + 1),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  function connect() {
    at("query").addEventListener("change", () => chooseQuery(Number(at("query").value), true));
    at("search").addEventListener("input", () => {
      textPanes.setFound(textSearch.find(at("search").value));
      at("matches").textContent = at("search").value ? textSearch.state().replace(/^0 of/, "0 of") : "";
    });
    at("search").addEventListener("keydown", (event) => { if (event.key === "Enter") search(event.shiftKey ? -1 : 1); });
    at("next").addEventListener("click", () => search(1));
    at("previous").addEventListener("click", () => search(-1));
    at("run").addEventListener("input", () => chooseRun(Number(at("run").value)));
    at("column").addEventListener("input", () => { headMap.setColumn(at("column").value); noteAddress(); });
    at("cell").addEventListener("input", () => { matrixMap.setSum(at("cell").value === "1"); noteAddress(); });
    at("zoom-in").addEventListener("click", () => matrixMap.zoom(0.5));
    at("zoom-out").addEventListener("click", () => matrixMap.zoom(2));
    at("zoom-query").addEventListener("click", matrixMap.centre);
    at("zoom-all").addEventListener("click", matrixMap.whole);
    for (const kind of ["csv", "json"]) {
      at(`save-row-${kind}`).addEventListener("click", () => saveRow(kind));
      at(`save-row-${kind}`).setAttribute("aria-label", `Save the row as ${kind.toUpperCase()}`);
    }
    saving.connect("text", fileName, () => textPanes.picture(state.active));
    saving.connect("matrix", fileName, matrixMap.picture);
    saving.connect("distance", fileName, () => at("distance-plot").querySelector("svg"));
    saving.connect("frequency", fileName, () => at("frequency-plot").querySelector("svg"));
    document.addEventListener("keydown", pressed);
    colours.onChange(() => { headMap.draw(); matrixMap.forget(); textPanes.redraw(); showRow(); });
  }

  async function begin() {
    info = await source.info();
    const { layers, heads, tokens, runs, title, version } = info;
    at("title").textContent = runs.length > 1 ? `${runs.length} checkpoints of ${runs[0]}` : runs[0];
    document.title = `${at("title").textContent} – qkscope view`;
    at("subtitle").textContent = `${title ? `${title}: ` : ""}${tokens.length.toLocaleString("en")} tokens, ${layers.length} layers of ${heads} heads; qkscope ${version}`;
    at("query").max = tokens.length - 1;
    at("run-label").hidden = runs.length < 2;
    at("run").max = runs.length - 1;
    textPanes.start(at("panes"), tokens, { choose: (token) => chooseQuery(token), announce: say });
    textSearch.start(tokens);
    headMap.start(at("head-map"), info, at("column"), { choose: chooseHead, announce: say });
    matrixMap.start(at("matrix-map"), info, { choose: (query) => chooseQuery(query, true), moved: noteAddress, announce: say, failed });
    rowPanel.start(info, { chooseKey: (token) => { textPanes.setCursor(token); textPanes.reveal(token); }, failed });
    connect();
    const top = readAddress();
    load();
    if (top >= 0) textPanes.scrollTo(top);
    else textPanes.reveal(state.query);
    headMap.loadStatistics(state.run).catch(failed);
    window.addEventListener("hashchange", () => { readAddress(); load(); textPanes.reveal(state.query); });
  }
  begin().catch(failed);
})();
