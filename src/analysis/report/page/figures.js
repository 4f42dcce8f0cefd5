"use strict";

// Pictures of the figures, with tooltips of their cells. Cells of head maps link to the head, and
// the chosen head is outlined in every map.
const headMaps = (() => {
  const maps = [];  // {name, title, outline(layer, number)}

  // Cells of a picture as places in pixels: [left, top, right, bottom, text, layer, head].
  function placesOf(frame, cells) {
    const { clientWidth: width, clientHeight: height } = frame;
    return cells.map(([left, top, right, bottom, text, layer, number]) => ({
      x: 0.5 * (left + right) * width, y: 0.5 * (top + bottom) * height, text, layer, number,
      left: left * width, right: right * width, top: top * height, bottom: bottom * height,
    }));
  }

  function outlineBox(frame) {
    const box = element("div", undefined, "outline");
    box.hidden = true;
    frame.append(box);
    return (cell) => {
      box.hidden = !cell;
      if (!cell) return;
      const [left, top, right, bottom] = cell.map((part) => 100 * part);
      Object.assign(box.style, { left: `${left}%`, top: `${top}%`, width: `${right - left}%`, height: `${bottom - top}%` });
    };
  }

  // Adds tooltips and links to the cells of a picture in its frame.
  function add(frame, figure, openHead) {
    const cells = figure.hover;
    if (cells.length === 0) return;
    const cellOf = (layer, number) => cells.find((cell) => cell[5] === layer && cell[6] === number);
    const isMap = cells[0].length > 5;
    const outlineChosen = outlineBox(frame), outlineWalked = outlineBox(frame);
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", `${figure.title}. Arrow keys go from cell to cell.${isMap ? " Enter shows the head." : ""}`);
    explainPlaces(frame, () => placesOf(frame, cells), {
      find: (x, y, places) => places.find((place) => x >= place.left && x < place.right && y >= place.top && y < place.bottom),
      opens: (place) => place.layer !== undefined,
      open: (place) => { if (place.layer !== undefined) openHead(place.layer, place.number); },
      mark: (place) => outlineWalked(place && cells[placesOf(frame, cells).findIndex(({ x, y }) => x === place.x && y === place.y)]),
    });
    if (isMap) maps.push({ name: figure.name, title: figure.title.replace(" of every head", ""), cellOf, outline: (layer, number) => outlineChosen(cellOf(layer, number)) });
  }

  return {
    add,
    outline: (layer, number) => maps.forEach((map) => map.outline(layer, number)),
    // Head maps with a cell of this head; a map with two pictures is listed once.
    having: (layer, number) => maps.filter((map, i) => map.cellOf(layer, number) && maps.findIndex(({ name }) => name === map.name) === i),
  };
})();

const figureList = (() => {
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

  function picture(figure, name, openHead) {
    const box = element("div", undefined, "picture");
    if (name) box.append(element("p", name, "which"));
    const frame = element("div", undefined, "frame");
    const image = element("img");
    image.alt = name ? `${name}: ${figure.title}` : figure.title;
    image.style.aspectRatio = `${figure.width} / ${figure.height}`;
    image.figure = figure;
    nearby.observe(image);
    frame.append(image);
    headMaps.add(frame, figure, openHead);
    box.append(frame);
    return box;
  }

  function numbers(figure, name) {
    if (!figure.table) return element("p", `The numbers are in ${figure.name}.csv of qkscope figures.`, "note");
    const details = element("details");
    details.append(element("summary", `The numbers (${figure.name}.csv${name ? `, ${name}` : ""})`));
    details.addEventListener("toggle", () => {
      if (details.querySelector("table")) return;
      const wide = element("div", undefined, "wide");
      wide.tabIndex = 0;
      wide.append(tableOf(figure.table));
      details.append(wide);
    });
    return details;
  }

  // One figure; a comparison shows the pictures of both results.
  function figureBox(pair, openHead) {
    const figure = pair[0] || pair[1];
    const box = element("figure", undefined, report.other ? "pair" : figure.width > 4 ? "large" : "");
    box.id = `figure-${figure.name}`;
    const caption = element("figcaption");
    caption.append(element("b", figure.title), figure.caption);
    const both = element("div", undefined, "pictures");
    box.append(both, caption);
    pair.forEach((one, i) => {
      if (!one) return;
      const name = report.other ? "AB"[i] : "";
      both.append(picture(one, name, openHead));
      box.append(numbers(one, name));
    });
    return box;
  }

  // The figures of one question about the geometry of heads, with its sentence.
  function geometrySection(name, title, sentence) {
    const section = element("div");
    section.id = `geometry-${name}`;
    section.append(element("h3", title), element("p", sentence, "note"), element("div", undefined, "figures"));
    return section;
  }

  function fill(list, note, openHead) {
    const second = report.other ? report.other.figures : [];
    const sections = new Map(report.questions.map(([name, title, sentence]) => [name, geometrySection(name, title, sentence)]));
    for (const [name, question] of new Map([...report.figures, ...second].map(({ name, question }) => [name, question]))) {
      const box = figureBox([report.figures, second].map((figures) => figures.find((figure) => figure.name === name)), openHead);
      if (!sections.has(question)) { list.append(box); continue; }
      sections.get(question).lastChild.append(box);
      document.getElementById("geometry").hidden = false;
    }
    for (const section of sections.values()) if (section.lastChild.childElementCount > 0) document.getElementById("geometry-list").append(section);
    if (report.left_out.length > 0) note.textContent = `Not drawn: ${report.left_out.map(([name, why]) => `${name} (${why})`).join("; ")}.`;
    if (report.of_several.length > 0) note.textContent += ` Figures that compare runs need several: ${report.of_several.join(", ")}.`;
  }

  return { fill };
})();
