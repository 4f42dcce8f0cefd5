// Implements qkscope/experimental/heads.h.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <span>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "base/tables/empty_table.h"
#include "capture/stats_run/stats_pass.h"
#include "engine/forward/forward.h"
#include "engine/model/model_config.h"
#include "engine/statistics/attention_sums.h"
#include "qkscope/captures.h"
#include "qkscope/experimental/heads.h"
#include "qkscope/forward.h"
#include "qkscope/tokenizer.h"

namespace qkscope {
namespace {

using Texts = std::vector<std::vector<std::int32_t>>;
using Measure = HeadScoreOptions::Measure;

constexpr std::int64_t kBatchRows = 4096;         // tokens of texts that run in one batch
constexpr std::int64_t kPatternBytes = 64 << 20;  // attention rows of a layer kept in memory
constexpr const char* kPatterns[] = {"previous_token_head", "duplicate_token_head",
                                     "induction_head"};
constexpr const char* kNearColumns[] = {"sink_0", "sink_4", "self", "prev", "dup", "ind", "top1"};
constexpr const char* kAllColumns[] = {"entropy", "entropy_relative", "perplexity",
                                       "distance_mean"};

void check_texts_to_score(const Texts& texts) {
  if (texts.empty()) reject("scores of heads: there is no text");
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i].empty()) reject("scores of heads: text {} has no tokens", i);
}

// Attention sums over a text are finite for every head unless an activation is NaN or infinite.
void check_attention_finite(double sum, std::int64_t layer, std::int64_t head) {
  if (!std::isfinite(sum))
    reject(
        "scores of heads: the attention of layer {}, head {} holds NaN or infinity: the weights or "
        "the activations are damaged or overflow",
        layer, head);
}

StatisticsSettings score_run_settings(const Texts& texts, const HeadScoreOptions& options) {
  StatisticsSettings settings;
  settings.near_keys = true;
  settings.all_keys = options.all_keys;
  settings.buckets = 1;
  for (const auto& text : texts)
    settings.bucket_size = std::max<std::int64_t>(settings.bucket_size, std::ssize(text));
  return settings;
}

// A model whose heads are scored: native, or run by an external engine.
struct ModelToScore {
  const ModelConfig& config;
  std::string name;
  std::function<bool(std::int64_t layer)> has_rope;
  std::function<void(const Batch& batch, LayerStatistics& statistics)> run;
};

// A column of the head table: a sum in HeadAttentionSums, divided by the number of texts or rows.
struct HeadScoreColumn {
  std::string name;
  std::size_t index;  // index in document_column_names() or attention_column_names()
  bool over_texts;
};

// Attention statistics of every head (near keys and all keys), summed over a few texts.
class HeadAttentionSums : public LayerStatistics {
 public:
  // `settings` must have a single position bucket, which covers the longest text.
  HeadAttentionSums(const ModelConfig& model, const StatisticsSettings& settings)
      : heads_(as_index(model.n_heads)),
        values_(document_column_names(settings).size()),
        request_{.layout = attention_column_layout(settings),
                 .bucket_size = settings.bucket_size,
                 .buckets = 1,
                 .replacements = {},
                 .kept = {}} {
    for (std::int64_t layer = 0; layer < model.n_layers; ++layer)
      layers_.push_back(std::make_unique<LayerSums>(*this));
  }

  void add_texts(const ModelToScore& model, std::span<const std::vector<std::int32_t>> texts) {
    Batch batch;
    pairs_.clear();
    for (const auto& text : texts) {
      batch.add(text);
      pairs_.push_back(count_token_patterns(text));
    }
    model.run(batch, *this);
  }

  // Whether the layer has run; false for layers that text-only input does not use.
  bool has_layer(std::int64_t layer) const { return !layers_[as_index(layer)]->sums.empty(); }
  double sum(std::int64_t layer, std::int64_t head, const HeadScoreColumn& column) const {
    const auto& of_layer = *layers_[as_index(layer)];
    const auto& sums = column.over_texts ? of_layer.values : of_layer.sums;
    return sums[as_index(head) * (sums.size() / heads_) + column.index];
  }

