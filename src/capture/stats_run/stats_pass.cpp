#include "capture/stats_run/stats_pass.h"

#include <algorithm>
#include <cmath>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"

namespace qkscope {
namespace {

constexpr double kKeyUnit = 1.0 / 1099511627776.0;  // 2^-40, unit of the fixed-point key sums

}  // namespace

class StatsPass::MomentAccumulator : public MomentConsumer {
 public:
  MomentAccumulator(StatsPass& pass, VectorKind kind, VectorStage stage, std::int64_t layer)
      : pass_(pass), index_(pass.moments_.size()), kind_(kind), stage_(stage), layer_(layer) {
    const auto& layers = pass.plan_.statistics.moment_layers;
    const auto at = std::ranges::lower_bound(layers, layer) - layers.begin();
    sums_ = &pass.state_.statistics.moments.at({kind, stage})[as_index(at)];
    auto& shifts = pass.state_.shifts[{kind, stage}];
    shifts.resize(layers.size());
    request_ = pass.plan_.moment_request(kind, stage);
    request_.shift = &shifts[as_index(at)];
  }

  bool has_stage_and_layer(VectorStage stage, std::int64_t layer) const {
    return stage_ == stage && layer_ == layer;
  }
  bool has_shift() const { return !request_.shift->empty(); }
  void begin_batch() { next_ = 0; }
  void accumulate_batch() {
    pass_.backend_->add_moments(kVectorBuffers[static_cast<std::size_t>(kind_)], request_, *this);
  }

  void add(const LayerMoments& part) override {
    if (pass_.buffered_ != nullptr) {
      pass_.buffered_->moments.emplace_back(index_, part);
      return;
    }
    merge_moments(*sums_, part);
    if (!pass_.areas_.empty() && stage_ == VectorStage::pre) store_document_means(part);
  }

  void throw_non_finite(const NonFiniteLocation& found) override {
    constexpr std::string_view kWords[] = {"query", "key", "value"};
    const auto& prepared = *pass_.prepared_;
    const auto& record = prepared.examples[prepared.sequence[as_index(found.sequence)]].record;
    reject(
        "layer {}, {} head {}, {} RoPE, text {} (row {} of the dataset): a vector holds NaN or "
        "infinity; the weights or settings of the model are broken, or numbers left the range of "
        "{} (try --dtype float32)",
        layer_, kWords[static_cast<std::size_t>(kind_)], found.head,
        stage_ == VectorStage::pre ? "before" : "after", quote_text(record.source_id), record.row,
        dtype_name(pass_.plan_.run.backend.dtype));
  }

 private:
  // Stores the mean queries or keys of one document. On a GPU, `part` covers all documents of the
  // batch, so no means per document are stored.
  void store_document_means(const LayerMoments& part) {
    const auto& sequences = pass_.prepared_->batch.sequences;
    const auto document = next_++;
    if (kind_ == VectorKind::value || document >= sequences.size()) return;
    const auto all = all_rows(part);
    if (all.n() != sequences[document].length) return;
    auto& means = kind_ == VectorKind::query ? pass_.query_means_ : pass_.key_means_;
    means.resize(sequences.size());
    means[document] = all.mean;
    if (kind_ == VectorKind::key)
      pass_.add_cumulative_attention_areas(document, pass_.index_in_layers(layer_));
  }

  StatsPass& pass_;
  std::size_t index_;  // index in pass_.moments_
  VectorKind kind_;
  VectorStage stage_;
  std::int64_t layer_;
  LayerMoments* sums_;
  MomentRequest request_;
  std::size_t next_ = 0;  // index of the next document in the batch
};

class StatsPass::AttentionAccumulator : public AttentionConsumer {
 public:
  AttentionAccumulator(StatsPass& pass, std::int64_t layer_index)
      : pass_(pass), layer_index_(layer_index), request_(pass.attention_request_) {
    const auto& plan = pass.plan_;
    request_.layer = plan.statistics.layers[as_index(layer_index)];
    const auto layer = as_index(request_.layer);
    const auto heads = as_index(plan.run.model.n_kv_heads);
    const auto filters = heads * as_index(plan.run.model.d_head);
    if (!plan.key_scales.empty())
      request_.key_scales = std::span(plan.key_scales).subspan(layer * heads, heads);
    if (!plan.key_filters.empty())
      request_.key_filters = std::span(plan.key_filters).subspan(layer * filters, filters);
  }

