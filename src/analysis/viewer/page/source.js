"use strict";

// Where the data comes from: the server that sent the page, or the data in an exported page. Both
// sources have the same functions; `head` is [layer, head].
const source = (() => {
  const stored = document.getElementById("viewer-data");
  return stored ? storedSource(JSON.parse(stored.textContent)) : liveSource();

  function rowOf(query, first, scores, pattern, [logSumExp, entropy, firstToken, distance], attended, mean) {
    return { query, first, scores, pattern, logSumExp, entropy, firstToken, distance, attended, mean };
  }

  function liveSource() {
    const page = Math.random().toString(36).slice(2);
    let sequence = 0;
    // Requests of one channel replace each other: the server drops those that wait. Returns null for
    // a dropped request.
    async function get(name, parameters, channel) {
      const query = new URLSearchParams(parameters);
      if (channel) {
        query.set("channel", `${page}-${channel}`);
        query.set("sequence", ++sequence);
      }
      const answer = await fetch(`${name}?${query}`);
      if (answer.status === 204) return null;
      if (!answer.ok) throw new Error((await answer.text()).trim());
      return answer;
    }
    const place = (run, [layer, head]) => ({ run, layer, head });
    async function row(run, head, query, channel) {
      const answer = await get("row", { ...place(run, head), query }, channel);
      if (!answer) return null;
      const bytes = await answer.arrayBuffer();
      const [first, keys, ...numbers] = new Float64Array(bytes, 0, 8);
      const part = (start, count) => new Float32Array(bytes, 64 + 4 * start, count);
      const pairs = numbers[4];
      return rowOf(query, first, part(0, keys), part(keys, keys), numbers, part(2 * keys, pairs), part(2 * keys + pairs, pairs));
    }
    async function tile(run, head, level, tileRow, column, sum) {
      const answer = await get("tile", { ...place(run, head), level, row: tileRow, column, sum: Number(sum) });
      const values = new Float32Array(await answer.arrayBuffer());
      return { exact: values[0] === 1, cells: values.subarray(1) };
    }
    return {
      live: true,
      info: async () => (await get("info", {})).json(),
      row, tile,
      statistics: async (run, layer) => new Float32Array(await (await get("statistics", { run, layer, head: 0 })).arrayBuffer()),
      overview: async (run, head) => {
        const answer = await get("overview", place(run, head), "overview");
        return answer ? (await answer.json()).done : 0;
      },
      attribution: async ([layer, head], query) => (await get("attribution", { layer, head, query })).json(),
      nearestQuery: (query) => query,
      has: () => true,
      finestLevel: () => 0,
      note: () => "",
    };
  }

  function storedSource(data) {
    const { stored } = data;
    const queries = stored.queries;
    const isHead = (run, head) => (entry) => entry.run === run && entry.layer === head[0] && entry.head === head[1];
    const overviewOf = (run, head) => stored.overviews.find(isHead(run, head));
    const decoded = new Map();  // overview codes
    function row(run, head, query) {
      const found = stored.heads.find(isHead(run, head))?.rows[query];
      if (!found) return null;
      const codes = unpack(found.codes, Uint16Array);
      const pattern = Float32Array.from(codes, (code) => (code ? Math.exp(code * 32 / 65535 - 32) : 0));
      const scores = Float32Array.from(codes, (code) => (code ? code * 32 / 65535 - 32 + found.summary[0] : -Infinity));
      const [weights, exact] = [unpack(found.top_weights, Float32Array), unpack(found.top_scores, Float32Array)];
      unpack(found.top, Uint32Array).forEach((key, i) => {
        pattern[key] = weights[i];
        scores[key] = exact[i];
      });
      return rowOf(query, found.first, scores, pattern, found.summary, unpack(found.attended, Float32Array), unpack(found.mean, Float32Array));
    }
    function tile(run, head, level, tileRow, column, sum) {
      const { level: base, side, codes } = overviewOf(run, head)[sum ? "sum" : "largest"];
      if (!decoded.has(codes)) decoded.set(codes, bytesOf(codes));
      const bytes = decoded.get(codes);
      const cells = new Float32Array(data.tile * data.tile);
      const width = 1 << (level - base);
      for (let i = 0; i < data.tile * width; ++i)
        for (let j = 0; j < data.tile * width; ++j) {
          const y = tileRow * data.tile * width + i, x = column * data.tile * width + j;
          if (y >= side || x >= side) break;
          const code = bytes[y * side + x];
          const value = code ? Math.exp(0.1 * code - 16) : 0;
          const at = (i / width | 0) * data.tile + (j / width | 0);
          cells[at] = sum ? cells[at] + value : Math.max(cells[at], value);
        }
      return { exact: true, cells };
    }
    const names = stored.heads.filter(({ run }) => run === 0).map(({ layer, head }) => `${layer}.${head}`);
    return {
      live: false,
      info: async () => data,
      row: async (...place) => row(...place),
      tile: async (...place) => tile(...place),
      statistics: async (run, layer) => unpack(stored.statistics[run][layer], Float32Array),
      overview: async () => 1,
      attribution: async ([layer, head], query) => stored.attributions.find((entry) => entry.layer === layer && entry.head === head && entry.query === query)?.rows ?? [],
      nearestQuery: (query) => queries.reduce((best, other) => (Math.abs(other - query) < Math.abs(best - query) ? other : best)),
      has: (head) => Boolean(overviewOf(0, head)),
      finestLevel: () => stored.overviews[0].largest.level,
      note: () => `This file holds head${names.length > 1 ? "s" : ""} ${names.join(", ")}, rows of ${queries.length} of ${data.tokens.length} queries, and the matrix in cells of ${1 << stored.overviews[0].largest.level} tokens.`,
    };
  }
})();
