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
const isPlain = (text) => /^[\x20-\x7e]*$/.test(text);
function columnsOf(text) {
  if (isPlain(text)) return text.length;
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
  let container, texts = [], shownTexts = [], plain, widths, charWidth = 8;
  let actions = {};  // choose(token), walk(token), announce(text)
  let cursor = 0, query = 0, found = new Set();

  function start(at, tokens, handlers) {
    [container, texts, actions] = [at, tokens, handlers];
    shownTexts = texts.map(visibleToken);
    plain = shownTexts.map(isPlain);
    widths = Uint16Array.from(shownTexts, columnsOf);
    new ResizeObserver(() => panes.forEach((pane) => pane.layOut())).observe(container);
  }

  function measureCharacter(scroll) {
    const probe = element("span", "0".repeat(100), "token");
    scroll.append(probe);
    charWidth = probe.getBoundingClientRect().width / 100 || 8;
    probe.remove();
  }

  // Returns the text around a token: up to `count` tokens on both sides.
  function context(token, count = 6) {
    const part = (from, to) => shownTexts.slice(Math.max(0, from), Math.max(0, to)).join("");
    return [part(token - count, token), shownTexts[token] ?? "", part(token + 1, token + 1 + count)];
  }

  class Pane {
    constructor(index) {
      this.index = index;
      this.row = null;
      this.drawn = new Map();  // line number: element
      this.spare = [];  // elements of lines that left the screen
      this.box = element("div", undefined, "pane");
      this.title = element("h3");
      const view = element("div", undefined, "pane-view");
      this.scroll = element("div", undefined, "pane-scroll");
      this.scroll.tabIndex = 0;
      this.scroll.setAttribute("role", "application");
      this.scroll.setAttribute("aria-label", "Text. Arrow keys walk through the tokens, Enter makes a token the query.");
      this.body = element("div", undefined, "pane-lines");
      this.arrows = svg("svg", { class: "arrows", "aria-hidden": "true" });
      const overview = element("div", undefined, "overview");
      this.frame = element("div", undefined, "map-frame");
      this.map = element("canvas", undefined, "minimap");
      this.map.setAttribute("role", "img");
      this.map.setAttribute("aria-label", "Minimap of the whole text, shaded by attention. Click scrolls.");
      this.scroll.append(this.body);
      view.append(this.scroll, this.arrows);
      overview.append(this.map, this.frame);
      this.box.append(this.title, view, overview);
      container.append(this.box);
      this.top = [];
      this.sampled = new Set();  // positions of this head in a capture
      this.scrollTop = 0;
      this.listen();
      this.layOut();
    }

    listen() {
      this.scroll.addEventListener("scroll", () => this.requestDraw(), { passive: true });
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
      this.height = this.scroll.clientHeight;
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
      this.drawMap();
      this.draw();
    }

    firstLine() {
      return Math.min(this.layout.lines - 1, Math.max(0, Math.floor(this.scrollTop / kLine)));
    }

    requestDraw() {
      if (this.requested) return;
      this.requested = true;
      requestAnimationFrame(() => {
        this.requested = false;
        this.draw();
        this.follow();
      });
    }

    scrollTo(y) {
      this.scroll.scrollTop = y;
      this.draw();
    }

    // Scrolls the other panes to the same top token.
    follow() {
      if (panes.length === 1 || (document.activeElement !== this.scroll && !this.box.matches(":hover"))) return;
      for (const other of panes)
        if (other !== this) other.scroll.scrollTop = other.layout.line[this.layout.starts[this.firstLine()]] * kLine;
    }

    // Draws the lines on screen and a margin. The position is read before anything is written, so that
    // the browser lays out once per frame; elements are used again, so that scrolling leaves no garbage.
    draw() {
      this.scrollTop = this.scroll.scrollTop;
      const first = Math.max(0, this.firstLine() - kMargin);
      const last = Math.min(this.layout.lines, this.firstLine() + Math.ceil(this.height / kLine) + kMargin);
      for (const [number, line] of this.drawn)
        if (number < first || number >= last) {
          this.spare.push(line);
          this.drawn.delete(number);
        }
      for (let number = first; number < last; ++number) if (!this.drawn.has(number)) this.drawn.set(number, this.makeLine(number));
      for (const line of this.spare.splice(0)) line.remove();
      this.drawArrows();
      this.drawMapFrame();
    }

    makeLine(number) {
      let line = this.spare.pop();
      if (!line) {
        line = element("div", undefined, "line");
        this.body.append(line);
      }
      line.style.transform = `translateY(${number * kLine}px)`;
      const [start, end] = [this.layout.starts[number], this.layout.starts[number + 1]];
      while (line.childElementCount > end - start) line.lastChild.remove();
      let made = line.firstChild;
      for (let token = start; token < end; ++token, made = made.nextSibling) {
        if (!made) {
          made = element("span", " ");
          line.append(made);
        }
        made.firstChild.data = shownTexts[token];
        made.dataset.token = token;
        made.style.width = plain[token] ? "" : `${widths[token] * charWidth}px`;
        this.mark(made, token);
      }
      return line;
    }

    mark(made, token) {
      let name = plain[token] ? "token" : "token wide";
      if (token === query) name += " query";
      if (token === cursor) name += " cursor";
      if (found.has(token)) name += " found";
      if (this.sampled.has(token)) name += " sampled";
      if (made.className !== name) made.className = name;
      const shade = this.row ? colours.shade(this.index, this.shareOf(token)) : "";
      if (made.shade !== shade) made.style.backgroundColor = made.shade = shade;
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
      const sampled = this.sampled.has(token) ? " (in the capture)" : "";
      if (Number.isNaN(weight)) return `token ${token}${sampled}: ${around(token)}\nnot visible to the query ${query}`;
      return `key ${token}${sampled}: ${around(token)}\nattention ${shown(weight)}, score ${shown(this.row.scores[token - this.row.first])}, distance ${this.row.query - token}\nquery ${this.row.query}: ${around(this.row.query)}`;
    }

    show(row, title, headColour, sampled) {
      this.row = row;
      this.sampled = new Set(sampled);
      this.title.textContent = title;
      this.title.style.borderLeft = `8px solid ${headColour}`;
      this.largest = row ? row.pattern.reduce((a, b) => (a > b ? a : b), 0) : 0;
      this.top = row ? topKeys(row, kArrows) : [];
      this.markAll();
      this.drawArrows();
      this.drawMap();
    }

    // Middle of a token in pixels from the corner of the pane, clamped if it is far off screen.
    placeOf(token) {
      const { line, column } = this.layout;
      const y = (line[token] + 0.5) * kLine - this.scrollTop;
      return [4 + (column[token] + widths[token] / 2) * charWidth, Math.min(this.height + 30, Math.max(-30, y))];
    }

    // A path and a dot for each top key; hidden where both ends are on the same side of the screen.
    drawArrows() {
      while (this.arrows.childElementCount < 2 * this.top.length)
        this.arrows.append(svg("path", { fill: "none", opacity: 0.55 }), svg("circle", {}));
      for (let i = 0; 2 * i < this.arrows.childElementCount; ++i) this.drawArrow(this.top[i], this.arrows.children[2 * i], this.arrows.children[2 * i + 1]);
    }

    drawArrow(key, path, dot) {
      const [x, y] = this.row ? this.placeOf(this.row.query) : [0, -1];
      const [toX, toY] = key === undefined ? [0, -1] : this.placeOf(key);
      const hidden = key === undefined || key === this.row.query || (y < 0 && toY < 0) || (y > this.height && toY > this.height);
      for (const part of [path, dot]) part.style.display = hidden ? "none" : "";
      if (hidden) return;
      const bend = Math.abs(y - toY) < 2 ? 26 : 0;
      const width = 1 + 1.5 * this.weight(key) / this.largest;
      const set = (part, attributes) => { for (const name in attributes) part.setAttribute(name, attributes[name]); };
      set(path, { d: `M ${x} ${y} Q ${(x + toX) / 2 + (bend ? 0 : 24)} ${(y + toY) / 2 - bend} ${toX} ${toY}`, stroke: colours.line(this.index), "stroke-width": width.toFixed(2) });
      set(dot, { cx: toX, cy: toY, r: 2 + width / 2, fill: colours.line(this.index) });
    }

    // Draws the overview: the largest attention of the lines of each pixel row.
    drawMap() {
      if (!this.layout) return;
      const height = this.map.clientHeight, width = this.map.clientWidth;
      if (height === 0) return;
      [this.map.width, this.map.height] = [width, height];
      const context = this.map.getContext("2d");
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
    }

    // Outlines the visible part of the text in the overview.
    drawMapFrame() {
      const [all, height] = [this.layout.lines * kLine, this.map.height];
      const part = Math.max(3, Math.min(height, this.height / all * height));
      this.frame.style.height = `${part}px`;
      this.frame.style.transform = `translateY(${Math.min(height - part, this.scrollTop / all * height)}px)`;
    }

    reveal(token) {
      const y = this.layout.line[token] * kLine;
      const { scrollTop } = this.scroll;
      if (y < scrollTop + kLine || y > scrollTop + this.height - 2 * kLine) this.scroll.scrollTop = y - this.height / 2;
      this.draw();
    }

    walk(event) {
      const { starts, line, column, lines } = this.layout;
      const page = Math.max(1, Math.floor(this.height / kLine) - 2);
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
      const width = this.scroll.clientWidth, height = this.height;
      const ink = colours.variable("ink");
      const parts = [];
      for (const made of this.body.querySelectorAll(".token")) {
        const token = Number(made.dataset.token);
        const x = 4 + this.layout.column[token] * charWidth, y = this.layout.line[token] * kLine - this.scrollTop;
        if (y < -kLine || y > height) continue;
        const share = this.row ? this.shareOf(token) : 0;
        if (share > 0) parts.push(svg("rect", { x, y, width: widths[token] * charWidth, height: kLine, fill: colours.shade(this.index, share) }));
        if (token === query) parts.push(svg("rect", { x, y, width: widths[token] * charWidth, height: kLine, fill: "none", stroke: ink, "stroke-width": 2 }));
        parts.push(svg("text", { x, y: y + 15, fill: ink, "xml:space": "preserve", "unicode-bidi": "isolate" }, shownTexts[token]));
      }
      parts.push(...[...this.arrows.children].filter((part) => part.style.display === "").map((part) => part.cloneNode(true)));
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
    show: (index, row, title, sampled) => panes[index].show(row, title, colours.heads[index], sampled),
    setQuery: (token) => { query = token; cursor = token; panes.forEach((pane) => pane.markAll()); },
    reveal: (token) => panes.forEach((pane) => pane.reveal(token)),
    scrollTo: (token) => panes.forEach((pane) => pane.scrollTo(pane.layout.line[token] * kLine)),
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