  void accumulate_batch() {
    std::vector<std::int64_t> documents;
    for (const auto example : pass_.prepared_->sequence)
      documents.push_back(pass_.prepared_->examples[example].record.key);
    request_.documents = documents;
    pass_.backend_->add_attention_statistics(request_, *this);
  }

  void add(LayerAttentionSums part) override {
    if (pass_.buffered_ != nullptr) {
      pass_.buffered_->attention.emplace_back(as_index(layer_index_), std::move(part));
      return;
    }
    const auto& sequences = pass_.prepared_->batch.sequences;
    QKSCOPE_ASSERT(part.documents == std::ssize(sequences));
    for (std::int64_t d = 0; d < part.documents; ++d)
      parallel_for(part.heads, [&](std::int64_t head) { add_head_sums(part, d, head); });
  }

 private:
  // Adds the attention sums of one document and head to the totals and to the document's record.
  void add_head_sums(const LayerAttentionSums& part, std::int64_t document,
                     std::int64_t head) const {
    auto& a = pass_.state_.statistics.attention;
    const auto columns = part.columns;
    const auto& sequence = pass_.prepared_->batch.sequences[as_index(document)];
    const auto from = (document * part.heads + head) * part.buckets;
    const auto to = (layer_index_ * a.heads + head) * a.buckets;
    std::vector<double> whole(as_index(columns));
    for (std::int64_t b = 0; b < part.buckets; ++b) {
      const double* sum = part.sum.data() + (from + b) * columns;
      const double* square = part.square.data() + (from + b) * columns;
      for (std::int64_t c = 0; c < columns; ++c) {
        a.sum[as_index((to + b) * columns + c)] += sum[c];
        a.square[as_index((to + b) * columns + c)] += square[c];
        whole[as_index(c)] += sum[c];
      }
      auto& largest = a.max_logit[as_index(to + b)];
      largest = std::max(largest, part.max_logit[as_index(from + b)]);
      add_document_squares(head, b, pass_.count_rows_in_bucket(sequence.length, b),
                           {sum, as_index(columns)});
    }
    add_document_squares(head, a.buckets, sequence.length, whole);
    add_document_values(part, document, head, whole);
  }

  void add_document_squares(std::int64_t head, std::int64_t bucket, std::int64_t rows,
                            std::span<const double> sums) const {
    auto& a = pass_.state_.statistics.attention;
    const auto at =
        as_index(((layer_index_ * a.heads + head) * (a.buckets + 1) + bucket)) * sums.size();
    for (std::size_t c = 0; c < sums.size(); ++c) {
      a.document_square[at + c] += sums[c] * sums[c];
      a.document_cross[at + c] += sums[c] * to_double(rows);
    }
  }

  void add_document_values(const LayerAttentionSums& part, std::int64_t document, std::int64_t head,
                           std::span<const double> whole) const {
    auto& a = pass_.state_.statistics.attention;
    auto& record = pass_.documents_[as_index(document)].attention;
    const auto cell = layer_index_ * a.heads + head;
    const auto rows = to_double(record.tokens);
    for (std::size_t c = 0; c < whole.size(); ++c)
      record.mean[as_index(cell) * whole.size() + c] = whole[c] / rows;
    std::vector<double> keys;  // attention mass of each key of the document
    const auto& sequence = pass_.prepared_->batch.sequences[as_index(document)];
    if (!part.key_sums.empty())
      for (std::int64_t j = sequence.begin; j < sequence.begin + sequence.length; ++j)
        keys.push_back(to_double(part.key_sums[as_index(j * part.heads + head)]) * kKeyUnit);
    const auto count = a.document_columns.size();
    const std::span values(record.values.data() + as_index(cell) * count, count);
    fill_document_columns(pass_.attention_request_.layout, pass_.pairs_[as_index(document)], whole,
                          keys, values);
    for (std::size_t c = 0; c < count; ++c) {
      if (std::isnan(values[c])) continue;
      a.document_sum[as_index(cell) * count + c] += values[c];
      a.document_sum_square[as_index(cell) * count + c] += values[c] * values[c];
    }
    if (!keys.empty()) add_key_sums(cell, document, head, keys);
  }

