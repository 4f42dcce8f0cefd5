// Score attribution in two passes: choose keys by attention, then split queries and keys.
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
void check_component_memory(const ModelConfig& model, const std::vector<HeadProjector>& inputs) {
  std::uint64_t bytes = 0;
  for (const auto& input : inputs)
    bytes += sizeof(float) * input.positions.size() *
             as_index((input.head.layer * (model.n_heads + 1) + 4) * model.d_head);
  if (bytes > kMostBytes)
    reject(
        "the components of {} heads at the chosen positions would take {}; choose fewer heads, "
        "queries or keys, or leave out effects",
        inputs.size() / 2, format_bytes(bytes));
}

// Maps each position in `pairs` to its token's text, or to its id if there is no tokenizer.
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
  value_or_on_bad_input(decode, false);
  return texts;
}

// Resolves negative positions, which count from the end of the text; sorts the positions without
// duplicates. Throws a bad-input error for positions outside the text. `what`: name of the option.
std::vector<std::int64_t> resolve_positions(const std::vector<std::int64_t>& positions,
                                            std::int64_t length, const char* what) {
  std::set<std::int64_t> resolved;
  for (const auto position : positions) {
    if (position < -length || position >= length)
      reject("{}: {} is outside the text, which has positions 0 to {}", what, position, length - 1);
    resolved.insert(position < 0 ? position + length : position);
  }
  if (resolved.empty()) reject("{}: found none, expected at least one position", what);
  return {resolved.begin(), resolved.end()};
}

constexpr std::string_view kTop = "top:";

// Observer that uses the attention weights of a pass to choose the (query, key) pairs to attribute.
class ScorePairChooser : public Observer {
 public:
  ScorePairChooser(const std::vector<AttentionHead>& heads,
                   const std::vector<std::int64_t>& queries, const KeyChooser& choose)
      : heads_(heads), queries_(queries), choose_(choose), of_head_(heads.size()) {}

  bool wants(HookPoint point) const override {
    return point.stage == Stage::pattern &&
           std::ranges::count(heads_, point.layer, &AttentionHead::layer) > 0;
  }
  std::span<const std::int64_t> score_rows() const override { return queries_; }

