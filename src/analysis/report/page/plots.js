"use strict";

// Plots of one head on canvases: points on a plane, and plasticity profiles.
const plots = (() => {
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

  // Tooltips of the points of a plot: [{x, y, text}] in pixels.
  function explainPoints(canvas, places) {
    const find = (x, y) => {
      let best = null, nearest = 12;
      for (const place of places) {
        const distance = Math.hypot(x - place.x, y - place.y);
        if (distance < nearest) [best, nearest] = [place, distance];
      }
      return best;
    };
    explainPlaces(canvas, () => places, { find });
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
    explainPoints(canvas, plane.map((point) => ({ x: x(point[xAxis]), y: y(point[yAxis]), text: describe(point) })));
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

  // A line through `value(point)` of all points that have one.
  function drawLine(context, x, y, list, value, dash) {
    const known = list.filter((point) => !Number.isNaN(value(point)));
    if (known.length < 2) return;
    context.setLineDash(dash);
    context.beginPath();
    known.forEach((point, i) => (i === 0 ? context.moveTo(x(point.x), y(value(point))) : context.lineTo(x(point.x), y(value(point)))));
    context.stroke();
    context.setLineDash([]);
  }

  // Draws profiles into one frame: [{name, list, colour, free}], colours of ap and of ap_free.
  function drawProfiles(canvas, profiles) {
    const last = Math.max(...profiles.flatMap(({ list }) => list.map((point) => point.x)));
    const { context, x, y } = frame(canvas, [0, last * 1.03 || 1], [0, 1.02], { x: "query position (tokens)", y: "plasticity" });
    context.lineWidth = 1.6;
    const places = [];
    for (const { name, list, colour, free } of profiles) {
      context.strokeStyle = context.fillStyle = colour;
      drawBand(context, x, y, list);
      drawLine(context, x, y, list, (point) => point.y, []);
      for (const point of list) {
        context.beginPath();
        context.arc(x(point.x), y(point.y), list.length > 60 ? 1 : 2, 0, 2 * Math.PI);
        context.fill();
        const modelFree = Number.isNaN(point.free) ? "" : ` (model-free ${shown(point.free)})`;
        const error = Number.isNaN(point.error) ? "" : ` ± ${shown(point.error)}`;
        places.push({ x: x(point.x), y: y(point.y), text: `${name}plasticity ${shown(point.y)}${modelFree}${error} at position ${Math.round(point.x).toLocaleString("en")}` });
      }
      context.strokeStyle = free;
      drawLine(context, x, y, list, (point) => point.free, [5, 3]);
    }
    explainPoints(canvas, places);
  }

  return { drawPoints, drawProfiles };
})();