  void add_key_sums(std::int64_t cell, std::int64_t document, std::int64_t head,
                    std::span<const double> keys) const {
    auto& a = pass_.state_.statistics.attention;
    const auto& request = pass_.attention_request_;
    const auto length = std::ssize(keys);
    for (std::int64_t j = 0; j < length; ++j) {
      const auto bucket = std::min(j / request.bucket_size, request.buckets - 1);
      const auto at = as_index(cell * a.buckets + bucket);
      a.key_mass[at] += keys[as_index(j)];
      a.key_observed[at] += keys[as_index(j)] / to_double(length - j);
    }
    const auto& statistics = pass_.state_.statistics;
    const auto& chosen = statistics.settings.columns;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i] == LayerHead{statistics.layers[as_index(layer_index_)], head})
        pass_.documents_[as_index(document)].attention.key_sums[i].assign(keys.begin(), keys.end());
  }

  StatsPass& pass_;
  std::int64_t layer_index_;  // index in Statistics::layers
  AttentionRequest request_;
};

StatsPass::StatsPass(const StatsRunPlan& plan, StatsRunState& state) : plan_(plan), state_(state) {
  for (const auto layer : plan.statistics.moment_layers)
    for (const auto stage : {VectorStage::pre, VectorStage::post})
      for (const auto kind : {VectorKind::query, VectorKind::key, VectorKind::value})
        if (plan.accumulates_moments(kind, stage, layer))
          moments_.push_back(std::make_unique<MomentAccumulator>(*this, kind, stage, layer));
  const auto& settings = plan.config.stats;
  attention_request_ = {.layout = attention_column_layout(settings),
                        .bucket_size = settings.bucket_size,
                        .buckets = settings.buckets,
                        .replacements = settings.kl,
                        .kept = settings.keep,
                        .sample = {settings.all_keys_rows, settings.seed}};
  for (std::int64_t i = 0; i < std::ssize(plan.statistics.layers); ++i)
    attention_.push_back(std::make_unique<AttentionAccumulator>(*this, i));
  if (has_duo_attention_score(settings))
    for (const auto layer : plan.statistics.layers)
      areas_.emplace_back(plan.run.model, layer, plan.statistics.max_length);
}

StatsPass::~StatsPass() = default;

BatchStatistics StatsPass::compute_batch_statistics(const ExampleBatch& prepared,
                                                    const PassRunner& run) {
  BatchStatistics held;
  if (prepared.sequence.empty()) return held;
  prepared_ = &prepared;
  buffered_ = &held;
  try {
    run(prepared.batch, *this);
  } catch (...) {
    buffered_ = nullptr;
    throw;
  }
  buffered_ = nullptr;
  return held;
}

std::vector<DocumentRecord> StatsPass::add_batch(const ExampleBatch& prepared,
                                                 BatchStatistics held) {
  return add_batch(prepared, [&](const Batch&, LayerStatistics&) {
    for (const auto& [index, part] : held.moments) moments_[index]->add(part);
    for (const auto& rows : held.exact)
      store_attention_concentration(rows);  // first: attention sums include these columns
    for (auto& [index, part] : held.attention) attention_[index]->add(std::move(part));
  });
}

std::vector<DocumentRecord> StatsPass::add_batch(const ExampleBatch& prepared,
                                                 const PassRunner& run) {
  if (prepared.sequence.empty()) return {};
  begin_batch(prepared);
  run(prepared.batch, *this);
  return finish_batch();
}

void StatsPass::begin_batch(const ExampleBatch& prepared) {
  prepared_ = &prepared;
  for (const auto& moments : moments_) moments->begin_batch();
  documents_.clear();
  if (!accumulates_attention()) return;
  const auto& a = state_.statistics.attention;
  const auto cells = as_index(a.layers * a.heads);
  pairs_.clear();
  for (const auto sequence : prepared.sequence) {
    const auto& example = prepared.examples[sequence];
    auto& record = documents_.emplace_back();
    record.row = example.record.row;
    record.attention.example_key = example.record.key;
    record.attention.tokens = example.record.tokens;
    record.attention.mean.resize(cells * a.columns.size());
    record.attention.values.resize(cells * a.document_columns.size(), kNan);
    record.attention.key_sums.resize(state_.statistics.settings.columns.size());
    pairs_.push_back(count_token_patterns(example.ids));
  }
}

