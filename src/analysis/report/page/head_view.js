"use strict";

// Details of one head: points on three planes, plasticity profile, all measures.
const headView = (() => {
  const view = document.getElementById("head-view");
  const shades = report.shades;  // colours of the first and last position, as "#BFD7EA"

  function shade(point) {
    const [from, to] = point.key ? shades.key : shades.query;
    const part = (i) => {
      const [first, last] = [from, to].map((colour) => parseInt(colour.slice(1 + 2 * i, 3 + 2 * i), 16));
      return Math.round(first + point.shade * (last - first));
    };
    return `rgb(${[0, 1, 2].map(part).join()})`;
  }

  function rangeOf(values) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    const margin = 0.05 * (high - low) || 1;
    return [low - margin, high + margin];
  }

  // Returns about `wanted` round numbers within a range.
  function ticks([low, high], wanted) {
    const rough = (high - low) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const list = [];
    for (let i = Math.ceil(low / step); i * step <= high; ++i) list.push(Number((i * step).toPrecision(12)));
    return list;
  }

  // Draws axes with ticks. Returns the context and functions from data to pixel coordinates.
  function frame(canvas, xRange, yRange, labels) {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const box = { left: 38, right: width - 6, top: 6, bottom: height - 32 };
    const x = (value) => box.left + (value - xRange[0]) / (xRange[1] - xRange[0]) * (box.right - box.left);
    const y = (value) => box.bottom - (value - yRange[0]) / (yRange[1] - yRange[0]) * (box.bottom - box.top);
    context.font = "10px system-ui, sans-serif";
    context.strokeStyle = "#999";
    context.fillStyle = "#555";
    context.beginPath();
    context.moveTo(box.left, box.top);
    context.lineTo(box.left, box.bottom);
    context.lineTo(box.right, box.bottom);
    context.stroke();
    context.textAlign = "center";
    for (const tick of ticks(xRange, 4)) context.fillText(String(tick), x(tick), box.bottom + 13);
    context.fillText(labels.x, (box.left + box.right) / 2, height - 5);
    context.textAlign = "right";
    for (const tick of ticks(yRange, 4)) context.fillText(String(tick), box.left - 4, y(tick) + 3);
    context.save();
    context.translate(9, (box.top + box.bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(labels.y, 0, 0);
    context.restore();
    return { context, x, y };
  }

  // Shows a tooltip for the nearest of `places` ({x, y} in pixels, text).
  function explain(canvas, places) {
    canvas.addEventListener("mousemove", (event) => {
      const box = canvas.getBoundingClientRect();
      let best = null, nearest = 12;
      for (const place of places) {
        const distance = Math.hypot(event.clientX - box.left - place.x, event.clientY - box.top - place.y);
        if (distance < nearest) [best, nearest] = [place, distance];
      }
      if (best) hint.show(event, best.text);
      else hint.hide();
    });
    canvas.addEventListener("mouseleave", hint.hide);
  }

  function describe(point) {
    const token = point.token ? `, token ${JSON.stringify(point.token)}` : "";
    return `${point.key ? "key" : "query"} at position ${point.position.toLocaleString("en")}${token}`;
  }

  function drawPoints(canvas, list, xAxis, yAxis, labels) {
    const plane = list.filter((point) => !Number.isNaN(point[xAxis]) && !Number.isNaN(point[yAxis]));
    const { context, x, y } = frame(canvas, rangeOf(plane.map((point) => point[xAxis])), rangeOf(plane.map((point) => point[yAxis])), labels);
    for (const point of plane) {
      context.fillStyle = shade(point);
      context.beginPath();
      if (point.key) context.rect(x(point[xAxis]) - 2, y(point[yAxis]) - 2, 4, 4);
      else context.arc(x(point[xAxis]), y(point[yAxis]), 2.3, 0, 2 * Math.PI);
      context.fill();
    }
    explain(canvas, plane.map((point) => ({ x: x(point[xAxis]), y: y(point[yAxis]), text: describe(point) })));
  }

  function drawBand(context, x, y, list) {
    const known = list.filter((point) => !Number.isNaN(point.error));
    if (known.length < 2) return;
    context.globalAlpha = 0.18;
    context.beginPath();
    known.forEach((point, i) => (i === 0 ? context.moveTo(x(point.x), y(point.y + 1.96 * point.error)) : context.lineTo(x(point.x), y(point.y + 1.96 * point.error))));
    known.reverse().forEach((point) => context.lineTo(x(point.x), y(point.y - 1.96 * point.error)));
    context.fill();
    context.globalAlpha = 1;
  }

  // The profile of ap_free as a dashed line.
  function drawModelFree(context, x, y, list) {
    const known = list.filter((point) => !Number.isNaN(point.free));
    if (known.length < 2) return;
    context.save();
    context.strokeStyle = shades.query[1];
    context.setLineDash([5, 3]);
    context.beginPath();
    known.forEach((point, i) => (i === 0 ? context.moveTo(x(point.x), y(point.free)) : context.lineTo(x(point.x), y(point.free))));
    context.stroke();
    context.restore();
  }

  function drawProfile(canvas, list) {
    const { context, x, y } = frame(canvas, [0, Math.max(...list.map((point) => point.x)) * 1.03 || 1], [0, 1.02], { x: "query position (tokens)", y: "plasticity" });
    context.strokeStyle = context.fillStyle = report.shades.accent;
    drawBand(context, x, y, list);
    context.lineWidth = 1.6;
    context.beginPath();
    list.forEach((point, i) => (i === 0 ? context.moveTo(x(point.x), y(point.y)) : context.lineTo(x(point.x), y(point.y))));
    context.stroke();
    drawModelFree(context, x, y, list);
    for (const point of list) {
      context.beginPath();
      context.arc(x(point.x), y(point.y), list.length > 60 ? 1 : 2, 0, 2 * Math.PI);
      context.fill();
    }
    explain(canvas, list.map((point) => ({
      x: x(point.x), y: y(point.y),
      text: `plasticity ${shown(point.y)}${Number.isNaN(point.free) ? "" : ` (model-free ${shown(point.free)})`}${Number.isNaN(point.error) ? "" : ` ± ${shown(point.error)}`} at position ${Math.round(point.x).toLocaleString("en")}`,
    })));
  }

  // A canvas with a caption, and the function that draws it after layout.
  function plot(caption, draw) {
    const box = element("div", undefined, "plot");
    const canvas = element("canvas");
    canvas.style.height = "240px";
    box.append(element("p", caption), canvas);
    return { box, draw: () => draw(canvas) };
  }

  function numbers(head) {
    const list = element("div", undefined, "numbers");
    for (const [name, values] of heads.measures) {
      if (Number.isNaN(values[head])) continue;
      const row = element("div");
      row.append(element("span", name), element("b", shown(values[head])));
      list.append(row);
    }
    return list;
  }

  function show(head) {
    const run = report.runs[heads.run[head]];
    view.replaceChildren(element("h3", `${labelOf(run)}: layer ${heads.layer[head]}, head ${heads.head[head]}`));
    const axisClass = axisClassOf(head).title;
    const words = [ropeOf(head), attentionOf(head), classOf(head).title, axisClass && `${axisClass} along the drift axis`].filter(Boolean).join(", ");
    const list = pointsOf(head);
    const legend = list ? "Blue circles: queries, red squares: keys; darker is later in the text." : "No points were kept of this head (qkscope analyze --scatter).";
    view.append(element("p", [words, legend].filter(Boolean).join(". "), "note"));
    const plots = [];
    const [first, second] = kComponents;
    if (list && list.some((point) => !Number.isNaN(point[first]) && !Number.isNaN(point[second])))
      plots.push(plot(`Principal components ${first.slice(2)} and ${second.slice(2)}`, (canvas) => drawPoints(canvas, list, first, second, { x: first.toUpperCase(), y: second.toUpperCase() })));
    if (list && list.some((point) => !Number.isNaN(point.b))) {
      plots.push(plot("Drift a and separation b", (canvas) => drawPoints(canvas, list, "a", "b", { x: "a", y: "b" })));
      plots.push(plot("First plane of the complement", (canvas) => drawPoints(canvas, list, "c0", "c1", { x: "c0", y: "c1" })));
    }
    const profile = profileOf(head);
    if (profile) plots.push(plot(`Plasticity by query position; band: ±1.96 s.e. over texts${profile.some((point) => !Number.isNaN(point.free)) ? "; dashed: model-free" : ""}`, (canvas) => drawProfile(canvas, profile)));
    const row = element("div", undefined, "plots");
    row.append(...plots.map(({ box }) => box));
    view.append(row, numbers(head));
    for (const { draw } of plots) draw();
  }

  return { show };
})();
