"use strict";

// The table of heads. Only visible rows are in the document (virtual scrolling).
const headTable = (() => {
  const kRowHeight = 26;
  const kMargin = 10;  // rows rendered above and below the visible ones

  const at = (id) => document.getElementById(id);
  const scroll = at("head-scroll"), header = at("head-header"), body = at("head-body");

  let columns = [];
  let order = [];  // heads that pass the filters, sorted
  let sorted = { name: "", down: false };
  let chosen = -1;
  let onChoose = () => {};

  // Heads without a value come last in both directions; ties are ordered by run, layer and head.
  function sortOrder() {
    const value = (columns.find((column) => column.name === sorted.name) || columns[0]).value;
    order.sort((x, y) => {
      const a = value(x), b = value(y);
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b) || x - y;
      return (sorted.down ? b - a : a - b) || x - y;
    });
  }

  // Makes the columns that identify a head sticky during horizontal scrolling.
  function place(cell, column) {
    if (!column.fixed) return;
    cell.classList.add("fixed");
    cell.style.left = `${column.left}px`;
  }

  function makeRow(index) {
    const head = order[index];
    const row = element("div", undefined, head === chosen ? "head-row chosen" : "head-row");
    row.setAttribute("role", "row");
    row.setAttribute("aria-rowindex", index + 2);
    row.style.top = `${index * kRowHeight}px`;
    row.dataset.head = head;
    for (const column of columns) {
      const cell = element("span", undefined, column.text ? "text" : column.difference ? "difference" : "");
      cell.setAttribute("role", "cell");
      place(cell, column);
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
    for (let index = first; index < last; ++index) rows.push(makeRow(index));
    if (order.length === 0) rows.push(element("p", "No head passes the filters.", "note"));
    body.replaceChildren(...rows);
  }

  function refresh() {
    order = filters.passing(columns);
    sortOrder();
    body.style.height = `${Math.max(2, order.length) * kRowHeight}px`;
    scroll.setAttribute("aria-rowcount", order.length + 1);
    at("head-count").textContent = `${order.length.toLocaleString("en")} of ${heads.count.toLocaleString("en")} heads`;
    draw();
  }

  function choose(head) {
    chosen = head;
    draw();
    onChoose(head);
  }

  function chooseIndex(index) {
    const top = index * kRowHeight;
    const visible = scroll.clientHeight - header.offsetHeight - kRowHeight;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    if (top > scroll.scrollTop + visible) scroll.scrollTop = top - visible;
    choose(order[index]);
  }

  // Selects a head. Returns false if the filters hide it.
  function chooseHead(head) {
    const index = order.indexOf(head);
    if (index >= 0) chooseIndex(index);
    return index >= 0;
  }

  function walk(event) {
    if (event.target !== scroll || order.length === 0) return;
    const page = Math.floor((scroll.clientHeight - header.offsetHeight) / kRowHeight);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -order.length, End: order.length }[event.key];
    if (event.key === "Enter" && chosen >= 0) at("head-view").focus();
    if (!step) return;
    event.preventDefault();
    chooseIndex(Math.min(order.length - 1, Math.max(0, order.indexOf(chosen) + step)));
  }

  function sortBy(column) {
    const number = !column.text && !column.fixed;
    sorted = { name: column.name, down: sorted.name === column.name ? !sorted.down : number };
    scroll.scrollTop = 0;
    markSorted();
    refresh();
  }

  function markSorted() {
    columns.forEach((column, i) => {
      const title = header.children[i].firstChild;
      const mine = sorted.name === column.name;
      title.textContent = column.title + (mine ? (sorted.down ? " ▼" : " ▲") : "");
      header.children[i].setAttribute("aria-sort", mine ? (sorted.down ? "descending" : "ascending") : "none");
    });
  }

  // Shows these columns, and their filters.
  function setColumns(list) {
    columns = list;
    let width = 0;
    for (const column of columns) {
      column.left = width;
      width += column.width;
    }
    if (!columns.some((column) => column.name === sorted.name)) sorted = { name: columns[0].name, down: false };
    scroll.style.setProperty("--grid", columns.map((column) => `${column.width}px`).join(" "));
    scroll.style.setProperty("--width", `${width}px`);
    header.replaceChildren(...columns.map((column) => {
      const cell = element("div");
      cell.setAttribute("role", "columnheader");
      place(cell, column);
      const button = element("button", column.title, column.text ? "text" : "");
      button.type = "button";
      explain(button, column.meaning);
      button.addEventListener("click", () => sortBy(column));
      cell.append(button, filters.cellOf(column));
      return cell;
    }));
    markSorted();
    refresh();
  }

  function start(chosenHandler) {
    onChoose = chosenHandler;
    filters.onChange(() => {
      scroll.scrollTop = 0;
      refresh();
    });
    scroll.addEventListener("scroll", draw);
    body.addEventListener("click", (event) => {
      const row = event.target.closest(".head-row");
      if (row) choose(Number(row.dataset.head));
    });
    scroll.addEventListener("keydown", walk);
  }

  return { start, setColumns, chooseHead, csv: () => csvOf(columns, order), columns: () => columns };
})();