  bool accumulates_attention() const override { return true; }
  void collect_before_rotation(Backend&, std::int64_t) override {}
  void collect_after_rotation(Backend&, std::int64_t) override {}
  void collect_after_attention(Backend& backend, std::int64_t layer) override {
    backend.add_attention_statistics(request_, *layers_[as_index(layer)]);
  }

 private:
  // A GPU delivers the sums of a layer while later layers run, so each layer has its own consumer.
  struct LayerSums : AttentionConsumer {
    explicit LayerSums(const HeadAttentionSums& owner) : all(owner) {}

    void add(LayerAttentionSums part) override {
      const auto columns = as_index(part.columns);
      sums.resize(all.heads_ * columns);
      values.resize(all.heads_ * all.values_);
      std::vector<double> of_text(all.values_);
      for (std::size_t head = 0; head < all.heads_; ++head)
        for (std::size_t text = 0; text < as_index(part.documents); ++text) {
          const auto from =
              std::span(part.sum).subspan((text * as_index(part.heads) + head) * columns, columns);
          fill_document_columns(all.request_.layout, all.pairs_[text], from, {}, of_text);
          for (std::size_t c = 0; c < columns; ++c) sums[head * columns + c] += from[c];
          for (std::size_t c = 0; c < of_text.size(); ++c)
            values[head * of_text.size() + c] += of_text[c];
        }
    }

    const HeadAttentionSums& all;
    std::vector<double> sums;    // (heads, columns); empty until the layer has run
    std::vector<double> values;  // (heads, document columns)
  };

  std::size_t heads_;
  std::size_t values_;  // number of document columns
  AttentionRequest request_;
  std::vector<TokenPatternCounts> pairs_;  // (texts of the batch)
  std::vector<std::unique_ptr<LayerSums>> layers_;
};

std::vector<HeadScoreColumn> head_score_columns(const StatisticsSettings& settings,
                                                const HeadScoreOptions& options) {
  std::vector<HeadScoreColumn> columns;
  const auto add = [&](const std::vector<std::string>& names, const std::string& name,
                       const std::string& suffix, bool over_texts) {
    const auto found = std::ranges::find(names, name + suffix);
    QKSCOPE_ASSERT(found != names.end());
    columns.push_back({name, as_index(found - names.begin()), over_texts});
  };
  const auto suffix = fmt::format("{}{}{}", options.exclude_bos ? "_nobos" : "",
                                  options.exclude_current_token ? "_nocur" : "",
                                  options.measure == Measure::abs ? "_abs" : "");
  for (const char* name : kPatterns) add(document_column_names(settings), name, suffix, true);
  for (const char* name : kNearColumns) add(attention_column_names(settings), name, "", false);
  if (settings.all_keys)
    for (const char* name : kAllColumns) add(attention_column_names(settings), name, "", false);
  return columns;
}

Table make_head_score_table(const ModelToScore& model, const Texts& texts,
                            const HeadScoreOptions& options, const HeadAttentionSums& sums) {
  const auto columns = head_score_columns(score_run_settings(texts, options), options);
  const auto& config = model.config;
  const std::int64_t text_count = std::ssize(texts);
  std::int64_t tokens = 0;
  for (const auto& text : texts) tokens += std::ssize(text);
  const auto label = options.label.empty() ? model.name : options.label;
  Table table = empty_table(
      "text model, integer layer, integer head, integer k_head, text rope, text attention, integer "
      "texts, integer tokens");
  for (const auto& column : columns) table.column(column.name, Table::Type::real);
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    if (!sums.has_layer(layer)) continue;
    const auto window = config.layers[as_index(layer)].window;
    const auto attention = attention_name(
        window > 0 ? std::optional(static_cast<std::int32_t>(window)) : std::nullopt);
    const auto group = config.n_heads / config.n_kv_heads_of(config.layer(layer));
    const std::string rope = model.has_rope(layer) ? "rope" : "nope";
    for (std::int64_t head = 0; head < config.n_heads; ++head) {
      std::vector<Table::Cell> cells = {label, layer,     head,       head / group,
                                        rope,  attention, text_count, tokens};
      for (const auto& column : columns) {
        const auto sum = sums.sum(layer, head, column);
        if (!column.over_texts) check_attention_finite(sum, layer, head);
        cells.emplace_back(sum / to_double(column.over_texts ? text_count : tokens));
      }
      table.add(std::move(cells));
    }
  }
  return table;
}

