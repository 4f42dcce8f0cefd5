// The two passes of score attribution: select keys by attention, then collect components at them.
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "analysis/attribution/attribution_state.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/numerics/matrix.h"
#include "base/numerics/products.h"
#include "qkscope/tokenizer.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 30;

// Throws a bad-input error if the collected component vectors would take more than kMostBytes.
void check_component_bytes(const ModelConfig& model, const std::vector<HeadReader>& readers) {
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

// Returns the text of the token at each position in `pairs`, or its id if no tokenizer is readable.
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

// Converts negative positions, which count from the end of the text, sorts and removes duplicates.
// Throws a bad-input error for positions outside the text. `what` names the option in messages.
std::vector<std::int64_t> resolve_positions(const std::vector<std::int64_t>& positions,
                                            std::int64_t length, const char* what) {
  std::set<std::int64_t> resolved;
  for (const auto position : positions) {
    if (position < -length || position >= length)
      bad_input("{}: {} is outside the text, which has positions 0 to {}", what, position,
                length - 1);
    resolved.insert(position < 0 ? position + length : position);
  }
  if (resolved.empty()) bad_input("{}: found none, expected at least one position", what);
  return {resolved.begin(), resolved.end()};
}

constexpr std::string_view kTop = "top:";

// Observer that reads the attention scores and patterns of the selected queries and heads.
class AttentionReader : public Observer {
 public:
  AttentionReader(const std::vector<AttentionHead>& heads, const std::vector<std::int64_t>& queries,
                  const KeyChooser& choose)
      : heads_(heads), queries_(queries), choose_(choose), of_head_(heads.size()) {}

  bool wants(HookPoint point) const override {
    return point.stage == Stage::pattern &&
           std::ranges::count(heads_, point.layer, &AttentionHead::layer) > 0;
  }
  std::span<const std::int64_t> score_rows() const override { return queries_; }

  // pattern: (n_heads, queries, keys)
  void see(HookPoint point, ConstTensorView pattern) override {
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      if (heads_[h].layer != point.layer) continue;
      const float* row = pattern.data<float>() + heads_[h].head * pattern.dim(1) * pattern.dim(2);
      for (const auto query : queries_) {
        for (const auto key : choose_(query, {row, as_index(query) + 1}))
          of_head_[h].push_back({.head = heads_[h],
                                 .query = query,
                                 .key = key,
                                 .attention = static_cast<double>(row[key])});
        row += pattern.dim(2);
      }
    }
  }

  std::vector<ScorePair> pairs() const {
    std::vector<ScorePair> all;
    for (const auto& pairs : of_head_) all.insert(all.end(), pairs.begin(), pairs.end());
    return all;
  }

 private:
  const std::vector<AttentionHead>& heads_;
  const std::vector<std::int64_t>& queries_;
  const KeyChooser& choose_;
  std::vector<std::vector<ScorePair>> of_head_;
};

}  // namespace

std::int64_t SplitVectors::row_at_position(std::int64_t position) const {
  const auto found = std::ranges::lower_bound(positions, position);
  QKSCOPE_ASSERT(found != positions.end() && *found == position);
  return found - positions.begin();
}

Matrix SplitVectors::components_of_row(std::int64_t row) const {
  Matrix parts(components(), values.cols);
  std::copy_n(values.row(row * components()), parts.data.size(), parts.data.begin());
  return parts;
}

std::vector<double> row_sums(const Matrix& matrix) {
  return multiply(matrix, std::vector<double>(as_index(matrix.cols), 1.0));
}

std::vector<double> column_sums(const Matrix& matrix) {
  std::vector<double> sums(as_index(matrix.cols), 0.0);
  for (std::int64_t i = 0; i < matrix.rows; ++i) add_scaled(1, {matrix.row(i), sums.size()}, sums);
  return sums;
}

HeadDecomposition::HeadDecomposition(const Model& model, AttentionHead head, std::int64_t length)
    : head_(head),
      scale_(model.config().score_scale(head.layer)),
      softcap_(model.config().attention_softcap),
      window_(model.config().layers[as_index(head.layer)].window),
      query_scaling_(model.config().query_scaling),
      interleaved_(model.config().rope_interleaved) {
  const auto& sinks = model.weights().layers[as_index(head.layer)].sinks;
  if (!sinks.empty()) sink_ = static_cast<double>(sinks[as_index(head.head)]);
  const auto* rope = model.config().rope(head.layer);
  if (rope != nullptr) frequencies_ = rope_frequencies(*rope, length);
  if (rope != nullptr && rope->reversed)
    for (float& inverse : frequencies_.inverse) inverse = -inverse;
}

double HeadDecomposition::score(std::int64_t i, std::int64_t j) const {
  const auto d = q.rotated.dim(1);
  const float* query = q.rotated.data<float>() + i * d;
  const std::vector<double> key(k.rotated.data<float>() + j * d,
                                k.rotated.data<float>() + (j + 1) * d);
  return scale_ * dot(std::span(query, key.size()), key);
}

