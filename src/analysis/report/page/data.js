"use strict";

// Data of the page: JSON with base64-encoded arrays, and the points of all heads in a separate
// base64 text that is decoded one head at a time. A comparison has a second set of heads, "B".
const report = JSON.parse(document.getElementById("report-data").textContent);

const kComponents = (report.heads.scatter ? report.heads.scatter.components : [0, 1]).map((i) => `pc${i}`);
const kAxes = [...kComponents, "a", "b", "c0", "c1"];

// Decodes a text column as indices into `names`, 255 for any other text.
function readTexts(packed, names) {
  const places = packed.names.map((name) => names.indexOf(name));
  return unpack(packed.codes, Uint8Array).map((code) => places[code] ?? 255);
}

const kRopes = { rope: "RoPE", nope: "NoPE", unknown: "unknown" };
const kNoClass = { title: "", colour: "transparent" };

function readHeads(packed, points) {
  const classes = report.heads.classes.map((kind) => kind.name);
  const attentions = [...packed.attention.names].sort();
  const measures = new Map();
  for (const measure of packed.measures) measures.set(measure.name, unpack(measure.data, Float32Array));
  if (packed.gaussian.names.length > 0)  // 0: no, 1: yes
    measures.set("gaussian", Float32Array.from(readTexts(packed.gaussian, ["no", "yes"]), (code) => (code === 255 ? NaN : code)));
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
    rope: readTexts(packed.rope, Object.keys(kRopes)),
    attention: readTexts(packed.attention, attentions),
    attentions,
    kind: readTexts(packed.class, classes),
    axisKind: packed.class_axis.names.length > 0 ? readTexts(packed.class_axis, classes) : null,
    measures, profile, scatter, points,
  };
}

const heads = readHeads(report.heads, document.getElementById("report-points").textContent);
const others = report.other && readHeads(report.other.heads, document.getElementById("report-other-points").textContent);

// Returns the index in `others` of the head with the same layer and number; -1 without a match.
const matchOf = (() => {
  const places = new Map();
  for (let head = 0; others && head < others.count; ++head) places.set(`${others.layer[head]}.${others.head[head]}`, head);
  const matches = Array.from(heads.layer, (layer, head) => places.get(`${layer}.${heads.head[head]}`) ?? -1);
  return (head) => matches[head];
})();

// Returns the points of one head as [{key, position, shade, token, pc0, pc1, a, b, c0, c1}], or null
// if none were stored. The shade is the position over the last position of the run.
function pointsOf(head, set = heads) {
  const scatter = set.scatter;
  if (head < 0 || !scatter || scatter.start[head] === scatter.start[head + 1]) return null;
  const width = 3 + kAxes.length;
  const bytes = sliceOf(set.points, width * scatter.start[head], width * scatter.start[head + 1]);
  const list = [];
  for (let i = 0; i < bytes.length / width; ++i) {
    const at = width * i;
    const position = bytes[at] + 256 * bytes[at + 1] + 65536 * bytes[at + 2];
    const point = { key: i >= scatter.queries[head], position, shade: position / scatter.lastPositions[set.run[head]] };
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
function profileOf(head, set = heads) {
  const profile = set.profile;
  if (head < 0 || !profile) return null;
  const list = [];
  for (let i = profile.start[head]; i < profile.start[head + 1]; ++i)
    if (!Number.isNaN(profile.ap[i])) list.push({ x: profile.position[i], y: profile.ap[i], free: profile.free ? profile.free[i] : NaN, error: profile.error[i] });
  return list.length > 0 ? list : null;
}

const classOf = (head, set = heads) => report.heads.classes[set.kind[head]] || kNoClass;
const axisClassOf = (head, set = heads) => (set.axisKind && report.heads.classes[set.axisKind[head]]) || kNoClass;
const attentionOf = (head, set = heads) => set.attentions[set.attention[head]] || "";
const ropeOf = (head) => Object.values(kRopes)[heads.rope[head]] || "";
const measureOf = (name, head, set = heads) => (set.measures.has(name) && head >= 0 ? set.measures.get(name)[head] : NaN);

const labelOf = (run) => run.title || run.label;
