"use strict";

// The attention matrix of one head as a zoomable picture: queries from top to bottom, keys from
// left to right. Only visible tiles are requested.
const matrixMap = (() => {
  let canvas, info, actions = {};  // choose(query), moved(), announce(text)
  let run = 0, head = [0, 0], sum = false, query = 0;
  let view = { query: 0, key: 0, span: 1 };  // upper left corner and side in tokens
  const tiles = new Map();  // "run/layer.head/sum/level/row/column": {picture, cells, exact} or a promise
  const kMostTiles = 160;
  let overviewDone = 0, overviewOf = "";
  const tokens = () => info.tokens.length;

  function start(at, data, handlers) {
    [canvas, info, actions] = [at, data, handlers];
    view = whole();
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, placeOf(event));
    }, { passive: false });
    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      dragged = { x: event.clientX, y: event.clientY, view: { ...view }, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (dragged && event.buttons) {
        const scale = view.span / canvas.clientWidth;
        const [x, y] = [event.clientX - dragged.x, event.clientY - dragged.y];
        if (Math.abs(x) + Math.abs(y) > 4) dragged.moved = true;
        if (dragged.moved) setView({ ...view, key: dragged.view.key - x * scale, query: dragged.view.query - y * scale });
      }
      hover(event);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (dragged && !dragged.moved) {
        const [atQuery, atKey] = placeOf(event);
        if (atKey <= atQuery && atQuery < tokens()) actions.choose(Math.floor(atQuery));
      }
      dragged = null;
    });
    canvas.addEventListener("mouseleave", hint.hide);
    canvas.addEventListener("keydown", walk);
    new ResizeObserver(draw).observe(canvas);
  }

  const whole = () => ({ query: 0, key: 0, span: tokens() });
  const least = () => Math.min(tokens(), 16 << source.finestLevel());

  function placeOf(event) {
    const box = canvas.getBoundingClientRect();
    return [view.query + (event.clientY - box.top) / box.height * view.span, view.key + (event.clientX - box.left) / box.width * view.span];
  }

  function setView(wanted) {
    const span = Math.min(tokens(), Math.max(least(), wanted.span));
    const inside = (start) => Math.min(tokens() - span, Math.max(0, start));
    view = { span, query: inside(wanted.query), key: inside(wanted.key) };
    draw();
    actions.moved();
  }

  function zoom(factor, [atQuery, atKey] = [view.query + view.span / 2, view.key + view.span / 2]) {
    const span = Math.min(tokens(), Math.max(least(), view.span * factor));
    const kept = span / view.span;
    setView({ span, query: atQuery - (atQuery - view.query) * kept, key: atKey - (atKey - view.key) * kept });
  }

  function walk(event) {
    const direction = kDirections[event.key];
    if (direction) setView({ ...view, key: view.key + direction[0] * view.span / 8, query: view.query + direction[1] * view.span / 8 });
    else if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-") zoom(2);
    else if (event.key === "Home") setView(whole());
    else if (event.key === "Enter") actions.choose(Math.min(tokens() - 1, Math.floor(view.query + view.span / 2)));
    else return;
    event.preventDefault();
    const at = (start) => `${Math.floor(start)} to ${Math.ceil(start + view.span) - 1}`;
    actions.announce(`queries ${at(view.query)}, keys ${at(view.key)}`);
  }

  function hover(event) {
    const [atQuery, atKey] = placeOf(event).map(Math.floor);
    if (atKey > atQuery || atQuery >= tokens()) return hint.hide();
    const level = levelNow(), width = 1 << level;
    const tile = tiles.get(nameOf(level, Math.floor(atQuery / width / info.tile), Math.floor(atKey / width / info.tile)));
    const value = tile?.cells?.[(Math.floor(atQuery / width) % info.tile) * info.tile + Math.floor(atKey / width) % info.tile];
    const range = (first) => (width === 1 ? first : `${Math.floor(first / width) * width} to ${Math.min(tokens(), Math.floor(first / width) * width + width) - 1}`);
    const text = (token) => textPanes.context(token, 3).join("");
    hint.show(event.clientX, event.clientY, `${width > 1 ? (sum ? "summed" : "largest") : ""} attention ${value === undefined ? "computing" : (source.live && tile.exact ? "" : "about ") + shown(value)}\nquery ${range(atQuery)}: ${text(atQuery)}\nkey ${range(atKey)}: ${text(atKey)}`);
  }

  // The finest level whose cells are at least one pixel.
  function levelNow() {
    const perPixel = view.span / Math.max(1, canvas.clientWidth * (window.devicePixelRatio || 1));
    return Math.max(source.finestLevel(), Math.max(0, Math.ceil(Math.log2(perPixel))));
  }

  const nameOf = (level, row, column) => `${run}/${head.join(".")}/${Number(sum)}/${level}/${row}/${column}`;

  async function load(name, level, row, column) {
    const found = await source.tile(run, head, level, row, column, sum);
    const picture = paint(found.cells);
    tiles.set(name, { ...found, picture });
    while (tiles.size > kMostTiles) tiles.delete(tiles.keys().next().value);
    requestDraw();
  }

  // Logarithmic colours over five decades below 1 (largest), or below the number of queries (sum).
  function paint(cells) {
    const picture = new OffscreenCanvas(info.tile, info.tile);
    const context = picture.getContext("2d");
    const image = context.createImageData(info.tile, info.tile);
    for (let i = 0; i < cells.length; ++i) {
      if (!(cells[i] > 0)) continue;
      const share = Math.min(1, Math.max(0, 1 + Math.log10(cells[i]) / 5));
      const [red, green, blue] = colours.scale(share);
      image.data.set([red, green, blue, 255], 4 * i);
    }
    context.putImageData(image, 0, 0);
    return picture;
  }

  let requested = false;
  function requestDraw() {
    if (requested) return;
    requested = true;
    requestAnimationFrame(() => { requested = false; draw(); });
  }

  function visible(level) {
    const side = info.tile << level;
    const list = [];
    for (let row = Math.floor(view.query / side); row * side < Math.min(tokens(), view.query + view.span); ++row)
      for (let column = Math.floor(view.key / side); column * side < view.key + view.span && column <= row; ++column) list.push([row, column]);
    return list;
  }

  function drawTiles(context, level, size, ask) {
    const side = info.tile << level;
    let missing = 0;
    for (const [row, column] of visible(level)) {
      const name = nameOf(level, row, column);
      const tile = tiles.get(name);
      if (tile?.picture) {
        const scale = size / view.span;
        context.drawImage(tile.picture, (column * side - view.key) * scale, (row * side - view.query) * scale, side * scale, side * scale);
      } else if (ask && !tile) {
        ++missing;
        tiles.set(name, load(name, level, row, column).catch((error) => { tiles.delete(name); actions.failed(error); }));
      }
    }
    return missing;
  }

  function draw() {
    if (!info || canvas.clientWidth === 0) return;
    const ratio = window.devicePixelRatio || 1;
    const size = canvas.clientWidth;
    if (canvas.width !== Math.round(size * ratio)) [canvas.width, canvas.height] = [size * ratio, size * ratio].map(Math.round);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, size, size);
    context.imageSmoothingEnabled = false;
    const level = levelNow();
    for (let coarse = level + 4; coarse > level; --coarse) drawTiles(context, coarse, size, false);
    drawTiles(context, level, size, true);
    const y = (query + 0.5 - view.query) * size / view.span;
    context.strokeStyle = colours.variable("ink");
    context.beginPath();
    context.moveTo(0, y);
    context.lineTo(Math.max(0, Math.min(size, (query + 1 - view.key) * size / view.span)), y);
    context.stroke();
    const width = 1 << level;
    const exact = visible(level).every(([row, column]) => tiles.get(nameOf(level, row, column))?.exact !== false);
    document.getElementById("matrix-scale").textContent = `Queries ${Math.floor(view.query)} to ${Math.ceil(view.query + view.span) - 1}, cells of ${width} × ${width} token${width > 1 ? "s" : ""}, logarithmic colours from 0.00001 to 1.${exact ? "" : ` Preview from one query per row of cells, exact: ${Math.round(100 * overviewDone)} %.`}`;
    if (!exact) finishOverview();
  }

  // Asks the server to go on with the exact overview, and loads previews again when it is complete.
  async function finishOverview() {
    const name = `${run}/${head.join(".")}`;
    if (overviewOf === name) return;
    overviewOf = name;
    overviewDone = 0;
    try {
      while (overviewOf === name && overviewDone < 1) {
        overviewDone = await source.overview(run, head);
        requestDrawScale();
      }
    } catch (error) {
      actions.failed(error);
    }
    if (overviewOf !== name) return;
    overviewOf = "";
    for (const [key, tile] of tiles) if (key.startsWith(`${name}/`) && tile.exact === false) tiles.delete(key);
    draw();
  }
  const requestDrawScale = () => {
    const note = document.getElementById("matrix-scale");
    note.textContent = note.textContent.replace(/\d+ %/, `${Math.round(100 * overviewDone)} %`);
  };

  function picture() {
    const size = canvas.clientWidth, ink = colours.variable("ink");
    const label = (x, y, text, anchor) => svg("text", { x, y, fill: ink, "font-size": 11, "font-family": "system-ui, sans-serif", "text-anchor": anchor }, text);
    const end = (start) => Math.ceil(start + view.span) - 1;
    return svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${size + 60} ${size + 40}` },
      svg("image", { x: 52, y: 8, width: size, height: size, href: canvas.toDataURL("image/png"), "image-rendering": "pixelated" }),
      svg("rect", { x: 52, y: 8, width: size, height: size, fill: "none", stroke: ink }),
      label(48, 18, Math.floor(view.query), "end"), label(48, size + 8, end(view.query), "end"),
      label(52, size + 22, Math.floor(view.key), "start"), label(size + 52, size + 22, end(view.key), "end"),
      label(52 + size / 2, size + 34, `layer ${head[0]}, head ${head[1]}: queries (down), keys (right)`, "middle"));
  }

  return {
    start, draw, zoom, setView, picture,
    view: () => view,
    whole: () => setView(whole()),
    centre: () => setView({ span: 256, query: query - 128, key: query - 200 }),
    show: (forRun, forHead, forQuery) => {
      [run, head, query] = [forRun, forHead, forQuery];
      draw();
    },
    setSum: (on) => { sum = on; draw(); },
    forget: () => { tiles.clear(); draw(); },
    loaded: () => visible(levelNow()).every(([row, column]) => tiles.get(nameOf(levelNow(), row, column))?.exact),
  };
})();
