"use strict";

// Filters of the table of heads: smallest and largest value of a number, one choice of a text.
const filters = (() => {
  const values = new Map();  // column name: {low, high} as typed, or {choice: index}
  let changed = () => {};

  function set(name, part, value) {
    values.set(name, { ...values.get(name), [part]: value });
    changed();
  }

  function bound(column, part, placeholder) {
    const input = element("input");
    Object.assign(input, { type: "number", step: "any", placeholder, value: (values.get(column.name) || {})[part] ?? "" });
    input.setAttribute("aria-label", `${column.title}: ${part === "low" ? "smallest" : "largest"} value`);
    input.addEventListener("input", () => set(column.name, part, input.value));
    return input;
  }

  function choice(column) {
    const select = element("select");
    select.append(new Option("all", ""), ...column.choices.map(({ title }, i) => new Option(title, i)));
    select.value = (values.get(column.name) || {}).choice ?? "";
    select.setAttribute("aria-label", `${column.title}: which`);
    const mark = () => select.classList.toggle("set", select.value !== "");
    mark();
    select.addEventListener("input", () => {
      mark();
      set(column.name, "choice", select.value);
    });
    return select;
  }

  // The filter fields of one column.
  function cellOf(column) {
    const cell = element("div", undefined, "filter");
    cell.dataset.column = column.name;
    if (column.choices) cell.append(choice(column));
    else cell.append(bound(column, "low", "min"), bound(column, "high", "max"));
    return cell;
  }

  function testOf(column) {
    const { choice: chosen, low, high } = values.get(column.name) || {};
    if (column.choices) return chosen ? column.choices[chosen].passes : null;
    if (!low && !high) return null;
    const [least, most] = [low ? Number(low) : -Infinity, high ? Number(high) : Infinity];
    return (head) => {
      const value = Math.fround(column.value(head));
      return value >= Math.fround(least) && value <= Math.fround(most);
    };
  }

  // Returns the heads that pass the filters of all these columns.
  function passing(columns) {
    const tests = columns.map(testOf).filter(Boolean);
    const list = [];
    for (let head = 0; head < heads.count; ++head) if (tests.every((test) => test(head))) list.push(head);
    return list;
  }

  return { cellOf, passing, clear: () => values.clear(), onChange: (handler) => { changed = handler; } };
})();
