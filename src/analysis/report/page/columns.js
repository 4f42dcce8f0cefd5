"use strict";

// The columns of the table of heads.
const kMainMeasures = ["r_q", "r_k", "explained_variance", "ap_profile_overall", "ap_last20", "ap_drop", "ap_free_overall", "bias_strength",
  "separation_strength", "plane_var_fraction", "sink_0", "previous_token_head", "induction_head", "entropy", "distance_mean"];

// A column: {name, title, meaning, width, value(head)}. A text column also has show(head) and
// choices, the options of its filter: [{title, passes(head)}].
const headColumns = (() => {
  const letter = (name) => (others ? `${name} A` : name);
  function choiceColumn(name, meaning, width, titles, value, more) {
    const choices = titles.map((title, code) => ({ title, passes: (head) => value(head) === code })).filter(({ passes }) => heads.layer.some((_, head) => passes(head)));
    const show = (head) => titles[value(head)] || "";
    return { name, title: name, meaning, width, text: true, value, show, choices, ...more };
  }
  function classColumns() {
    const titles = report.heads.classes.map((kind) => kind.title);
    const bounds = "by the correlations of queries and keys with position";
    const columns = [choiceColumn(letter("class"), `Class of the head ${bounds} on the first principal component.`, 134, titles, (head) => heads.kind[head], { dot: classOf })];
    if (others) {
      const other = (head) => (matchOf(head) < 0 ? 255 : others.kind[matchOf(head)]);
      columns.push(choiceColumn("class B", "Class of the same head in B.", 134, titles, other, { dot: (head) => report.heads.classes[other(head)] || kNoClass }));
      const differs = (head) => (matchOf(head) < 0 ? 2 : Number(other(head) !== heads.kind[head]));
      columns.push(choiceColumn("class differs", "Whether the class of the head differs between A and B.", 84, ["no", "yes", "only in A"], differs));
    }
    if (heads.axisKind)
      columns.push(choiceColumn(letter("class, axis"), `Class of the head ${bounds} along a drift axis that was fitted on other texts.`, 134, titles, (head) => heads.axisKind[head], { dot: axisClassOf }));
    return columns;
  }
  function attentionColumn() {
    const column = choiceColumn("attention", "Keys that the layer attends to: full (all earlier tokens) or sliding:N (the last N tokens).", 84, heads.attentions, (head) => heads.attention[head]);
    if (heads.attentions.filter((kind) => kind.startsWith("sliding")).length > 1)
      column.choices.push({ title: "any sliding", passes: (head) => attentionOf(head).startsWith("sliding") });
    return column;
  }
  function measureColumns(name, parts) {
    const value = (head) => measureOf(name, head), other = (head) => measureOf(name, matchOf(head), others);
    const [title, meaning] = [titleOf(name), meaningOf(name, report.heads.meanings)];
    if (name === "gaussian")
      return [choiceColumn(letter(name), meaning, 72, ["no", "yes"], value)];
    if (!others) return [{ name, title, meaning, width: 68, value }];
    return [
      { name: `${name} (A)`, title: `${title} A`, meaning: `In A: ${meaning}`, width: 86, value },
      { name: `${name} (B)`, title: `${title} B`, meaning: `In B: ${meaning}`, width: 86, value: other },
      { name: `${name} (B-A)`, title: `Δ ${title}`, meaning: `Difference B − A: ${meaning}`, width: 86, difference: true, value: (head) => other(head) - value(head) },
    ].filter((_, part) => parts.includes(part));
  }
  // `parts`: which of A (0), B (1) and their difference (2) a comparison shows.
  return (allMeasures, parts) => [
    choiceColumn("run", "The run: a checkpoint or a model.", 106, report.runs.map(labelOf), (head) => heads.run[head], { fixed: true, only: new Set(heads.run).size > 1 }),
    { name: "layer", title: "layer", meaning: "Number of the layer, from 0.", width: 50, fixed: true, value: (head) => heads.layer[head] },
    { name: "head", title: "head", meaning: "Number of the query head in its layer, from 0.", width: 50, fixed: true, value: (head) => heads.head[head] },
    { ...choiceColumn("position", "Whether the layer rotates queries and keys by position (RoPE) or not (NoPE).", 66, Object.values(kRopes), (head) => heads.rope[head]), only: new Set(heads.rope).size > 1 },
    { ...attentionColumn(), only: heads.attentions.length > 0 },
    ...classColumns(),
    ...(allMeasures ? [...heads.measures.keys()] : kMainMeasures.filter((name) => heads.measures.has(name))).flatMap((name) => measureColumns(name, parts)),
  ].filter((column) => column.only !== false);
})();