std::vector<DocumentRecord> StatsPass::finish_batch() {
  if (!accumulates_attention()) return std::move(documents_);
  auto& a = state_.statistics.attention;  // row counts are the same for all heads
  for (const auto& document : documents_) {
    const auto length = document.attention.tokens;
    ++a.documents;
    for (std::int64_t b = 0; b < a.buckets; ++b) {
      const auto rows = count_rows_in_bucket(length, b);
      a.rows[as_index(b)] += rows;
      a.row_square[as_index(b)] += to_double(rows) * to_double(rows);
    }
    a.row_square[as_index(a.buckets)] += to_double(length) * to_double(length);
    for (std::size_t c = 0; c < a.document_columns.size(); ++c)
      if (!std::isnan(document.attention.values[c])) ++a.document_counts[c];
  }
  return std::move(documents_);
}

bool StatsPass::allows_concurrent_batches() const {
  return plan_.run.backend.device.kind == Device::Kind::cpu ||
         std::ranges::all_of(moments_, [](const auto& moments) { return moments->has_shift(); });
}

std::int64_t StatsPass::count_rows_in_bucket(std::int64_t length, std::int64_t bucket) const {
  const auto& request = attention_request_;
  const auto end = bucket + 1 == request.buckets ? length : (bucket + 1) * request.bucket_size;
  return std::max<std::int64_t>(0, std::min(length, end) - bucket * request.bucket_size);
}

void StatsPass::add_moments(VectorStage stage, std::int64_t layer) {
  for (const auto& moments : moments_)
    if (moments->has_stage_and_layer(stage, layer)) moments->accumulate_batch();
}

void StatsPass::collect_before_rotation(Backend& backend, std::int64_t layer) {
  backend_ = &backend;
  add_moments(VectorStage::pre, layer);
}

void StatsPass::collect_after_rotation(Backend& backend, std::int64_t layer) {
  backend_ = &backend;
  add_moments(VectorStage::post, layer);
}

void StatsPass::collect_after_attention(Backend& backend, std::int64_t layer) {
  backend_ = &backend;
  const auto index = index_in_layers(layer);
  const auto& sequences = prepared_->batch.sequences;
  std::int64_t longest = 0;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.length);
  const auto rows = plan_.config.stats.exact_rows;
  for (std::size_t d = 0; rows > 0 && d < sequences.size(); ++d) {
    AttentionConcentration counts{
        d, index, measure_attention_concentration(backend, sequences[d], longest, rows)};
    if (buffered_ != nullptr)
      buffered_->exact.push_back(std::move(counts));
    else
      store_attention_concentration(counts);
  }
  attention_[as_index(index)]->accumulate_batch();
}

std::int64_t StatsPass::index_in_layers(std::int64_t layer) const {
  const auto& layers = plan_.statistics.layers;
  return std::ranges::lower_bound(layers, layer) - layers.begin();
}

double* StatsPass::head_statistics(std::size_t document, std::int64_t index, std::int64_t head) {
  const auto& a = state_.statistics.attention;
  return documents_[document].attention.values.data() +
         (index * a.heads + head) * std::ssize(a.document_columns);
}

void StatsPass::add_cumulative_attention_areas(std::size_t document, std::int64_t index) {
  const auto& columns = state_.statistics.attention.document_columns;
  const auto column = std::ranges::find(columns, kMeanArea) - columns.begin();
  const auto dim = as_index(plan_.statistics.dim);
  const auto group = plan_.statistics.heads / plan_.statistics.key_heads;
  const std::span<const double> queries = query_means_[document];
  const std::span<const double> keys = key_means_[document];
  parallel_for(plan_.statistics.heads, [&](std::int64_t head) {
    head_statistics(document, index, head)[column] =
        areas_[as_index(index)].compute(queries.subspan(as_index(head) * dim, dim),
                                        keys.subspan(as_index(head / group) * dim, dim));
  });
}

// Stores measured attention concentrations in the last columns of the per-document values.
void StatsPass::store_attention_concentration(const AttentionConcentration& measured) {
  for (std::int64_t head = 0; head < std::ssize(measured.heads); ++head) {
    const auto& values = measured.heads[as_index(head)];
    std::ranges::copy(values, head_statistics(measured.document, measured.layer_index, head + 1) -
                                  std::ssize(values));
  }
}

}  // namespace qkscope
