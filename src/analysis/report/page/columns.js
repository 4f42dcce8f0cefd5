"use strict";

// Titles and meanings of all columns, and the columns of the table of heads.
const kMeasures = {
  r_q: ["r_q", "Correlation of the queries with position on the first principal component of queries and keys; its sign is made positive."],
  r_q_null: ["r_q chance", "Absolute r_q to expect from queries that are independent of position."],
  r_k: ["r_k", "Correlation of the keys with position on the first principal component, with the sign that makes r_q positive."],
  r_k_null: ["r_k chance", "Absolute r_k to expect from keys that are independent of position."],
  explained_variance: ["PC0 var.", "Fraction of the variance of queries and keys on their first principal component."],
  fisher: ["Fisher", "Squared distance of the means of queries and keys on the first principal component, over the mean of their variances."],
  positional_variance_q: ["pos. var. q", "Fraction of variance of the queries that position explains, summed over the principal components."],
  positional_variance_k: ["pos. var. k", "Fraction of variance of the keys that position explains, summed over the principal components."],
  position_r: ["position r", "Absolute correlation of queries and keys together with position along the drift axis a."],
  position_r_null: ["pos. r chance", "Mean of position_r when positions are shuffled."],
  position_r_p: ["pos. r p", "Fraction of shuffles of the positions that reach position_r (permutation p value)."],
  r_q_a: ["r_q along a", "Correlation of the queries with position along the drift axis a."],
  r_q_a_null: ["r_q_a chance", "Mean absolute r_q_a when positions are shuffled."],
  r_q_a_p: ["r_q_a p", "Fraction of shuffles of the positions that reach r_q_a (permutation p value)."],
  r_k_a: ["r_k along a", "Correlation of the keys with position along the drift axis a."],
  r_k_a_null: ["r_k_a chance", "Mean absolute r_k_a when positions are shuffled."],
  r_k_a_p: ["r_k_a p", "Fraction of shuffles of the positions that reach r_k_a (permutation p value)."],
  alpha_q: ["alpha_q", "Drift of the queries along a, per token."],
  alpha_k: ["alpha_k", "Drift of the keys along a, per token."],
  mu_q_a: ["mu_q_a", "Mean of the queries along the drift axis a."],
  mu_k_a: ["mu_k_a", "Mean of the keys along the drift axis a."],
  bias_strength: ["bias", "Mean change of the product of query and key per token of key position, mu_q_a times alpha_k: above 0 later keys score higher."],
  separation_strength: ["separation", "Fraction of the squared distance between queries and keys that lies along the separation axis b."],
  var_frac_a: ["var. on a", "Fraction of the variance of queries and keys along the drift axis a."],
  var_frac_b: ["var. on b", "Fraction of the variance of queries and keys along the separation axis b."],
  plane_var_fraction: ["plane var.", "Fraction of the variance of queries and keys in the plane of drift a and separation b."],
  omega: ["omega", "Frequency of the sinusoid in position that fits the projection on a best, in radians per token."],
  omega_r_squared: ["omega R²", "Fraction of the variance along a that the sinusoid of frequency omega explains."],
  q_R2_pos: ["R² on pos.", "Fraction of the variance of the queries that a linear regression on position explains."],
  q_beta_norm: ["beta norm", "Length of the slope of the queries in that regression."],
  ap_profile_overall: ["plasticity", "Attention plasticity: how far the preference between two keys depends on the query (0: the same key always wins, 1: either wins equally often), mean over query positions."],
  ap_overall: ["plast. buckets", "Attention plasticity of pairs of keys within one bucket of positions, mean over all buckets."],
  ap_first20: ["first 20 %", "Attention plasticity of queries in the first fifth of the positions."],
  ap_last20: ["last 20 %", "Attention plasticity of queries in the last fifth of the positions."],
  ap_drop: ["drop", "Attention plasticity in the first fifth of the positions minus that in the last."],
  ap_free_overall: ["free plast.", "Attention plasticity counted from the queries themselves, without a Gaussian model of them."],
  ap_free_first20: ["free first", "Model-free attention plasticity of queries in the first fifth of the positions."],
  ap_free_last20: ["free last", "Model-free attention plasticity of queries in the last fifth of the positions."],
  ap_free_drop: ["free drop", "Model-free attention plasticity in the first fifth of the positions minus that in the last."],
  gaussian: ["Gaussian", "Whether plasticity with and without the Gaussian model agree within their standard errors."],
  r_q_axis: ["r_q axis", "Correlation of the queries with position along a drift axis that was fitted on other texts."],
  r_k_axis: ["r_k axis", "Correlation of the keys with position along a drift axis that was fitted on other texts."],
  pc_position: ["pos. PC", "Number of the principal component that carries position in both queries and keys most."],
  pc_position_variance: ["pos. PC var.", "Fraction of the variance on the component pc_position."],
  sink_0: ["sink", "Mean attention on the first token of the text."],
  previous_token_head: ["previous", "Mean attention on the token before the query (previous-token head)."],
  induction_head: ["induction", "Mean attention on the token after an earlier occurrence of the query's token (induction head)."],
  stream: ["stream", "Mean attention on the first tokens of the text and the last tokens before the query together."],
  entropy: ["entropy", "Mean entropy of the attention weights of a query, in nats."],
  distance_mean: ["distance", "Mean distance in tokens from the query to the keys, weighted by attention."],
  perplexity: ["eff. keys", "Effective number of keys of a query: exp(entropy)."],
};
const kMainMeasures = ["r_q", "r_k", "explained_variance", "ap_profile_overall", "ap_last20", "ap_drop", "ap_free_overall", "bias_strength",
  "separation_strength", "plane_var_fraction", "sink_0", "previous_token_head", "induction_head", "entropy", "distance_mean"];

const titleOf = (name) => (kMeasures[name] || [name])[0];
const meaningOf = (name) => (kMeasures[name] || ["", report.heads.meanings[name] || `Column ${name} of the result tables.`])[1];

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
    const [title, meaning] = [titleOf(name), meaningOf(name)];
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
