// Two passes of score attribution: attention rows choose the keys, then the components at the
// chosen positions are collected.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <set>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/core/unless_bad_input.h"
#include "qkscope/tokenizer.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 30;

// Throws a bad-input error if the components of all requests would exceed kMostBytes.
void check_size(const ModelConfig& model, const std::vector<SplitRequest>& requests) {
  std::uint64_t floats = 0;
  for (const auto& [head, queries, keys] : requests)
    floats += static_cast<std::uint64_t>(std::ssize(queries) + std::ssize(keys)) *
              static_cast<std::uint64_t>(head.layer * (model.n_heads + 1) + 4) *
              static_cast<std::uint64_t>(model.d_head);
  if (floats * sizeof(float) > kMostBytes)
    bad_input(
        "the components of {} heads at the chosen positions would take {}; choose fewer heads, "
        "queries or keys, or leave out effects",
        requests.size(), format_bytes(floats * sizeof(float)));
}

// Returns nullopt for a model without a tokenizer that can be read, such as a GGUF file of weights
// alone: tables then show token ids.
std::optional<Tokenizer> tokenizer_of(const Model& model) {
  if (!has_tokenizer(model.folder())) return std::nullopt;
  return unless_bad_input([&] { return std::optional(Tokenizer::load(model.folder())); },
                          std::optional<Tokenizer>());
}

std::map<std::int64_t, std::string> token_texts(const Model& model,
                                                const std::vector<std::int32_t>& tokens,
                                                const std::vector<ChosenPair>& pairs) {
  const auto tokenizer = tokenizer_of(model);
  std::map<std::int64_t, std::string> texts;
  for (const auto& pair : pairs)
    for (const auto position : {pair.query, pair.key}) {
      const auto id = tokens[as_index(position)];
      texts[position] = tokenizer ? replace_invalid_utf8(tokenizer->decode(std::span(&id, 1)))
                                  : std::to_string(id);
    }
  return texts;
}

HeadOutput head_output(const Model& model, AttentionHead head, Tensor values) {
  const auto& config = model.config();
  const auto& sinks = model.weights().layers[as_index(head.layer)].sinks;
  return {.values = std::move(values),
          .softcap = config.attention_softcap,
          .window = config.layers[as_index(head.layer)].window,
          .has_sink = !sinks.empty(),
          .sink = sinks.empty() ? 0.0 : static_cast<double>(sinks[as_index(head.head)])};
}

void add_pairs(const Model& model, const std::vector<ChosenPair>& pairs,
               const std::vector<SplitHead>& heads, ScoreAttribution::State& state) {
  for (const auto& [h, query, key, attention] : pairs) {
    const auto& head = heads[h];
    const auto i = head.decomposition.q.row_of(query);
    const auto j = head.decomposition.k.row_of(key);
    ScorePair pair{head.decomposition.head(), query, key};
    pair.score = head.score(model.config(), i, j);
    pair.attention = attention;
    pair.residual = pair.score;
    for (const double value : head.decomposition.contributions(i, j).data) {
      pair.residual -= value;
      pair.magnitude += std::fabs(value);
    }
    state.pairs.push_back(pair);
    state.head_of_pair.push_back(h);
  }
}

std::shared_ptr<const ScoreAttribution::State> attribute(const Model& model,
                                                         const std::vector<std::int32_t>& tokens,
                                                         const AttributionOptions& options) {
  const auto length = std::ssize(tokens);
  if (length == 0) bad_input("score attribution: the text has no tokens");
  check_heads(options.heads, model.config());
  const auto queries = resolve_positions(options.queries, length, "queries");
  std::optional<FeatureFile> features;
  if (!options.features.empty()) features.emplace(options.features, length, model.config().d_model);
  const auto pairs =
      choose_pairs(model, tokens, options.heads, queries, parse_key_choice(options.keys, length));
  auto heads = split_heads(model, tokens, make_requests(options.heads, pairs, options.effect),
                           {.experts = options.experts,
                            .biases = options.biases,
                            .values = options.effect,
                            .features = features ? &*features : nullptr});
  if (features) features->check_all_used();
  auto state = std::make_shared<ScoreAttribution::State>();
  state->label = model_label(options.label, model);
  state->text_name = options.text_name;
  state->tokens = token_texts(model, tokens, pairs);
  state->furthest = std::max(length, model.config().max_positions) - 1;
  add_pairs(model, pairs, heads, *state);
  for (auto& head : heads) {
    if (options.effect)
      state->outputs.push_back(
          head_output(model, head.decomposition.head(), std::move(head.values)));
    state->heads.push_back(std::move(head.decomposition));
  }
  return state;
}

}  // namespace

std::vector<SplitRequest> make_requests(const std::vector<AttentionHead>& heads,
                                        const std::vector<ChosenPair>& pairs, bool whole_rows) {
  std::vector<SplitRequest> requests;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    std::set<std::int64_t> queries;
    std::set<std::int64_t> keys;
    for (const auto& pair : pairs)
      if (pair.head == h) {
        queries.insert(pair.query);
        keys.insert(pair.key);
      }
    std::vector<std::int64_t> all_keys(keys.begin(), keys.end());
    if (whole_rows) {
      all_keys.resize(as_index(*queries.rbegin()) + 1);
      std::iota(all_keys.begin(), all_keys.end(), 0);
    }
    requests.push_back({heads[h], {queries.begin(), queries.end()}, std::move(all_keys)});
  }
  return requests;
}

double SplitHead::score(const ModelConfig& model, std::int64_t i, std::int64_t j) const {
  const auto d = rotated_q.dim(1);
  const float* query = rotated_q.data<float>() + i * d;
  const float* key = rotated_k.data<float>() + j * d;
  double sum = 0;
  for (std::int64_t c = 0; c < d; ++c)
    sum += static_cast<double>(query[c]) * static_cast<double>(key[c]);
  return sum * model.score_scale(decomposition.head().layer);
}

std::vector<SplitHead> split_heads(const Model& model, const std::vector<std::int32_t>& tokens,
                                   const std::vector<SplitRequest>& requests,
                                   const ComponentCollector::Options& options) {
  check_size(model.config(), requests);
  std::vector<HeadReader> readers;
  for (const auto& [head, queries, keys] : requests) {
    readers.emplace_back(model, head, HeadReader::Side::query, queries);
    readers.emplace_back(model, head, HeadReader::Side::key, keys);
  }
  Batch batch;
  batch.add(tokens);
  ComponentCollector collector(model, readers, options);
  model.run(batch, collector);
  std::vector<SplitHead> heads;
  for (std::size_t h = 0; h < requests.size(); ++h) {
    auto& q = readers[2 * h];
    auto& k = readers[2 * h + 1];
    SplitHead head{HeadDecomposition(model.config(), requests[h].head, std::ssize(tokens)),
                   std::move(q.rotated), std::move(k.rotated), std::move(k.values)};
    head.decomposition.q = q.split();
    head.decomposition.k = k.split();
    heads.push_back(std::move(head));
  }
  return heads;
}

std::string model_label(const std::string& name, const Model& model) {
  if (!name.empty()) return name;
  const std::filesystem::path folder(model.folder());
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

ScoreAttribution attribute_scores(const Model& model, const std::vector<std::int32_t>& tokens,
                                  const AttributionOptions& options) {
  return translate_exceptions([&] { return ScoreAttribution(attribute(model, tokens, options)); });
}

}  // namespace qkscope