std::vector<double> HeadDecomposition::attention(std::vector<double> scores) const {
  const auto query = std::ssize(scores) - 1;
  const auto visible =
      scores.begin() + (window_ > 0 ? std::max<std::int64_t>(0, query - window_ + 1) : 0);
  std::fill(scores.begin(), visible, -std::numeric_limits<double>::infinity());
  if (softcap_ > 0)
    for (auto& score : std::span(visible, scores.end()))
      score = softcap_ * std::tanh(score / softcap_);
  const double highest = std::max(*std::ranges::max_element(scores), sink_.value_or(scores.back()));
  double sum = sink_ ? std::exp(*sink_ - highest) : 0.0;
  for (double& score : scores) sum += score = std::exp(score - highest);
  for (double& score : scores) score /= sum;
  return scores;
}

Matrix HeadDecomposition::contributions(std::int64_t i, std::int64_t j) const {
  return multiply_transposed(scaled_queries(i), rotated_keys(j));
}

Matrix HeadDecomposition::scaled_queries(std::int64_t i) const {
  Matrix parts = q.components_of_row(i);
  const auto position = q.positions[as_index(i)];
  rotate(parts, position);
  for (double& value : parts.data) value *= scale_at(position);
  return parts;
}

Matrix HeadDecomposition::rotated_keys(std::int64_t j) const {
  Matrix parts = k.components_of_row(j);
  rotate(parts, k.positions[as_index(j)]);
  return parts;
}

double HeadDecomposition::scale_at(std::int64_t position) const {
  if (!query_scaling_) return scale_;
  const auto beta = query_scaling_->beta;
  const auto original = query_scaling_->original_max;
  return scale_ * (1 + beta * std::log(1.0 + static_cast<double>(position / original)));
}

std::pair<std::int64_t, std::int64_t> HeadDecomposition::dimensions(std::int64_t pair) const {
  if (interleaved_) return {2 * pair, 2 * pair + 1};
  return {pair, pair + rotary_pairs()};
}

void HeadDecomposition::rotate(Matrix& rows, std::int64_t position) const {
  const auto factor = static_cast<double>(frequencies_.attention_factor);
  for (std::int64_t pair = 0; pair < rotary_pairs(); ++pair) {
    const auto [a, b] = dimensions(pair);
    // The forward pass computes RoPE angles in float32; round them in the same way.
    const float angle = static_cast<float>(position) * frequencies_.inverse[as_index(pair)];
    const double cosine = factor * std::cos(static_cast<double>(angle));
    const double sine = factor * std::sin(static_cast<double>(angle));
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      const double x = rows(row, a);
      const double y = rows(row, b);
      rows(row, a) = x * cosine - y * sine;
      rows(row, b) = y * cosine + x * sine;
    }
  }
}

std::vector<double> HeadDecomposition::split_score_by_rotary_pair(const double* query,
                                                                  const double* key) const {
  std::vector<double> terms(as_index(rotary_pairs()) + 1, 0.0);
  for (std::int64_t pair = 0; pair < rotary_pairs(); ++pair) {
    const auto [a, b] = dimensions(pair);
    terms[as_index(pair)] = query[a] * key[a] + query[b] * key[b];
  }
  for (auto c = 2 * rotary_pairs(); c < q.values.cols; ++c) terms.back() += query[c] * key[c];
  return terms;
}

double HeadDecomposition::score_at_distance(std::int64_t i, const double* query, const double* key,
                                            std::int64_t distance) const {
  const auto factor = static_cast<double>(frequencies_.attention_factor);
  double sum = 0;
  for (std::int64_t pair = 0; pair < rotary_pairs(); ++pair) {
    const auto [a, b] = dimensions(pair);
    const double angle = frequency(pair) * static_cast<double>(distance);
    sum += factor * factor *
           ((query[a] * key[a] + query[b] * key[b]) * std::cos(angle) +
            (query[a] * key[b] - query[b] * key[a]) * std::sin(angle));
  }
  for (auto c = 2 * rotary_pairs(); c < q.values.cols; ++c) sum += query[c] * key[c];
  return sum * scale_at(q.positions[as_index(i)]);
}

