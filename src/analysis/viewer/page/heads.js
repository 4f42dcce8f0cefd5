"use strict";

// The map of heads: a row for each layer, a column for each head, coloured by a column of numbers.
const headMap = (() => {
  let canvas, info, actions = {};  // choose(head, add), announce(text)
  let selected = [], walked = null, column = null, captured = new Set();
  const columns = new Map();  // name: {title, meaning, values: Float32Array | null, classes}
  let run = 0;

  const layers = () => info.layers.length;
  const cellOf = ([layer, head]) => layer * info.heads + head;

  function start(at, data, select, handlers) {
    [canvas, info, actions] = [at, data, handlers];
    info.statistics.forEach((name, i) => columns.set(name, { title: titleOf(name), meaning: `${meaningOf(name)} Over ${info.statistics_queries} evenly spaced queries of this text.`, statistic: i, values: new Float32Array(layers() * info.heads).fill(NaN) }));
    addResults();
    for (const [name, { title, meaning, statistic }] of columns) {
      const option = new Option(statistic === undefined ? `results: ${title}` : title, name);
      option.title = meaning;
      select.append(option);
    }
    column = columns.keys().next().value;
    captured = new Set(info.captured.map(({ layer, head }) => cellOf([layer, head])));
    canvas.addEventListener("mousemove", (event) => {
      const head = headAt(event);
      if (head) hint.show(event.clientX, event.clientY, describe(head));
      else hint.hide();
    });
    canvas.addEventListener("mouseleave", hint.hide);
    canvas.addEventListener("click", (event) => {
      const head = headAt(event);
      if (head) actions.choose(head, event.shiftKey);
    });
    canvas.addEventListener("keydown", walk);
    canvas.addEventListener("blur", () => { walked = null; draw(); hint.hide(); });
    new ResizeObserver(draw).observe(canvas);
  }

  // Columns of a results folder, packed as in the report.
  function addResults() {
    const packed = info.columns;
    if (!packed) return;
    const [runs, layer, head] = ["run", "layer", "head"].map((name) => unpack(packed[name], Uint16Array));
    const spread = (values) => {
      const all = new Float32Array(layers() * info.heads).fill(NaN);
      values.forEach((value, i) => { if (runs[i] === 0 && layer[i] < layers() && head[i] < info.heads) all[cellOf([layer[i], head[i]])] = value; });
      return all;
    };
    if (packed.class.names.length > 0) {
      const places = packed.class.names.map((name) => packed.classes.findIndex((kind) => kind.name === name));
      const codes = Float32Array.from(unpack(packed.class.codes, Uint8Array), (code) => places[code] ?? NaN);
      columns.set("results.class", { title: "class", meaning: "Class of the head by the correlations of queries and keys with position.", values: spread(codes), classes: packed.classes });
    }
    for (const { name, data } of packed.measures)
      columns.set(`results.${name}`, { title: titleOf(name), meaning: meaningOf(name), values: spread(unpack(data, Float32Array)) });
  }

  // Loads the attention statistics of all heads, layer by layer.
  async function loadStatistics(forRun) {
    run = forRun;
    for (const { statistic, values } of columns.values()) if (statistic !== undefined) values.fill(NaN);
    for (let layer = 0; layer < layers() && run === forRun; ++layer) {
      if (!info.layers[layer].attends) continue;
      const found = await source.statistics(run, layer);
      if (run !== forRun) return;
      for (const { statistic, values } of columns.values())
        if (statistic !== undefined)
          for (let head = 0; head < info.heads; ++head) values[cellOf([layer, head])] = found[head * info.statistics.length + statistic];
      if (layer % 4 === 3 || layer + 1 === layers()) draw();
    }
  }

  const size = () => Math.max(3, Math.min(20, Math.floor((canvas.clientWidth - 26) / info.heads), Math.floor(184 / layers())));

  function headAt(event) {
    const box = canvas.getBoundingClientRect();
    const head = Math.floor((event.clientX - box.left - 26) / size()), layer = Math.floor((event.clientY - box.top) / size());
    return head >= 0 && head < info.heads && layer >= 0 && layer < layers() && info.layers[layer].attends ? [layer, head] : null;
  }

  function describe(head) {
    const { title, meaning, values, classes } = columns.get(column);
    const value = values[cellOf(head)];
    const text = Number.isNaN(value) ? "not known yet" : classes ? classes[value].title : shown(value);
    const { attention, wavelengths } = info.layers[head[0]];
    return `layer ${head[0]}, head ${head[1]}: ${title} ${text}\n${meaning}\n${wavelengths.length > 0 ? "RoPE" : "NoPE"}, ${attention} attention${source.has(head) ? "" : "; not in this file"}${captured.has(cellOf(head)) ? "; in the capture" : ""}`;
  }

  function walk(event) {
    const direction = kDirections[event.key];
    if (event.key === "Enter" && walked) actions.choose(walked, event.shiftKey);
    else if (direction) {
      const from = walked ?? selected[0] ?? [0, 0];
      walked = walked ? [Math.min(layers() - 1, Math.max(0, from[0] + direction[1])), Math.min(info.heads - 1, Math.max(0, from[1] + direction[0]))] : from;
      const box = canvas.getBoundingClientRect();
      hint.show(box.left + 26 + (walked[1] + 0.5) * size(), box.top + (walked[0] + 0.5) * size(), describe(walked));
      actions.announce(describe(walked).replaceAll("\n", "; "));
      draw();
    } else return;
    event.preventDefault();
  }

  function range(values) {
    let low = Infinity, high = -Infinity;
    for (const value of values) if (!Number.isNaN(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
    return [low, high];
  }

  function draw() {
    if (!info || canvas.clientWidth === 0) return;
    const cell = size(), ratio = window.devicePixelRatio || 1;
    const height = layers() * cell + 16;
    canvas.style.height = `${height}px`;
    canvas.width = canvas.clientWidth * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const { values, classes, meaning, title } = columns.get(column);
    const [low, high] = range(values);
    context.font = "10px system-ui, sans-serif";
    context.fillStyle = colours.variable("soft");
    context.textAlign = "right";
    const step = Math.ceil(12 / cell);
    for (let layer = 0; layer < layers(); layer += step) context.fillText(layer, 21, layer * cell + Math.min(cell, 11));
    context.textAlign = "center";
    const across = Math.ceil(20 / cell);
    for (let head = 0; head < info.heads; head += across) context.fillText(head, 26 + (head + 0.5) * cell, height - 4);
    const gap = cell > 6 ? 1 : 0;
    for (let layer = 0; layer < layers(); ++layer)
      for (let head = 0; head < info.heads; ++head) {
        const value = values[cellOf([layer, head])];
        context.fillStyle = Number.isNaN(value) ? colours.variable("faint") : classes ? classes[value].colour : `rgb(${colours.scale(high > low ? (value - low) / (high - low) : 0.5)})`;
        context.fillRect(26 + head * cell, layer * cell, cell - gap, cell - gap);
        if (!captured.has(cellOf([layer, head]))) continue;
        context.fillStyle = colours.variable("back");  // a dot in the middle
        context.fillRect(26 + (head + 0.5) * cell - 2, (layer + 0.5) * cell - 2, 3, 3);
      }
    const outline = ([layer, head], colour) => {
      context.strokeStyle = colours.variable("back");
      context.lineWidth = 4;
      context.strokeRect(26 + head * cell, layer * cell, cell - gap, cell - gap);
      context.strokeStyle = colour;
      context.lineWidth = 2;
      context.strokeRect(26 + head * cell, layer * cell, cell - gap, cell - gap);
    };
    selected.forEach((head, i) => outline(head, colours.heads[i]));
    if (walked) outline(walked, colours.variable("ink"));
    const scale = document.getElementById("head-scale");
    const known = Number.isFinite(low) ? `${shown(low)} (${colours.isDark() ? "dark" : "light"}) to ${shown(high)}` : "computing";
    scale.textContent = classes ? classes.map((kind) => kind.title).join(", ") : `${title}: ${known}`;
    scale.title = meaning;
  }

  return {
    start, draw, loadStatistics,
    select: (heads) => { selected = heads; draw(); },
    setColumn: (name) => { if (columns.has(name)) column = name; draw(); },
    column: () => column,
    valueOf: (name, head) => columns.get(name)?.values[cellOf(head)],
  };
})();
