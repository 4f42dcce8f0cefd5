"use strict";

// Data of the page: JSON with base64-encoded arrays, and the points of all heads in a separate
// base64 text that is decoded one head at a time.
const report = JSON.parse(document.getElementById("report-data").textContent);
const points = document.getElementById("report-points").textContent;

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; ++i) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

function unpack(text, Type) {
  return new Type(bytesOf(text).buffer);
}

// Decodes bytes [first, last) of a long base64 text without decoding the rest.
function sliceOf(text, first, last) {
  const group = Math.floor(first / 3);
  const bytes = bytesOf(text.slice(4 * group, 4 * Math.ceil(last / 3)));
  return bytes.subarray(first - 3 * group, last - 3 * group);
}

const kComponents = (report.heads.scatter ? report.heads.scatter.components : [0, 1]).map((i) => `pc${i}`);
const kAxes = [...kComponents, "a", "b", "c0", "c1"];

const heads = (() => {
  const packed = report.heads;
  const measures = new Map();
  for (const measure of packed.measures) measures.set(measure.name, unpack(measure.data, Float32Array));
  const profile = packed.profile && {
    start: unpack(packed.profile.start, Uint32Array),
    position: unpack(packed.profile.position, Float32Array),
    ap: unpack(packed.profile.ap, Float32Array),
    free: packed.profile.ap_free && unpack(packed.profile.ap_free, Float32Array),
    error: unpack(packed.profile.error, Float32Array),
  };
  const scatter = packed.scatter && {
    start: unpack(packed.scatter.start, Uint32Array),
    queries: unpack(packed.scatter.queries, Uint16Array),
    low: unpack(packed.scatter.low, Float32Array),
    high: unpack(packed.scatter.high, Float32Array),
    lastPositions: packed.scatter.last_positions,
    tokens: packed.scatter.tokens || null,
    token: packed.scatter.tokens ? unpack(packed.scatter.token, Uint32Array) : null,
  };
  return {
    count: packed.count,
    run: unpack(packed.run, Uint16Array),
    layer: unpack(packed.layer, Uint16Array),
    head: unpack(packed.head, Uint16Array),
    rope: unpack(packed.rope, Uint8Array),
    attention: unpack(packed.attention, Uint8Array),
    kind: unpack(packed.class, Uint8Array),
    axisKind: packed.class_axis && unpack(packed.class_axis, Uint8Array),
    measures, profile, scatter,
  };
})();

// Returns the points of one head as [{key, position, shade, token, pc0, pc1, a, b, c0, c1}], or null
// if none were stored. The shade is the position over the last position of the run.
function pointsOf(head) {
  const scatter = heads.scatter;
  if (!scatter || scatter.start[head] === scatter.start[head + 1]) return null;
  const width = 3 + kAxes.length;
  const bytes = sliceOf(points, width * scatter.start[head], width * scatter.start[head + 1]);
  const list = [];
  for (let i = 0; i < bytes.length / width; ++i) {
    const at = width * i;
    const position = bytes[at] + 256 * bytes[at + 1] + 65536 * bytes[at + 2];
    const point = { key: i >= scatter.queries[head], position, shade: position / scatter.lastPositions[heads.run[head]] };
    if (scatter.tokens) point.token = scatter.tokens[scatter.token[scatter.start[head] + i]];
    kAxes.forEach((axis, j) => {
      const code = bytes[at + 3 + j];
      const low = scatter.low[kAxes.length * head + j];
      const high = scatter.high[kAxes.length * head + j];
      point[axis] = code === 255 ? NaN : low + (high - low) * code / 254;
    });
    list.push(point);
  }
  return list;
}

// Returns the plasticity profile of one head as [{x, y, free, error}], or null if it has none.
function profileOf(head) {
  const profile = heads.profile;
  if (!profile) return null;
  const list = [];
  for (let i = profile.start[head]; i < profile.start[head + 1]; ++i)
    if (!Number.isNaN(profile.ap[i])) list.push({ x: profile.position[i], y: profile.ap[i], free: profile.free ? profile.free[i] : NaN, error: profile.error[i] });
  return list.length > 0 ? list : null;
}

const kRopes = { rope: "RoPE", nope: "NoPE", unknown: "unknown" };

const kNoClass = { title: "", colour: "transparent" };
const classOf = (head) => report.heads.classes[heads.kind[head]] || kNoClass;
const axisClassOf = (head) => (heads.axisKind && report.heads.classes[heads.axisKind[head]]) || kNoClass;
const attentionOf = (head) => report.heads.attentions[heads.attention[head]] || "";
const ropeOf = (head) => kRopes[report.heads.ropes[heads.rope[head]]] || "";
const measureOf = (name, head) => (heads.measures.has(name) ? heads.measures.get(name)[head] : NaN);

// Short titles of measures for table headers.
const kTitles = {
  explained_variance: "PC0 var.", ap_profile_overall: "plasticity", ap_first20: "first 20 %", ap_last20: "last 20 %", ap_drop: "drop",
  ap_free_overall: "free plast.", ap_free_drop: "free drop",
  bias_strength: "bias", separation_strength: "separation", plane_var_fraction: "plane var.", q_R2_pos: "R² on pos.",
};
const titleOf = (name) => kTitles[name] || name;
const labelOf = (run) => run.title || run.label;

function shown(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (Number.isInteger(value)) return String(value);
  if (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5) return value.toExponential(2);
  return Math.abs(value) < 10 ? value.toFixed(4) : value.toPrecision(5);
}

// Creates an element with text. The page never parses text as HTML.
function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// The tooltip beside the mouse, shared by the whole page.
const hint = (() => {
  const box = element("div", undefined, "hint");
  box.hidden = true;
  document.body.append(box);
  function show(event, text) {
    box.textContent = text;
    box.hidden = false;
    const left = Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 6);
    const below = event.clientY + 18 + box.offsetHeight < window.innerHeight;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${below ? event.clientY + 18 : event.clientY - box.offsetHeight - 10}px`;
  }
  return { show, hide: () => { box.hidden = true; } };
})();
