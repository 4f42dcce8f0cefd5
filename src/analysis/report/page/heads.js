"use strict";

// The table of heads. Only visible rows are in the document (virtual scrolling).
const headTable = (() => {
  const kRowHeight = 26;
  const kMargin = 10;  // rows rendered above and below the visible ones

  const measure = (name) => ({ title: titleOf(name), hint: name, width: 68, value: (head) => measureOf(name, head) });
  // `only: false` hides a column that has the same value for every head.
  const columns = [
    { title: "run", width: 106, text: true, value: (head) => heads.run[head], show: (head) => labelOf(report.runs[heads.run[head]]), only: new Set(heads.run).size > 1 },
    { title: "layer", width: 50, value: (head) => heads.layer[head] },
    { title: "head", width: 50, value: (head) => heads.head[head] },
    { title: "position", width: 64, text: true, value: (head) => heads.rope[head], show: ropeOf, only: new Set(heads.rope).size > 1 },
    { title: "attention", width: 86, text: true, value: (head) => heads.attention[head], show: attentionOf, only: new Set(heads.attention).size > 1 },
    { title: "class", dot: classOf, width: 138, text: true, value: (head) => heads.kind[head], show: (head) => classOf(head).title },
    { title: "class, axis", dot: axisClassOf, width: 138, text: true, value: (head) => heads.axisKind[head], show: (head) => axisClassOf(head).title, only: Boolean(heads.axisKind) },
    ...["r_q", "r_k", "explained_variance", "ap_profile_overall", "ap_last20", "ap_drop", "ap_free_overall", "bias_strength",
      "separation_strength", "plane_var_fraction", "sink_0", "previous_token_head", "induction_head", "entropy", "distance_mean"].map(measure),
  ].filter((column) => column.only !== false && (!column.hint || heads.measures.has(column.hint)));

  const scroll = document.getElementById("head-scroll");
  const header = document.getElementById("head-header");
  const body = document.getElementById("head-body");
  const count = document.getElementById("head-count");
  const grid = columns.map((column) => `${column.width}px`).join(" ");

  let order = [];  // heads that pass the filter, sorted
  let sorted = { column: 0, down: false };
  let chosen = -1;
  let onChoose = () => {};

  function passes(head, filter) {
    const ap = measureOf("ap_profile_overall", head);
    return (filter.run < 0 || heads.run[head] === filter.run) &&
      !(heads.layer[head] < filter.layerLow) && !(heads.layer[head] > filter.layerHigh) &&
      (filter.kind < 0 || heads.kind[head] === filter.kind) &&
      (filter.axisKind < 0 || heads.axisKind[head] === filter.axisKind) &&
      (filter.rope < 0 || heads.rope[head] === filter.rope) &&
      (filter.attention < 0 || heads.attention[head] === filter.attention) &&
      (Number.isNaN(filter.apLow) || ap >= filter.apLow) && (Number.isNaN(filter.apHigh) || ap <= filter.apHigh);
  }

  // Heads without a value come last in both directions; ties are ordered by run, layer and head.
  function compare(x, y) {
    const value = columns[sorted.column].value;
    const a = value(x), b = value(y);
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b) || x - y;
    return (sorted.down ? b - a : a - b) || x - y;
  }

  function makeRow(place) {
    const head = order[place];
    const row = element("div", undefined, head === chosen ? "head-row chosen" : "head-row");
    row.style.top = `${place * kRowHeight}px`;
    row.style.gridTemplateColumns = grid;
    row.dataset.head = head;
    for (const column of columns) {
      const cell = element("span", undefined, column.text ? "text" : "");
      if (column.dot && column.dot(head).title) {
        const dot = element("i", undefined, "dot");
        dot.style.background = column.dot(head).colour;
        cell.append(dot);
      }
      cell.append(column.show ? column.show(head) : shown(column.value(head)));
      row.append(cell);
    }
    return row;
  }

  function draw() {
    const first = Math.max(0, Math.floor(scroll.scrollTop / kRowHeight) - kMargin);
    const last = Math.min(order.length, Math.ceil((scroll.scrollTop + scroll.clientHeight) / kRowHeight) + kMargin);
    const rows = [];
    for (let place = first; place < last; ++place) rows.push(makeRow(place));
    body.replaceChildren(...rows);
  }

  function refresh(filter) {
    order = [];
    for (let head = 0; head < heads.count; ++head) if (passes(head, filter)) order.push(head);
    order.sort(compare);
    body.style.height = `${order.length * kRowHeight}px`;
    body.style.minWidth = `${columns.reduce((sum, column) => sum + column.width, 0)}px`;
    count.textContent = `${order.length.toLocaleString("en")} of ${heads.count.toLocaleString("en")} heads`;
    draw();
  }

  function choose(head) {
    chosen = head;
    draw();
    onChoose(head);
  }

  function walk(step) {
    if (order.length > 0) choosePlace(Math.min(order.length - 1, Math.max(0, order.indexOf(chosen) + step)));
  }

  // Selects a head. Returns false if the filter hides it.
  function chooseHead(head) {
    const place = order.indexOf(head);
    if (place >= 0) choosePlace(place);
    return place >= 0;
  }

  function choosePlace(place) {
    const top = place * kRowHeight;
    const visible = scroll.clientHeight - 2 * kRowHeight;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    if (top > scroll.scrollTop + visible) scroll.scrollTop = top - visible;
    choose(order[place]);
  }

  function drawHeader(sortBy) {
    header.style.gridTemplateColumns = grid;
    header.replaceChildren(...columns.map((column, i) => {
      const mark = sorted.column === i ? (sorted.down ? " ▼" : " ▲") : "";
      const button = element("button", column.title + mark, column.text ? "text" : "");
      button.type = "button";
      if (column.hint) button.title = column.hint;
      button.setAttribute("aria-pressed", sorted.column === i);
      button.addEventListener("click", () => sortBy(i));
      return button;
    }));
  }

  function start(currentFilter, chosenHandler) {
    onChoose = chosenHandler;
    const sortBy = (column) => {
      sorted = { column, down: sorted.column === column ? !sorted.down : !columns[column].text && column > 2 };
      drawHeader(sortBy);
      scroll.scrollTop = 0;
      refresh(currentFilter());
    };
    drawHeader(sortBy);
    scroll.addEventListener("scroll", draw);
    body.addEventListener("click", (event) => {
      const row = event.target.closest(".head-row");
      if (row) choose(Number(row.dataset.head));
    });
    scroll.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      walk(step);
    });
    refresh(currentFilter());
  }

  return { start, refresh, chooseHead, toTop: () => { scroll.scrollTop = 0; } };
})();
