"use strict";

// The chosen query of the active head: numbers, top keys, attention over distance, score by rotary
// frequency, and the attribution of its scores.
const rowPanel = (() => {
  let info, actions = {};  // chooseKey(token), chooseQuery(token)
  const at = (id) => document.getElementById(id);
  const kTop = 20;

  function start(data, handlers) {
    [info, actions] = [data, handlers];
    at("attribution-key").addEventListener("input", drawAttribution);
  }

  function cells(row, tag, values, className) {
    for (const value of values) row.append(element(tag, value, className));
    return row;
  }

  // One column of numbers for each selected head.
  function showSummary(heads, rows) {
    const table = element("table");
    table.append(cells(element("tr"), "th", ["", ...heads.map(([layer, head]) => `${layer}.${head}`)]));
    const add = (title, meaning, value) => {
      const row = element("tr");
      const name = element("th", title, "text");
      name.scope = "row";
      name.title = meaning;
      row.append(name);
      table.append(cells(row, "td", rows.map((one) => (one ? shown(value(one)) : "…"))));
    };
    const best = (row) => topKeys(row, 1)[0] - row.first;
    add("largest attention", "Largest attention of the query on one key", (row) => row.pattern[best(row)]);
    add("its score", "Scaled and capped score of that key", (row) => row.scores[best(row)]);
    add("entropy", "Entropy of the attention of this query, in nats", (row) => row.entropy);
    add("sink share", "Attention on the first token of the text", (row) => row.firstToken);
    add("mean distance", "Mean distance to the keys in tokens, weighted by attention", (row) => row.distance);
    add("log-sum-exp", "Logarithm of the sum of exp(score)", (row) => row.logSumExp);
    at("row-summary").replaceChildren(table);
  }

  function tokenCell(token) {
    const cell = element("td", undefined, "context");
    const [before, own, after] = textPanes.context(token, 4);
    cell.append(before, element("b", own), after);
    return cell;
  }

  function showTopKeys(row) {
    const table = at("top-keys");
    table.replaceChildren(cells(element("tr"), "th", ["key", "attention", "score", "distance", "context"]));
    if (!row) return;
    for (const key of topKeys(row, kTop)) {
      const line = element("tr");
      const link = element("button", key);
      link.type = "button";
      link.setAttribute("aria-label", `Show key ${key} in the text`);
      link.addEventListener("click", () => actions.chooseKey(key));
      const first = element("td");
      first.append(link);
      line.append(first);
      cells(line, "td", [shown(row.pattern[key - row.first]), shown(row.scores[key - row.first]), row.query - key]);
      line.append(tokenCell(key));
      table.append(line);
    }
  }

  // Bars from a baseline: [{label, value, text}]; labels are drawn where there is room.
  function bars(values, { title, colour }) {
    const width = 340, height = 130, left = 44, bottom = height - 18, top = 6;
    const [ink, line] = [colours.variable("soft"), colours.variable("line")];
    const low = Math.min(0, ...values.map(({ value }) => value)), high = Math.max(1e-12, ...values.map(({ value }) => value));
    const y = (value) => bottom - (value - low) / (high - low) * (bottom - top);
    const step = (width - left - 4) / Math.max(1, values.length);
    const text = (x, atY, content, anchor) => svg("text", { x, y: atY, fill: ink, "font-size": 10, "font-family": "system-ui, sans-serif", "text-anchor": anchor }, content);
    const picture = svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title },
      svg("title", {}, title), svg("line", { x1: left, x2: width, y1: y(0), y2: y(0), stroke: line }),
      text(left - 4, top + 8, shown(high), "end"), text(left - 4, bottom, shown(low), "end"));
    const every = Math.ceil(30 / step);
    values.forEach(({ label, value, text: about }, i) => {
      const bar = svg("rect", { x: left + i * step + 0.5, width: Math.max(1, step - 1), y: Math.min(y(0), y(value)), height: Math.max(0.5, Math.abs(y(value) - y(0))), fill: colour });
      bar.append(svg("title", {}, about));
      picture.append(bar);
      if (i % every === 0) picture.append(text(left + (i + 0.5) * step, height - 5, label, "middle"));
    });
    return picture;
  }

  // Draws the attention mass per octave of distance.
  function showDistance(row, colour) {
    if (!row) return at("distance-plot").replaceChildren();
    const octaves = [];
    row.pattern.forEach((weight, i) => {
      const octave = Math.floor(Math.log2(row.query - row.first - i + 1));
      octaves[octave] = (octaves[octave] ?? 0) + weight;
    });
    const values = Array.from(octaves, (value = 0, i) => ({ label: (1 << i) - 1, value, text: `distance ${(1 << i) - 1} to ${(2 << i) - 2}: attention ${shown(value)}` }));
    at("distance-plot").replaceChildren(bars(values, { title: "Attention by distance in tokens, in octaves", colour }));
  }

  function showFrequencies(row, layer, colour) {
    const place = at("frequency-plot");
    if (!row) return place.replaceChildren();
    const { wavelengths } = info.layers[layer];
    if (wavelengths.length === 0) return place.replaceChildren(element("p", "This layer has no rotary position embedding.", "note"));
    const tokens = (length) => (length < 10 ? length.toFixed(1) : String(Math.round(length)));
    const values = Array.from(row.attended, (value, i) => ({
      label: tokens(wavelengths[i]), value: value - row.mean[i],
      text: `rotary pair ${i}, wavelength ${tokens(wavelengths[i])} tokens: score ${shown(value)} on attended keys, ${shown(row.mean[i])} on all keys`,
    }));
    place.replaceChildren(bars(values, { title: "Score of attended keys minus mean score of all keys, by wavelength in tokens", colour }),
      element("p", "By wavelength in tokens: score of the attended keys minus the mean score of all visible keys.", "note scale"));
  }

  let attribution = [];
  async function showAttribution(head, query) {
    attribution = info.attribution ? await source.attribution(head, query) : [];
    at("attribution").hidden = attribution.length === 0;
    const keys = [...new Set(attribution.map(([key]) => key))];
    at("attribution-key").replaceChildren(...keys.map((key) => new Option(`${key}: ${textPanes.context(key, 2).join("")}`, key)));
    drawAttribution();
  }

  // Components of the query (rows) by components of the key (columns), the largest margins first.
  function drawAttribution() {
    const chosen = Number(at("attribution-key").value);
    const entries = attribution.filter(([key]) => key === chosen);
    if (entries.length === 0) return;
    const margin = (part) => {
      const sums = new Map();
      for (const entry of entries) sums.set(entry[part], (sums.get(entry[part]) ?? 0) + Math.abs(entry[4]));
      return [...sums].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([name]) => name);
    };
    const [queries, keys] = [margin(2), margin(3)];
    const largest = Math.max(...entries.map((entry) => Math.abs(entry[4])));
    const table = element("table");
    table.append(element("caption", `Score ${shown(entries[0][1])} by component of the query (rows) and of the key (columns)`));
    table.append(cells(element("tr"), "th", ["", ...keys]));
    for (const q of queries) {
      const line = element("tr");
      line.append(element("th", q, "text"));
      for (const k of keys) {
        const value = entries.find((entry) => entry[2] === q && entry[3] === k)?.[4];
        const cell = element("td", shown(value));
        // Blue for positive and orange for negative contributions.
        if (value) cell.style.backgroundColor = colours.shade(value > 0 ? 0 : 1, Math.abs(value) / largest);
        line.append(cell);
      }
      table.append(line);
    }
    at("attribution-matrix").replaceChildren(table);
  }

  return {
    start,
    show(heads, rows, active) {
      const row = rows[active];
      showSummary(heads, rows);
      showTopKeys(row);
      showDistance(row, colours.heads[active]);
      showFrequencies(row, heads[active][0], colours.heads[active]);
      if (row) showAttribution(heads[active], row.query).catch(actions.failed);
    },
  };
})();