  // pattern: (n_heads, queries, keys)
  void observe(HookPoint point, ConstTensorView pattern) override {
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

std::int64_t ComponentVectors::row_at_position(std::int64_t position) const {
  const auto found = std::ranges::lower_bound(positions, position);
  QKSCOPE_ASSERT(found != positions.end() && *found == position);
  return found - positions.begin();
}

Matrix ComponentVectors::components_of_row(std::int64_t row) const {
  Matrix parts(component_count(), values.cols);
  std::copy_n(values.row(row * component_count()), parts.data.size(), parts.data.begin());
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

std::vector<double> HeadDecomposition::apply_softmax(std::vector<double> scores) const {
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
  return multiply_by_transpose(scaled_query_components(i), rotated_key_components(j));
}

Matrix HeadDecomposition::scaled_query_components(std::int64_t i) const {
  Matrix parts = q.components_of_row(i);
  const auto position = q.positions[as_index(i)];
  rotate_rows(parts, position);
  for (double& value : parts.data) value *= score_scale_at(position);
  return parts;
}

Matrix HeadDecomposition::rotated_key_components(std::int64_t j) const {
  Matrix parts = k.components_of_row(j);
  rotate_rows(parts, k.positions[as_index(j)]);
  return parts;
}

double HeadDecomposition::score_scale_at(std::int64_t position) const {
  if (!query_scaling_) return scale_;
  const auto beta = query_scaling_->beta;
  const auto periods = position / query_scaling_->original_max;
  return scale_ * (1 + beta * std::log(1.0 + static_cast<double>(periods)));
}

std::pair<std::int64_t, std::int64_t> HeadDecomposition::pair_dimensions(std::int64_t pair) const {
  if (interleaved_) return {2 * pair, 2 * pair + 1};
  return {pair, pair + rotary_pair_count()};
}

void HeadDecomposition::rotate_rows(Matrix& rows, std::int64_t position) const {
  const auto factor = static_cast<double>(frequencies_.attention_factor);
  for (std::int64_t pair = 0; pair < rotary_pair_count(); ++pair) {
    const auto [a, b] = pair_dimensions(pair);
    // Round the RoPE angle to float32, as the forward pass does.
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
  std::vector<double> terms(as_index(rotary_pair_count()) + 1, 0.0);
  for (std::int64_t pair = 0; pair < rotary_pair_count(); ++pair) {
    const auto [a, b] = pair_dimensions(pair);
    terms[as_index(pair)] = query[a] * key[a] + query[b] * key[b];
  }
  for (auto c = 2 * rotary_pair_count(); c < q.values.cols; ++c) terms.back() += query[c] * key[c];
  return terms;
}

double HeadDecomposition::score_at_distance(std::int64_t i, const double* query, const double* key,
                                            std::int64_t distance) const {
  const auto factor = static_cast<double>(frequencies_.attention_factor);
  double sum = 0;
  for (std::int64_t pair = 0; pair < rotary_pair_count(); ++pair) {
    const auto [a, b] = pair_dimensions(pair);
    const double angle = frequency(pair) * static_cast<double>(distance);
    sum += factor * factor *
           ((query[a] * key[a] + query[b] * key[b]) * std::cos(angle) +
            (query[a] * key[b] - query[b] * key[a]) * std::sin(angle));
  }
  for (auto c = 2 * rotary_pair_count(); c < q.values.cols; ++c) sum += query[c] * key[c];
  return sum * score_scale_at(q.positions[as_index(i)]);
}

std::vector<HeadDecomposition> decompose_heads(const Model& model,
                                               const std::vector<std::int32_t>& tokens,
                                               const std::vector<AttentionHead>& heads,
                                               const std::vector<ScorePair>& pairs,
                                               const ComponentOptions& options) {
  std::vector<HeadProjector> inputs;  // one for the queries, one for the keys of each head
  for (const auto& head : heads) {
    std::set<std::int64_t> queries;
    std::set<std::int64_t> keys;
    for (const auto& pair : pairs)
      if (pair.head == head) {
        queries.insert(pair.query);
        keys.insert(pair.key);
      }
    for (std::int64_t key = 0; options.values && key <= *queries.rbegin(); ++key) keys.insert(key);
    inputs.emplace_back(model, head, true, std::vector(queries.begin(), queries.end()));
    inputs.emplace_back(model, head, false, std::vector(keys.begin(), keys.end()));
  }
  check_component_memory(model.config(), inputs);
  collect_components(model, tokens, options, inputs);
  std::vector<HeadDecomposition> split;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    auto& head = split.emplace_back(model, heads[h], std::ssize(tokens));
    head.q = inputs[2 * h].compute_component_vectors();
    head.k = inputs[2 * h + 1].compute_component_vectors();
    head.v = std::move(inputs[2 * h + 1].values);
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
    if (length == 0) reject("score attribution: the text has no tokens");
    check_head_list(options.heads, model.config());
    const auto queries = resolve_positions(options.queries, length, "queries");
    std::optional<FeatureFile> features;
    if (!options.features.empty())
      features.emplace(options.features, length, model.config().d_model);
    auto state = std::make_shared<ScoreAttribution::State>();
    state->pairs = choose_pairs(model, tokens, options.heads, queries,
                                parse_key_chooser(options.keys, length));
    state->heads = decompose_heads(model, tokens, options.heads, state->pairs,
                                   {.experts = options.experts,
                                    .biases = options.biases,
                                    .values = options.effect,
                                    .features = features ? &*features : nullptr});
    if (features) features->check_all_components_used();
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

KeyChooser parse_key_chooser(const std::string& keys, std::int64_t length) {
  if (keys == "all")
    return [](std::int64_t query, std::span<const float>) {
      std::vector<std::int64_t> every(as_index(query) + 1);
      std::iota(every.begin(), every.end(), 0);
      return every;
    };
  if (keys.starts_with(kTop)) {
    const auto count = parse_integer(keys.substr(kTop.size()), "keys");
    if (count < 1) reject("keys: found '{}', expected top:N with N of 1 or more", keys);
    return [count](std::int64_t, std::span<const float> attention) {
      const auto largest = indices_of_largest(attention.size(), count,
                                              [&](std::size_t key) { return attention[key]; });
      std::vector<std::int64_t> chosen;
      for (const auto key : largest)  // keys outside the window of the layer have no attention
        if (chosen.empty() || attention[key] > 0) chosen.push_back(static_cast<std::int64_t>(key));
      return chosen;
    };
  }
  std::vector<std::int64_t> listed;
  for (const auto& part : split(keys, ',')) listed.push_back(parse_integer(part, "keys"));
  return [positions = resolve_positions(listed, length, "keys")](std::int64_t query,
                                                                 std::span<const float>) {
    if (positions.back() > query)
      reject("keys: key {} comes after query {}; a query attends to itself and earlier keys",
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
  ScorePairChooser chooser(heads, queries, choose);
  const HookPoint one_layer{Stage::pattern, heads.front().layer};
  check_score_size(model.config(), std::span(&one_layer, 1), std::ssize(queries), batch.rows(),
                   "fewer queries");
  model.run(batch, chooser);
  return chooser.pairs();
}

void check_head_list(const std::vector<AttentionHead>& heads, const ModelConfig& model) {
  if (heads.empty()) reject("heads: found none, expected at least one, such as 3.1");
  for (const auto& [layer, head] : heads) {
    if (layer < 0 || layer >= model.n_layers || head < 0 || head >= model.n_heads)
      reject("heads: there is no head {}.{}; the model has layers 0 to {} with heads 0 to {}",
             layer, head, model.n_layers - 1, model.n_heads - 1);
    if (std::ranges::count(heads, AttentionHead{layer, head}) > 1)
      reject("heads: {}.{} is there twice", layer, head);
    if (model.layers[as_index(layer)].cross_attention)
      reject("heads: layer {} attends to images and does not run on text", layer);
    if (const auto& config = model.layers[as_index(layer)]; !config.attends())
      reject("heads: layer {} has no attention ({})", layer, mixer_name(config.mixer));
  }
}

std::vector<AttentionHead> parse_heads(const std::string& text, const ModelConfig& model) {
  return translate_exceptions([&] {
    std::vector<AttentionHead> heads;
    for (const auto& part : split(text, ',')) {
      const auto dot = part.find('.');
      if (dot == std::string::npos)
        reject("heads: found '{}', expected LAYER.HEAD, such as 18.6 or 18.*", part);
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
