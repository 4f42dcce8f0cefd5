"use strict";

// The text: tokens in a monospaced font, drawn only where they are on screen, one pane for each
// selected head.

// A token as it is drawn: control and bidirectional characters are visible, long tokens are cut.
const kLongestToken = 48;
const kNamedControls = { "\n": "⏎", "\t": "⇥", "\r": "␍" };
function visibleToken(text) {
  if (text === "") return "∅";
  let cut = text.length > kLongestToken ? `${text.slice(0, kLongestToken).replace(/[\ud800-\udbff]$/, "")}…` : text;
  return cut.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => kNamedControls[c] ?? `‹${c.charCodeAt(0).toString(16).padStart(4, "0")}›`);
}

// Width in columns of a monospaced font; East Asian characters and emoji take two.
function columnsOf(text) {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let columns = 0;
  for (const c of text) columns += c.codePointAt(0) >= 0x1100 ? 2 : 1;
  return columns;
}

// Breaks tokens into lines of `columns` columns. Returns the first token of each line (and the end),
// the line of each token and the column at which it starts.
function layOutTokens(texts, widths, columns) {
  const starts = [0];
  const line = new Uint32Array(texts.length), column = new Uint16Array(texts.length);
  let at = 0;
  for (let i = 0; i < texts.length; ++i) {
    if (at > 0 && at + widths[i] > columns) {
      starts.push(i);
      at = 0;
    }
    line[i] = starts.length - 1;
    column[i] = at;
    at += widths[i];
    if (texts[i].endsWith("\n") && i + 1 < texts.length) {
      starts.push(i + 1);
      at = 0;
    }
  }
  starts.push(texts.length);
  return { starts: Uint32Array.from(starts), line, column, lines: starts.length - 1 };
}

