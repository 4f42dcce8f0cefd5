#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "capture/stats_run/head_sums.h"
#include "capture/stats_run/pattern_rows.h"
#include "qkscope/captures.h"
#include "qkscope/experimental/heads.h"
#include "qkscope/forward.h"
#include "qkscope/tokenizer.h"

namespace qkscope {
namespace {

using Texts = std::vector<std::vector<std::int32_t>>;
using Measure = HeadScoreOptions::Measure;

constexpr std::int64_t kBatchRows = 4096;  // texts run together up to so many tokens
constexpr const char* kPatterns[] = {"previous_token_head", "duplicate_token_head",
                                     "induction_head"};
constexpr const char* kNearColumns[] = {"sink_0", "sink_4", "self", "prev", "dup", "ind", "top1"};
constexpr const char* kAllColumns[] = {"entropy", "entropy_relative", "perplexity",
                                       "distance_mean"};

void check_texts(const Texts& texts) {
  if (texts.empty()) bad_input("scores of heads: there is no text");
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i].empty()) bad_input("scores of heads: text {} has no tokens", i);
}

void check_pattern(std::size_t tokens, const std::vector<float>& pattern) {
  if (pattern.size() != tokens * tokens)
    bad_input("pattern: found {} numbers, expected {} x {}: a row and a column for every token",
              pattern.size(), tokens, tokens);
  for (std::size_t query = 0; query < tokens; ++query)
    for (std::size_t key = 0; key < tokens; ++key) {
      const float value = pattern[query * tokens + key];
      if (!(value >= 0.0F && value <= 1.0F))
        bad_input("pattern: query {}, key {}: found {}, expected a number from 0 to 1", query, key,
                  value);
      if (key > query && value != 0.0F)
        bad_input("pattern: query {}, key {}: found {}, expected 0: a query sees no later key",
                  query, key, value);
    }
}

StatisticsSettings settings_for(const Texts& texts, const HeadScoreOptions& options) {
  StatisticsSettings settings;
  settings.near_keys = true;
  settings.all_keys = options.all_keys;
  settings.buckets = 1;
  for (const auto& text : texts)
    settings.bucket_size = std::max<std::int64_t>(settings.bucket_size, std::ssize(text));
  return settings;
}

// Texts from `begin` on that run together.
std::size_t batch_end(const Texts& texts, std::size_t begin) {
  std::int64_t rows = 0;
  auto end = begin;
  while (end < texts.size() && (end == begin || rows + std::ssize(texts[end]) <= kBatchRows))
    rows += std::ssize(texts[end++]);
  return end;
}

// A column of the table: its name, and where its sum is.
struct HeadColumn {
  std::string name;
  std::size_t place;
};

std::size_t place_of(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  QKSCOPE_ASSERT(found != names.end());
  return as_index(found - names.begin());
}

std::vector<HeadColumn> score_columns(const StatisticsSettings& settings,
                                      const HeadScoreOptions& options) {
  const auto names = document_column_names(settings);
  std::vector<HeadColumn> columns;
  for (const char* pattern : kPatterns)
    columns.push_back(
        {pattern,
         place_of(names, fmt::format("{}{}{}{}", pattern, options.exclude_bos ? "_nobos" : "",
                                     options.exclude_current_token ? "_nocur" : "",
                                     options.measure == Measure::abs ? "_abs" : ""))});
  return columns;
}

std::vector<HeadColumn> mean_columns(const StatisticsSettings& settings) {
  const auto names = column_names(settings);
  std::vector<HeadColumn> columns;
  for (const char* name : kNearColumns) columns.push_back({name, place_of(names, name)});
  if (settings.all_keys)
    for (const char* name : kAllColumns) columns.push_back({name, place_of(names, name)});
  return columns;
}

Table declare(const std::vector<HeadColumn>& scores, const std::vector<HeadColumn>& means) {
  using Type = Table::Type;
  Table table;
  table.column("model", Type::text);
  for (const char* name : {"layer", "head", "k_head"}) table.column(name, Type::integer);
  table.column("rope", Type::text).column("attention", Type::text);
  for (const char* name : {"texts", "tokens"}) table.column(name, Type::integer);
  for (const auto* columns : {&scores, &means})
    for (const auto& column : *columns) table.column(column.name, Type::real);
  return table;
}

std::string label_of(const Model& model, const HeadScoreOptions& options) {
  if (!options.label.empty()) return options.label;
  const std::filesystem::path folder(model.folder());
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

// Returns the window of a layer, or nullopt for full attention.
std::optional<std::int32_t> window_of(const ModelConfig& config, std::int64_t layer) {
  const auto window = config.layers[as_index(layer)].window;
  return window > 0 ? std::optional(static_cast<std::int32_t>(window)) : std::nullopt;
}

Table head_table(const Model& model, const Texts& texts, const HeadScoreOptions& options,
                 const HeadSums& sums) {
  const auto settings = settings_for(texts, options);
  const auto scores = score_columns(settings, options);
  const auto means = mean_columns(settings);
  const auto& config = model.config();
  std::int64_t tokens = 0;
  for (const auto& text : texts) tokens += std::ssize(text);
  Table table = declare(scores, means);
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    if (!sums.has(layer)) continue;
    for (std::int64_t head = 0; head < config.n_heads; ++head) {
      std::vector<Table::Cell> cells = {label_of(model, options),
                                        layer,
                                        head,
                                        head / config.heads_per_kv_head(),
                                        std::string(config.rope(layer) ? "rope" : "nope"),
                                        attention_name(window_of(config, layer)),
                                        std::int64_t{std::ssize(texts)},
                                        tokens};
      for (const auto& column : scores)
        cells.emplace_back(sums.value(layer, head, column.place) /
                           static_cast<double>(texts.size()));
      for (const auto& column : means)
        cells.emplace_back(sums.sum(layer, head, column.place) / static_cast<double>(tokens));
      table.add(std::move(cells));
    }
  }
  return table;
}