// Sums over the query rows of one head, from which score() computes the head's pattern score.
struct PatternMatchSums {
  double on_pattern = 0;
  double all = 0;
  double difference = 0;
  std::int64_t rows = 0;

  void add_row(std::int64_t row, const float* found, const float* wanted,
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
    return measure == Measure::mul
               ? on_pattern / all
               : head_score_from_absolute_error(difference, static_cast<double>(rows));
  }
};

// Passes the attention of every query row to `take`, in blocks of rows that fit into kPatternBytes,
// so that the full (queries, keys) matrix is never in memory.
class AttentionPatternReader : public Observer {
 public:
  // pattern: shape (tokens), attention of query `row` to each key. Called concurrently for
  // different heads; rows of a head arrive in ascending order.
  using RowConsumer = std::function<void(std::int64_t layer, std::int64_t head, std::int64_t row,
                                         const float* pattern)>;

  explicit AttentionPatternReader(RowConsumer take) : take_(std::move(take)) {}

  void read_text_patterns(const Model& model, std::span<const std::int32_t> text) {
    Batch batch;
    batch.add(text);
    const auto tokens = std::ssize(text);
    const auto row_bytes = model.config().n_heads * tokens * std::int64_t{sizeof(float)};
    const auto block = std::clamp<std::int64_t>(kPatternBytes / row_bytes, 1, tokens);
    for (std::int64_t begin = 0; begin < tokens; begin += block) {
      rows_.resize(as_index(std::min(block, tokens - begin)));
      std::iota(rows_.begin(), rows_.end(), begin);
      model.run(batch, *this);
    }
  }

  bool wants(HookPoint point) const override { return point.stage == Stage::pattern; }
  std::span<const std::int64_t> score_rows() const override { return rows_; }
  // pattern: shape (heads, rows of the block, keys)
  void observe(HookPoint point, ConstTensorView pattern) override {
    parallel_for(pattern.dim(0), [&](std::int64_t head) {
      const float* row = pattern.data<float>() + head * pattern.dim(1) * pattern.dim(2);
      for (const auto number : rows_) {
        take_(point.layer, head, number, row);
        row += pattern.dim(2);
      }
    });
  }

 private:
  RowConsumer take_;
  std::vector<std::int64_t> rows_;  // query rows of the current block
};

Table score_heads_on_texts(const ModelToScore& model, const Texts& texts,
                           const HeadScoreOptions& options) {
  return translate_exceptions([&] {
    check_texts_to_score(texts);
    if (model.config.has_sinks())
      reject(
          "scores of heads: they take a query's weights to sum to one, and with the learned sinks "
          "of this {} model they do not; score a pattern of your own instead",
          model.config.family);
    HeadAttentionSums sums(model.config, score_run_settings(texts, options));
    for (std::size_t begin = 0, end = 0; begin < texts.size(); begin = end) {
      std::int64_t rows = 0;
      while (end < texts.size() && (end == begin || rows + std::ssize(texts[end]) <= kBatchRows))
        rows += std::ssize(texts[end++]);
      sums.add_texts(model, std::span(texts).subspan(begin, end - begin));
      if (options.on_batch) options.on_batch(static_cast<std::int64_t>(end));
    }
    return make_head_score_table(model, texts, options, sums);
  });
}