std::vector<HeadDecomposition> decompose_heads(const Model& model,
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
  check_component_bytes(model.config(), readers);
  collect_components(model, tokens, options, readers);
  std::vector<HeadDecomposition> split;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    auto& head = split.emplace_back(model, heads[h], std::ssize(tokens));
    head.q = readers[2 * h].split_vectors();
    head.k = readers[2 * h + 1].split_vectors();
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
  return translate_exceptions([&] {
    const auto length = std::ssize(tokens);
    if (length == 0) bad_input("score attribution: the text has no tokens");
    check_head_list(options.heads, model.config());
    const auto queries = resolve_positions(options.queries, length, "queries");
    std::optional<FeatureFile> features;
    if (!options.features.empty())
      features.emplace(options.features, length, model.config().d_model);
    auto state = std::make_shared<ScoreAttribution::State>();
    state->pairs =
        choose_pairs(model, tokens, options.heads, queries, parse_key_choice(options.keys, length));
    state->heads = decompose_heads(model, tokens, options.heads, state->pairs,
                                   {.experts = options.experts,
                                    .biases = options.biases,
                                    .values = options.effect,
                                    .features = features ? &*features : nullptr});
    if (features) features->check_all_used();
    state->label = model_label(options.label, model);
    state->text_name = options.text_name;
    state->tokens = token_texts(model, tokens, state->pairs);
    state->furthest = std::max(length, model.config().max_positions) - 1;
    parallel_for(std::ssize(state->pairs), [&](std::int64_t i) {
      auto& pair = state->pairs[as_index(i)];
      const auto& head = state->head(as_index(i));
      pair.score = head.score(head.q.row_at_position(pair.query), head.k.row_at_position(pair.key));
      pair.residual = pair.score;
      for (const double value : state->contributions(as_index(i)).data) {
        pair.residual -= value;
        pair.magnitude += std::fabs(value);
      }
    });
    return ScoreAttribution(std::move(state));
  });
}

KeyChooser parse_key_choice(const std::string& keys, std::int64_t length) {
  if (keys == "all")
    return [](std::int64_t query, std::span<const float>) {
      std::vector<std::int64_t> every(as_index(query) + 1);
      std::iota(every.begin(), every.end(), 0);
      return every;
    };
  if (keys.starts_with(kTop)) {
    const auto count = parse_integer(keys.substr(kTop.size()), "keys");
    if (count < 1) bad_input("keys: found '{}', expected top:N with N of 1 or more", keys);
    return [count](std::int64_t, std::span<const float> attention) {
      const auto largest =
          largest_indices(attention.size(), count, [&](std::size_t key) { return attention[key]; });
      std::vector<std::int64_t> chosen;
      for (const auto key : largest)  // keys outside the window of the layer have no attention
        if (chosen.empty() || attention[key] > 0) chosen.push_back(static_cast<std::int64_t>(key));
      return chosen;
    };
  }
  std::vector<std::int64_t> listed;
  for (const auto& part : split(keys, ',')) listed.push_back(parse_integer(part, "keys"));
  const auto positions = resolve_positions(listed, length, "keys");
  return [positions](std::int64_t query, std::span<const float>) {
    if (positions.back() > query)
      bad_input("keys: key {} comes after query {}; a query attends to itself and earlier keys",
                positions.back(), query);
    return positions;
  };
}

std::vector<ScorePair> choose_pairs(const Model& model, const std::vector<std::int32_t>& tokens,
                                    const std::vector<AttentionHead>& heads,
                                    const std::vector<std::int64_t>& queries,
                                    const KeyChooser& choose) {
  Batch batch;
  batch.add(tokens);
  AttentionReader reader(heads, queries, choose);
  const HookPoint one_layer{Stage::pattern, heads.front().layer};
  check_score_size(model.config(), std::span(&one_layer, 1), std::ssize(queries), batch.rows(),
                   "fewer queries");
  model.run(batch, reader);
  return reader.pairs();
}

void check_head_list(const std::vector<AttentionHead>& heads, const ModelConfig& model) {
  if (heads.empty()) bad_input("heads: found none, expected at least one, such as 3.1");
  for (const auto& [layer, head] : heads) {
    if (layer < 0 || layer >= model.n_layers || head < 0 || head >= model.n_heads)
      bad_input("heads: there is no head {}.{}; the model has layers 0 to {} with heads 0 to {}",
                layer, head, model.n_layers - 1, model.n_heads - 1);
    if (std::ranges::count(heads, AttentionHead{layer, head}) > 1)
      bad_input("heads: {}.{} is there twice", layer, head);
    if (model.layers[as_index(layer)].cross_attention)
      bad_input("heads: layer {} attends to images and does not run on text", layer);
    if (const auto& config = model.layers[as_index(layer)]; !config.attends())
      bad_input("heads: layer {} has no attention ({})", layer, mixer_name(config.mixer));
  }
}

std::vector<AttentionHead> parse_heads(const std::string& text, const ModelConfig& model) {
  return translate_exceptions([&] {
    std::vector<AttentionHead> heads;
    for (const auto& part : split(text, ',')) {
      const auto dot = part.find('.');
      if (dot == std::string::npos)
        bad_input("heads: found '{}', expected LAYER.HEAD, such as 18.6 or 18.*", part);
      const auto layer = parse_integer(part.substr(0, dot), "heads");
      const bool whole = part.substr(dot + 1) == "*";
      const auto first = whole ? 0 : parse_integer(part.substr(dot + 1), "heads");
      for (auto h = first; h < (whole ? model.n_heads : first + 1); ++h)
        if (std::ranges::count(heads, AttentionHead{layer, h}) == 0) heads.push_back({layer, h});
    }
    check_head_list(heads, model);
    return heads;
  });
}

}  // namespace qkscope
