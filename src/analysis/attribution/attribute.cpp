// Two passes of score attribution: attention rows choose the keys, then the components at the
// chosen positions are collected.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "qkscope/tokenizer.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 30;

// Throws a bad-input error if the collected component vectors would take more than kMostBytes.
void check_size(const ModelConfig& model, const std::vector<HeadReader>& readers) {
  std::uint64_t bytes = 0;
  for (const auto& reader : readers)
    bytes += sizeof(float) * reader.positions.size() *
             as_index((reader.head.layer * (model.n_heads + 1) + 4) * model.d_head);
  if (bytes > kMostBytes)
    bad_input(
        "the components of {} heads at the chosen positions would take {}; choose fewer heads, "
        "queries or keys, or leave out effects",
        readers.size() / 2, format_bytes(bytes));
}

// Returns the text of every token in the pairs, by position, or token ids if the model has no
// readable tokenizer (a GGUF file with weights only).
std::map<std::int64_t, std::string> token_texts(const Model& model,
                                                const std::vector<std::int32_t>& tokens,
                                                const std::vector<ScorePair>& pairs) {
  std::map<std::int64_t, std::string> texts;
  for (const auto& pair : pairs)
    for (const auto position : {pair.query, pair.key})
      texts[position] = std::to_string(tokens[as_index(position)]);
  const auto decode = [&] {
    const auto tokenizer = Tokenizer::load(model.folder());
    for (auto& [position, text] : texts)
      text = replace_invalid_utf8(tokenizer.decode(std::span(&tokens[as_index(position)], 1)));
    return true;
  };
  fallback_on_bad_input(decode, false);
  return texts;
}

// Sets score, residual and magnitude of all pairs.
void set_scores(ScoreAttribution::State& state) {
  parallel_for(std::ssize(state.pairs), [&](std::int64_t i) {
    auto& pair = state.pairs[as_index(i)];
    const auto& head = state.head(as_index(i));
    pair.score = head.score(head.q.row_of(pair.query), head.k.row_of(pair.key));
    pair.residual = pair.score;
    for (const double value : state.contributions(as_index(i)).data) {
      pair.residual -= value;
      pair.magnitude += std::fabs(value);
    }
  });
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
  auto state = std::make_shared<ScoreAttribution::State>();
  state->pairs =
      choose_pairs(model, tokens, options.heads, queries, parse_key_choice(options.keys, length));
  state->heads = split_heads(model, tokens, options.heads, state->pairs,
                             {.experts = options.experts,
                              .biases = options.biases,
                              .values = options.effect,
                              .features = features ? &*features : nullptr});
  if (features) features->check_all_used();
  state->label = model_label(options.label, model);
  state->text_name = options.text_name;
  state->tokens = token_texts(model, tokens, state->pairs);
  state->furthest = std::max(length, model.config().max_positions) - 1;
  set_scores(*state);
  return state;
}

}  // namespace

std::vector<HeadDecomposition> split_heads(const Model& model,
                                           const std::vector<std::int32_t>& tokens,
                                           const std::vector<AttentionHead>& heads,
                                           const std::vector<ScorePair>& pairs,
                                           const ComponentOptions& options) {
  std::vector<HeadReader> readers;  // of the queries and of the keys of every head
  for (const auto& head : heads) {
    std::set<std::int64_t> queries;
    std::set<std::int64_t> keys;
    for (const auto& pair : pairs)
      if (pair.head == head) {
        queries.insert(pair.query);
        keys.insert(pair.key);
      }
    for (std::int64_t key = 0; options.values && key <= *queries.rbegin(); ++key) keys.insert(key);
    readers.emplace_back(model, head, true, std::vector(queries.begin(), queries.end()));
    readers.emplace_back(model, head, false, std::vector(keys.begin(), keys.end()));
  }
  check_size(model.config(), readers);
  collect_components(model, tokens, options, readers);
  std::vector<HeadDecomposition> split;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    auto& head = split.emplace_back(model, heads[h], std::ssize(tokens));
    head.q = readers[2 * h].split();
    head.k = readers[2 * h + 1].split();
    head.v = std::move(readers[2 * h + 1].values);
  }
  return split;
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