// Sum of the cross-entropy losses -log softmax(logits)[next]; logits (rows, vocabulary).
double sum_cross_entropy(ConstTensorView logits, std::span<const std::int32_t> next) {
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
      reject("repeated texts: found {} texts of {} tokens, expected at least 1 of 2", options.texts,
             options.tokens);
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
    check_texts_to_score(texts);
    double sum = 0;
    for (const auto& text : texts) {  // one at a time: logits are (tokens, vocabulary)
      const auto length = std::ssize(text);
      if (tokens < 2 || tokens >= length)
        reject("loss of the second copy: found {} tokens of a text of {}, expected 2 to {}", tokens,
               length, length - 1);
      Batch batch;
      batch.add(text);
      std::vector<std::int64_t> rows(as_index(tokens - 1));
      std::iota(rows.begin(), rows.end(), length - tokens);
      Collector logits({{Stage::logits, -1}}, rows);
      model.run(batch, logits);
      sum += sum_cross_entropy(logits.kept().front().activation.view(),
                               std::span(text).last(as_index(tokens - 1)));
    }
    return sum / static_cast<double>((tokens - 1) * std::ssize(texts));
  });
}

Table score_heads(const Model& model, const std::vector<std::vector<std::int32_t>>& texts,
                  const HeadScoreOptions& options) {
  const std::filesystem::path folder(model.folder());
  const auto run = [&](const Batch& batch, LayerStatistics& statistics) {
    NullObserver nobody;
    model.run(batch, nobody, statistics);
  };
  log_layers_without_attention(model.config());
  return score_heads_on_texts(
      {.config = model.config(),
       .name = (folder.has_filename() ? folder : folder.parent_path()).filename().string(),
       .has_rope = [&](std::int64_t layer) { return model.config().rope(layer) != nullptr; },
       .run = run},
      texts, options);
}

Table score_heads(ExternalEngine& engine, const std::vector<std::vector<std::int32_t>>& texts,
                  const HeadScoreOptions& options) {
  const auto& model = engine.model();
  ExternalEngineObserver feed(model);
  const auto pass = [&](const Batch& batch, Observer& observer) { engine.run(batch, observer); };
  return score_heads_on_texts(
      {.config = model.config,
       .name = model.config.family,
       .has_rope = [&](std::int64_t layer) { return model.ropes[as_index(layer)].dim > 0; },
       .run = [&](const Batch& batch,
                  LayerStatistics& statistics) { feed.run_batch(batch, pass, statistics); }},
      texts, options);
}

std::vector<double> score_pattern(const Model& model, const std::vector<std::int32_t>& text,
                                  const std::vector<float>& pattern,
                                  const HeadScoreOptions& options) {
  return translate_exceptions([&] {
    check_texts_to_score({text});
    const auto tokens = text.size();
    if (pattern.size() != tokens * tokens)
      reject("pattern: found {} numbers, expected {} x {}: a row and a column for every token",
             pattern.size(), tokens, tokens);
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      const auto query = i / tokens;
      const auto key = i % tokens;
      if (!(pattern[i] >= 0.0F && pattern[i] <= 1.0F))
        reject("pattern: query {}, key {}: found {}, expected a number from 0 to 1", query, key,
               pattern[i]);
      if (key > query && pattern[i] != 0.0F)
        reject("pattern: query {}, key {}: found {}, expected 0: a query sees no later key", query,
               key, pattern[i]);
    }
    const auto& config = model.config();
    std::vector<PatternMatchSums> sums(as_index(config.n_layers * config.n_heads));
    AttentionPatternReader([&](std::int64_t layer, std::int64_t head, std::int64_t row,
                               const float* found) {
      sums[as_index(layer * config.n_heads + head)].add_row(
          row, found, pattern.data() + as_index(row) * text.size(), options);
    }).read_text_patterns(model, text);
    std::vector<double> scores;
    for (const auto& of_head : sums) {
      const auto index = std::ssize(scores);
      check_attention_finite(of_head.all + of_head.difference, index / config.n_heads,
                             index % config.n_heads);
      scores.push_back(of_head.score(options.measure));
    }
    return scores;
  });
}

}  // namespace qkscope