// What the score of one head is made of.
struct PatternSums {
  double on_pattern = 0;
  double all = 0;
  double difference = 0;
  std::int64_t rows = 0;

  void add(std::int64_t row, const float* found, const float* wanted,
           const HeadScoreOptions& options) {
    ++rows;
    const auto end = options.exclude_current_token ? row : row + 1;
    for (std::int64_t key = options.exclude_bos ? 1 : 0; key < end; ++key) {
      const auto p = static_cast<double>(found[key]);
      const auto w = static_cast<double>(wanted[key]);
      on_pattern += p * w;
      all += p;
      difference += std::fabs(p - w);
    }
  }

  double score(Measure measure) const {
    if (rows == 0) return kNan;
    return measure == Measure::mul ? on_pattern / all
                                   : abs_pattern_score(difference, static_cast<double>(rows));
  }
};

// Sum of -log softmax(logits)[next] over the rows; logits (rows, vocabulary).
double summed_loss(ConstTensorView logits, std::span<const std::int32_t> next) {
  const auto vocabulary = logits.shape()[1];
  double sum = 0;
  for (std::size_t row = 0; row < next.size(); ++row) {
    const float* values = logits.data<float>() + as_index(vocabulary) * row;
    const double highest = *std::max_element(values, values + vocabulary);
    double total = 0;
    for (std::int64_t i = 0; i < vocabulary; ++i)
      total += std::exp(static_cast<double>(values[i]) - highest);
    sum += std::log(total) + highest - static_cast<double>(values[next[row]]);
  }
  return sum;
}

}  // namespace

std::vector<std::vector<std::int32_t>> repeated_texts(const Model& model,
                                                      const RepeatedTextOptions& options) {
  return translate_exceptions([&] {
    if (options.texts < 1 || options.tokens < 2)
      bad_input("repeated texts: found {} texts of {} tokens, expected at least 1 of 2",
                options.texts, options.tokens);
    std::vector<std::int32_t> prefix;
    if (options.bos && has_tokenizer(model.folder()))
      prefix = Tokenizer::load(model.folder()).prefix_ids();
    std::mt19937_64 random(options.seed);
    const auto vocabulary = static_cast<std::uint64_t>(model.config().vocab_size);
    Texts texts;
    for (std::int64_t i = 0; i < options.texts; ++i) {
      std::vector<std::int32_t> once(as_index(options.tokens));
      for (auto& id : once) id = static_cast<std::int32_t>(random() % vocabulary);
      auto& text = texts.emplace_back(prefix);
      for (int copy = 0; copy < 2; ++copy) text.insert(text.end(), once.begin(), once.end());
    }
    return texts;
  });
}

double second_copy_loss(const Model& model, const std::vector<std::vector<std::int32_t>>& texts,
                        std::int64_t tokens) {
  return translate_exceptions([&] {
    check_texts(texts);
    double sum = 0;
    for (const auto& text : texts) {  // one at a time: logits are (tokens, vocabulary)
      const auto length = std::ssize(text);
      if (tokens < 2 || tokens >= length)
        bad_input("loss of the second copy: found {} tokens of a text of {}, expected 2 to {}",
                  tokens, length, length - 1);
      Batch batch;
      batch.add(text);
      std::vector<std::int64_t> rows(as_index(tokens - 1));
      std::iota(rows.begin(), rows.end(), length - tokens);
      Collector logits({{Stage::logits, -1}}, rows);
      model.run(batch, logits);
      sum += summed_loss(logits.kept().front().activation.view(),
                         std::span(text).last(as_index(tokens - 1)));
    }
    return sum / static_cast<double>((tokens - 1) * std::ssize(texts));
  });
}

Table score_heads(const Model& model, const std::vector<std::vector<std::int32_t>>& texts,
                  const HeadScoreOptions& options) {
  return translate_exceptions([&] {
    check_texts(texts);
    if (model.config().has_sinks())
      bad_input(
          "scores of heads: they take a query's weights to sum to one, and with the learned sinks "
          "of this {} model they do not; score a pattern of your own instead",
          model.config().family);
    HeadSums sums(model.config(), settings_for(texts, options));
    for (std::size_t begin = 0; begin < texts.size();) {
      const auto end = batch_end(texts, begin);
      sums.run(model, std::span(texts).subspan(begin, end - begin));
      begin = end;
      if (options.on_batch) options.on_batch(static_cast<std::int64_t>(end));
    }
    return head_table(model, texts, options, sums);
  });
}

std::vector<double> score_pattern(const Model& model, const std::vector<std::int32_t>& text,
                                  const std::vector<float>& pattern,
                                  const HeadScoreOptions& options) {
  return translate_exceptions([&] {
    check_texts({text});
    check_pattern(text.size(), pattern);
    const auto& config = model.config();
    std::vector<PatternSums> sums(as_index(config.n_layers * config.n_heads));
    PatternRows(config, text,
                [&](std::int64_t layer, std::int64_t head, std::int64_t row, const float* found) {
                  sums[as_index(layer * config.n_heads + head)].add(
                      row, found, pattern.data() + as_index(row) * text.size(), options);
                })
        .run(model);
    std::vector<double> scores;
    scores.reserve(sums.size());
    for (const auto& of_head : sums) scores.push_back(of_head.score(options.measure));
    return scores;
  });
}

}  // namespace qkscope
