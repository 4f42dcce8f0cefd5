"use strict";

// Details of one head: points on three planes, plasticity profile, all measures, links to its cell
// in the head maps. A comparison shows both results.
const headView = (() => {
  const view = document.getElementById("head-view");
  const [kAccent, kSecond] = [report.shades.accent, report.shades.query[1]];

  let current = -1;  // the head in view

  // A canvas with a caption, and the function that draws it after layout.
  function plot(caption, draw) {
    const box = element("div", undefined, "plot");
    const canvas = element("canvas");
    canvas.style.height = "240px";
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${caption}. Arrow keys go from point to point.`);
    box.append(element("p", caption), canvas);
    return { box, draw: () => draw(canvas) };
  }

  function planes(list, name) {
    const made = [];
    const add = (title, x, y) => {
      if (list && list.some((point) => !Number.isNaN(point[x]) && !Number.isNaN(point[y])))
        made.push(plot(name + title, (canvas) => plots.drawPoints(canvas, list, x, y, { x: x.replace("pc", "PC"), y: y.replace("pc", "PC") })));
    };
    const [first, second] = kComponents;
    add(`Principal components ${first.slice(2)} and ${second.slice(2)}`, first, second);
    add("Drift a and separation b", "a", "b");
    if (list && list.some((point) => !Number.isNaN(point.b))) add("First plane of the complement", "c0", "c1");
    return made;
  }

  function profilePlot(head) {
    const own = profileOf(head), second = others && profileOf(matchOf(head), others);
    const profiles = [];
    if (own) profiles.push({ name: others ? "A: " : "", list: own, colour: kAccent, free: others ? kAccent : kSecond });
    if (second) profiles.push({ name: "B: ", list: second, colour: kSecond, free: kSecond });
    if (profiles.length === 0) return [];
    const free = profiles.some(({ list }) => list.some((point) => !Number.isNaN(point.free)));
    const caption = `Plasticity by query position; band: ±1.96 s.e. over texts${free ? "; dashed: model-free" : ""}${others ? "; red: A, blue: B" : ""}`;
    return [plot(caption, (canvas) => plots.drawProfiles(canvas, profiles))];
  }

  function numberRow(name, head) {
    const write = name === "gaussian" ? (value) => ["no", "yes"][value] || "" : shown;
    const values = [measureOf(name, head)];
    if (others) values.push(measureOf(name, matchOf(head), others));
    if (values.every(Number.isNaN)) return null;
    const row = element("div");
    row.append(element("span", name), ...values.map((value) => element("b", write(value))));
    if (others) row.append(element("b", name === "gaussian" ? "" : shown(values[1] - values[0]), "difference"));
    explain(row, meaningOf(name, report.heads.meanings));
    return row;
  }

  function numbers(head) {
    const list = element("div", undefined, others ? "numbers compared" : "numbers");
    if (others) {
      const titles = element("div", undefined, "titles");
      titles.append(...["", "A", "B", "B − A"].map((title) => element("b", title)));
      list.append(titles);
    }
    for (const name of new Set([...heads.measures.keys(), ...(others ? others.measures.keys() : [])])) {
      const row = numberRow(name, head);
      if (row) list.append(row);
    }
    return list;
  }

  // Links to the maps that have a cell of this head.
  function mapLinks(head) {
    const line = element("p", undefined, "links");
    for (const { name, title } of headMaps.having(heads.layer[head], heads.head[head])) {
      const link = element("a", title);
      link.href = `#figure-${name}`;
      line.append(link, " ");
    }
    if (line.childElementCount > 0) line.prepend("Show in the map of ");
    return line;
  }

  // The command that shows the attention of this head over a text.
  function viewerLine(head) {
    const line = element("p", "Look at its attention: ", "links");
    line.append(element("code", `qkscope view --model ${report.runs[heads.run[head]].label} --text-file FILE --heads ${heads.layer[head]}.${heads.head[head]}`));
    return line;
  }

  function describe(head) {
    const axisClass = axisClassOf(head).title;
    const words = [ropeOf(head), attentionOf(head), (others ? "A: " : "") + classOf(head).title, axisClass && `${axisClass} along the drift axis`];
    if (others) words.push(matchOf(head) < 0 ? "not in B" : `B: ${classOf(matchOf(head), others).title}`);
    return words.filter(Boolean).join(", ");
  }

  function show(head) {
    current = head;
    const run = others ? "A and B" : labelOf(report.runs[heads.run[head]]);
    view.replaceChildren(element("h3", `${run}: layer ${heads.layer[head]}, head ${heads.head[head]}`));
    const own = pointsOf(head), second = others && pointsOf(matchOf(head), others);
    const legend = own || second ? "Blue circles: queries, red squares: keys; darker is later in the text." : "No points were kept of this head (qkscope analyze --scatter).";
    view.append(element("p", `${describe(head)}. ${legend}`, "note"), mapLinks(head), viewerLine(head));
    const rows = others ? [planes(own, "A: "), planes(second, "B: "), profilePlot(head)] : [[...planes(own, ""), ...profilePlot(head)]];
    for (const made of rows) {
      const row = element("div", undefined, "plots");
      row.append(...made.map(({ box }) => box));
      view.append(row);
    }
    view.append(numbers(head));
    for (const { draw } of rows.flat()) draw();
  }

  // A canvas has the width of its column, so a new width needs new drawings.
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (width === window.innerWidth) return;
    width = window.innerWidth;
    if (current >= 0) show(current);
  });

  return { show };
})();