const textPanes = (() => {
  const kLine = 22, kMargin = 6, kArrows = 8;
  const panes = [];
  let container, texts = [], shownTexts = [], widths, charWidth = 8;
  let actions = {};  // choose(token), walk(token), announce(text)
  let cursor = 0, query = 0, found = new Set();

  function start(at, tokens, handlers) {
    [container, texts, actions] = [at, tokens, handlers];
    shownTexts = texts.map(visibleToken);
    widths = Uint16Array.from(shownTexts, columnsOf);
    new ResizeObserver(() => panes.forEach((pane) => pane.layOut())).observe(container);
  }

  function measureCharacter(scroll) {
    const probe = element("span", "0".repeat(100), "token");
    scroll.append(probe);
    charWidth = probe.getBoundingClientRect().width / 100 || 8;
    probe.remove();
  }

  // A few tokens on both sides, as text.
  function context(token, count = 6) {
    const part = (from, to) => shownTexts.slice(Math.max(0, from), Math.max(0, to)).join("");
    return [part(token - count, token), shownTexts[token] ?? "", part(token + 1, token + 1 + count)];
  }

  class Pane {
    constructor(index) {
      this.index = index;
      this.row = null;
      this.drawn = new Map();  // line number: element
      this.box = element("div", undefined, "pane");
      this.title = element("h3");
      const view = element("div", undefined, "pane-view");
      this.scroll = element("div", undefined, "pane-scroll");
      this.scroll.tabIndex = 0;
      this.scroll.setAttribute("role", "application");
      this.scroll.setAttribute("aria-label", "Text. Arrow keys walk through the tokens, Enter makes a token the query.");
      this.body = element("div", undefined, "pane-lines");
      this.arrows = svg("svg", { class: "arrows", "aria-hidden": "true" });
      this.map = element("canvas", undefined, "minimap");
      this.map.setAttribute("role", "img");
      this.map.setAttribute("aria-label", "Minimap of the whole text, shaded by attention. Click scrolls.");
      this.scroll.append(this.body);
      view.append(this.scroll, this.arrows);
      this.box.append(this.title, view, this.map);
      container.append(this.box);
      this.listen();
      this.layOut();
    }

    listen() {
      this.scroll.addEventListener("scroll", () => this.requestDraw());
      this.body.addEventListener("click", (event) => {
        const token = this.tokenAt(event);
        if (token >= 0) actions.choose(token);
      });
      this.body.addEventListener("mousemove", (event) => {
        const token = this.tokenAt(event);
        if (token >= 0) hint.show(event.clientX, event.clientY, this.describe(token));
        else hint.hide();
      });
      this.scroll.addEventListener("mouseleave", hint.hide);
      this.scroll.addEventListener("keydown", (event) => this.walk(event));
      const jump = (event) => {
        const box = this.map.getBoundingClientRect();
        this.scroll.scrollTop = (event.clientY - box.top) / box.height * this.body.offsetHeight - this.scroll.clientHeight / 2;
      };
      this.map.addEventListener("pointerdown", (event) => {
        this.map.setPointerCapture(event.pointerId);
        jump(event);
      });
      this.map.addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });
    }

    tokenAt(event) {
      const token = event.target.closest(".token");
      return token ? Number(token.dataset.token) : -1;
    }

    layOut() {
      if (this.scroll.clientWidth === 0) return;
      measureCharacter(this.scroll);
      const columns = Math.max(8, Math.floor((this.scroll.clientWidth - 8) / charWidth));
      if (this.columns !== columns) {
        const top = this.layout ? this.layout.starts[this.firstLine()] : -1;
        this.columns = columns;
        this.layout = layOutTokens(texts, widths, columns);
        this.body.style.height = `${this.layout.lines * kLine}px`;
        this.drawn.forEach((line) => line.remove());
        this.drawn.clear();
        if (top >= 0) this.scroll.scrollTop = this.layout.line[top] * kLine;
      }
      this.draw();
      this.drawMap();
    }

    firstLine() {
      return Math.min(this.layout.lines - 1, Math.max(0, Math.floor(this.scroll.scrollTop / kLine)));
    }

    requestDraw() {
      if (this.requested) return;
      this.requested = true;
      requestAnimationFrame(() => {
        this.requested = false;
        this.draw();
        this.drawMapFrame();
        this.follow();
      });
    }

    // Other panes scroll along: the same token is at the top.
    follow() {
      if (document.activeElement !== this.scroll && !this.box.matches(":hover")) return;
      for (const other of panes)
        if (other !== this) other.scroll.scrollTop = other.layout.line[this.layout.starts[this.firstLine()]] * kLine;
    }

    draw() {
      const first = Math.max(0, this.firstLine() - kMargin);
      const last = Math.min(this.layout.lines, this.firstLine() + Math.ceil(this.scroll.clientHeight / kLine) + kMargin);
      for (const [number, line] of this.drawn)
        if (number < first || number >= last) {
          line.remove();
          this.drawn.delete(number);
        }
      const added = document.createDocumentFragment();
      for (let number = first; number < last; ++number)
        if (!this.drawn.has(number)) {
          const line = this.makeLine(number);
          this.drawn.set(number, line);
          added.append(line);
        }
      this.body.append(added);
      this.drawArrows();
    }

    makeLine(number) {
      const line = element("div", undefined, "line");
      line.style.top = `${number * kLine}px`;
      for (let token = this.layout.starts[number]; token < this.layout.starts[number + 1]; ++token) {
        const made = element("span", shownTexts[token], "token");
        made.dataset.token = token;
        made.style.width = `${widths[token] * charWidth}px`;
        this.mark(made, token);
        line.append(made);
      }
      return line;
    }

    mark(made, token) {
      made.classList.toggle("query", token === query);
      made.classList.toggle("cursor", token === cursor);
      made.classList.toggle("found", found.has(token));
      made.style.backgroundColor = this.row ? colours.shade(this.index, this.shareOf(token)) : "";
    }

    markAll() {
      for (const line of this.drawn.values()) for (const made of line.children) this.mark(made, Number(made.dataset.token));
    }

    // Shading is logarithmic over three decades below the largest weight.
    shareOf(token) {
      const weight = this.weight(token);
      return weight > 0 ? Math.max(0, 1 + Math.log10(weight / this.largest) / 3) : 0;
    }

    weight(token) {
      return this.row && token >= this.row.first && token <= this.row.query ? this.row.pattern[token - this.row.first] : NaN;
    }

    describe(token) {
      const weight = this.weight(token);
      const around = (at) => { const [before, own, after] = context(at); return `…${before}[${own}]${after}…`; };
      if (Number.isNaN(weight)) return `token ${token}: ${around(token)}\nnot visible to the query ${query}`;
      return `key ${token}: ${around(token)}\nattention ${shown(weight)}, score ${shown(this.row.scores[token - this.row.first])}, distance ${this.row.query - token}\nquery ${this.row.query}: ${around(this.row.query)}`;
    }

    show(row, title, headColour) {
      this.row = row;
      this.title.textContent = title;
      this.title.style.borderLeft = `8px solid ${headColour}`;
      this.largest = row ? row.pattern.reduce((a, b) => (a > b ? a : b), 0) : 0;
      this.top = row ? topKeys(row, kArrows) : [];
      this.markAll();
      this.drawArrows();
      this.drawMap();
    }

    // Middle of a token in pixels from the corner of the pane; far away places are cut to the edge.
    placeOf(token) {
      const { line, column } = this.layout;
      const y = (line[token] + 0.5) * kLine - this.scroll.scrollTop;
      return [4 + (column[token] + widths[token] / 2) * charWidth, Math.min(this.scroll.clientHeight + 30, Math.max(-30, y))];
    }

    drawArrows() {
      const parts = [];
      if (this.row) {
        const [x, y] = this.placeOf(this.row.query);
        for (const key of this.top) {
          if (key === this.row.query) continue;
          const [toX, toY] = this.placeOf(key);
          if ((y < 0 && toY < 0) || (y > this.scroll.clientHeight && toY > this.scroll.clientHeight)) continue;
          const bend = Math.abs(y - toY) < 2 ? 26 : 0;
          const middle = `${(x + toX) / 2 + (bend ? 0 : 24)} ${(y + toY) / 2 - bend}`;
          const width = 1 + 3 * this.weight(key) / this.largest;
          parts.push(svg("path", { d: `M ${x} ${y} Q ${middle} ${toX} ${toY}`, fill: "none", stroke: colours.heads[this.index], "stroke-width": width.toFixed(2), opacity: 0.7 }),
            svg("circle", { cx: toX, cy: toY, r: 2 + width / 2, fill: colours.heads[this.index] }));
        }
      }
      this.arrows.replaceChildren(...parts);
    }

    // The largest attention of the lines of each pixel row.
    drawMap() {
      if (!this.layout) return;
      const height = this.map.clientHeight, width = this.map.clientWidth;
      if (height === 0) return;
      [this.map.width, this.map.height] = [width, height];
      this.mapPicture = new OffscreenCanvas(width, height);
      const context = this.mapPicture.getContext("2d");
      const pixel = (token) => Math.min(height - 1, Math.floor((this.layout.line[token] + 0.5) / this.layout.lines * height));
      if (this.row) {
        const best = new Float32Array(height);
        for (let i = 0; i < this.row.pattern.length; ++i) {
          const at = pixel(this.row.first + i);
          if (this.row.pattern[i] > best[at]) best[at] = this.row.pattern[i];
        }
        best.forEach((weight, at) => {
          context.fillStyle = colours.shade(this.index, weight > 0 ? Math.max(0, 1 + Math.log10(weight / this.largest) / 3) : 0) || "transparent";
          context.fillRect(8, at, width - 16, 1);
        });
        context.fillStyle = colours.heads[this.index];
        for (const key of this.top) context.fillRect(0, pixel(key) - 1, 7, 3);
        context.fillStyle = colours.variable("ink");
        context.fillRect(width - 8, pixel(this.row.query) - 1, 8, 3);
      }
      this.drawMapFrame();
    }

    drawMapFrame() {
      if (!this.mapPicture) return;
      const context = this.map.getContext("2d");
      context.clearRect(0, 0, this.map.width, this.map.height);
      context.drawImage(this.mapPicture, 0, 0);
      const all = this.layout.lines * kLine;
      context.strokeStyle = colours.variable("ink");
      context.strokeRect(0.5, Math.round(this.scroll.scrollTop / all * this.map.height) + 0.5, this.map.width - 1, Math.max(3, Math.min(this.map.height - 1, this.scroll.clientHeight / all * this.map.height)));
    }

    reveal(token) {
      const y = this.layout.line[token] * kLine;
      const { scrollTop, clientHeight } = this.scroll;
      if (y < scrollTop + kLine || y > scrollTop + clientHeight - 2 * kLine) this.scroll.scrollTop = y - clientHeight / 2;
      this.draw();
      this.drawMapFrame();
    }

    walk(event) {
      const { starts, line, column, lines } = this.layout;
      const page = Math.max(1, Math.floor(this.scroll.clientHeight / kLine) - 2);
      const downBy = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page }[event.key];
      let to = { ArrowLeft: cursor - 1, ArrowRight: cursor + 1, Home: 0, End: texts.length - 1 }[event.key];
      if (event.key === "Enter") actions.choose(cursor);
      else if (downBy !== undefined) {
        const target = Math.min(lines - 1, Math.max(0, line[cursor] + downBy));
        to = starts[target];
        while (to + 1 < starts[target + 1] && column[to + 1] <= column[cursor]) ++to;
      }
      if (to === undefined && event.key !== "Enter") return;
      event.preventDefault();
      if (to === undefined) return;
      setCursor(Math.min(texts.length - 1, Math.max(0, to)), this);
      actions.announce(this.describe(cursor).replace(/\n/g, "; "));
    }

    // The visible part as an SVG picture.
    picture() {
      const width = this.scroll.clientWidth, height = this.scroll.clientHeight;
      const ink = colours.variable("ink");
      const parts = [];
      for (const made of this.body.querySelectorAll(".token")) {
        const token = Number(made.dataset.token);
        const x = 4 + this.layout.column[token] * charWidth, y = this.layout.line[token] * kLine - this.scroll.scrollTop;
        if (y < -kLine || y > height) continue;
        const share = this.row ? this.shareOf(token) : 0;
        if (share > 0) parts.push(svg("rect", { x, y, width: widths[token] * charWidth, height: kLine, fill: colours.shade(this.index, share) }));
        if (token === query) parts.push(svg("rect", { x, y, width: widths[token] * charWidth, height: kLine, fill: "none", stroke: ink, "stroke-width": 2 }));
        parts.push(svg("text", { x, y: y + 15, fill: ink, "xml:space": "preserve", "unicode-bidi": "isolate" }, shownTexts[token]));
      }
      parts.push(...[...this.arrows.children].map((part) => part.cloneNode(true)));
      return svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, "font-family": "ui-monospace, Liberation Mono, monospace", "font-size": 13 }, ...parts);
    }
  }

  function setCursor(token, near) {
    cursor = token;
    for (const pane of panes) {
      if (pane === near || !near) pane.reveal(token);
      pane.markAll();
    }
  }

  function setCount(count) {
    while (panes.length > count) panes.pop().box.remove();
    while (panes.length < count) panes.push(new Pane(panes.length));
    panes.forEach((pane) => pane.layOut());
  }

  return {
    start, setCount, setCursor, context,
    show: (index, row, title) => panes[index].show(row, title, colours.heads[index]),
    setQuery: (token) => { query = token; cursor = token; panes.forEach((pane) => pane.markAll()); },
    reveal: (token) => panes.forEach((pane) => pane.reveal(token)),
    scrollTo: (token) => panes.forEach((pane) => { pane.scroll.scrollTop = pane.layout.line[token] * kLine; pane.draw(); }),
    setFound: (tokens) => { found = tokens; panes.forEach((pane) => pane.markAll()); },
    topToken: () => (panes[0]?.layout ? panes[0].layout.starts[panes[0].firstLine()] : 0),
    picture: (index) => panes[index].picture(),
    redraw: () => panes.forEach((pane) => { pane.markAll(); pane.drawArrows(); pane.drawMap(); }),
  };
})();

// Tokens of the largest weights of a row, the largest first.
function topKeys(row, count) {
  const best = [];  // ascending indices of weights
  row.pattern.forEach((weight, i) => {
    if (best.length === count && weight <= row.pattern[best[0]]) return;
    let at = best.length;
    while (at > 0 && row.pattern[best[at - 1]] > weight) --at;
    best.splice(at, 0, i);
    if (best.length > count) best.shift();
  });
  return best.reverse().map((i) => row.first + i);
}

// Occurrences of a text over token boundaries, without regard to case.
const textSearch = (() => {
  let all = "", offsets = null, matches = [], current = -1;
  function start(texts) {
    offsets = new Uint32Array(texts.length + 1);
    const lower = texts.map((text) => text.toLowerCase());
    lower.forEach((text, i) => { offsets[i + 1] = offsets[i] + text.length; });
    all = lower.join("");
  }
  function tokenAt(offset) {
    let low = 0, high = offsets.length - 1;
    while (low + 1 < high) {
      const middle = (low + high) >> 1;
      if (offsets[middle] <= offset) low = middle;
      else high = middle;
    }
    return low;
  }
  const kMostMatches = 10000;
  function find(text) {
    [matches, current] = [[], -1];
    const wanted = text.toLowerCase();
    for (let at = wanted ? all.indexOf(wanted) : -1; at >= 0 && matches.length < kMostMatches; at = all.indexOf(wanted, at + wanted.length))
      matches.push([tokenAt(at), tokenAt(at + wanted.length - 1)]);
    const tokens = new Set();
    for (const [first, last] of matches) for (let token = first; token <= last; ++token) tokens.add(token);
    return tokens;
  }
  // Goes to the next (1) or previous (-1) match after a token; returns its first token or -1.
  function go(direction, from) {
    if (matches.length === 0) return -1;
    if (current < 0) {
      const after = matches.findIndex(([first]) => first >= from);
      current = direction > 0 ? (after < 0 ? 0 : after) : ((after < 0 ? 0 : after) - 1 + matches.length) % matches.length;
    } else {
      current = (current + direction + matches.length) % matches.length;
    }
    return matches[current][0];
  }
  const state = () => (matches.length === 0 ? "no match" : `${current + 1} of ${matches.length}${matches.length === kMostMatches ? "+" : ""}`);
  return { start, find, go, state };
})();
