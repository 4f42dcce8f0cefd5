#include "engine/device/cuda/statistics/score_statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/core/error.h"

namespace qkscope::cuda {
namespace {

// Layout of a result buffer: consecutive arrays with offsets in bytes.
struct ScoreResultLayout {
  std::int64_t cells, heads, columns, rows;
  bool has_key_sums;  // attention mass of each key, only without sampling of queries

  std::int64_t squared_sums_offset() const { return cells * heads * columns * 8; }
  std::int64_t key_sums_offset() const { return 2 * squared_sums_offset(); }
  std::int64_t max_logit_offset() const {
    return key_sums_offset() + (has_key_sums ? rows * heads * 8 : 0);
  }
  std::int64_t bytes() const { return max_logit_offset() + cells * heads * 4; }
};

LayerAttentionSums read_attention_sums(const ScoreResultLayout& layout,
                                       const std::vector<DocumentBucket>& cells,
                                       std::int64_t documents, std::int64_t buckets,
                                       const std::byte* bytes) {
  auto attention = make_layer_attention_sums(documents, layout.heads, buckets, layout.columns);
  const auto* sum = reinterpret_cast<const double*>(bytes);
  const auto* square = reinterpret_cast<const double*>(bytes + layout.squared_sums_offset());
  const auto* max_logit = reinterpret_cast<const float*>(bytes + layout.max_logit_offset());
  for (const auto& cell : cells)
    for (std::int64_t head = 0; head < layout.heads; ++head) {
      const auto to = (cell.document * layout.heads + head) * buckets + cell.bucket;
      std::copy_n(sum, layout.columns, attention.sum.begin() + to * layout.columns);
      std::copy_n(square, layout.columns, attention.square.begin() + to * layout.columns);
      attention.max_logit[as_index(to)] = *max_logit++;
      sum += layout.columns;
      square += layout.columns;
    }
  if (layout.has_key_sums) {
    const auto* sums = reinterpret_cast<const std::int64_t*>(bytes + layout.key_sums_offset());
    attention.key_sums.assign(sums, sums + layout.rows * layout.heads);
  }
  return attention;
}

DocumentRowTile make_row_tile(const Sequence& sequence, std::int64_t first, std::int64_t output_row,
                              std::int64_t head = 0) {
  return {static_cast<std::int32_t>(sequence.begin), static_cast<std::int32_t>(sequence.length),
          static_cast<std::int32_t>(first), static_cast<std::int32_t>(output_row),
          static_cast<std::int32_t>(head)};
}

std::vector<DocumentRowTile> list_row_tiles(std::span<const Sequence> sequences,
                                            std::int64_t rows) {
  std::vector<DocumentRowTile> tiles;
  for (const auto& sequence : sequences)
    for (std::int64_t first = 0; first < sequence.length; first += rows)
      tiles.push_back(make_row_tile(sequence, first, sequence.begin));
  std::ranges::stable_sort(tiles, std::greater<>(), &DocumentRowTile::first);
  return tiles;
}

struct RepeatedTokens {
  std::vector<RepeatedTokenRow> rows;
  std::vector<RepeatedTokenTile> tiles;
};

RepeatedTokens list_repeated_tokens(const Batch& batch, std::int32_t tile_rows) {
  RepeatedTokens out;
  std::vector<std::int32_t> order;
  for (const auto& sequence : batch.sequences) {
    order.resize(as_index(sequence.length));
    std::iota(order.begin(), order.end(), static_cast<std::int32_t>(sequence.begin));
    const auto id = [&](std::int32_t row) { return batch.ids[as_index(row)]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return id(a) < id(b); });
    const auto first = static_cast<std::int32_t>(out.rows.size());
    for (auto from = order.begin(); from != order.end();) {
      const auto to =
          std::find_if(from, order.end(), [&](std::int32_t row) { return id(row) != id(*from); });
      const auto block = static_cast<std::int32_t>(out.rows.size());
      if (to - from > 1)
        for (auto row = from; row != to; ++row) out.rows.push_back({*row, block});
      from = to;
    }
    const auto last = static_cast<std::int32_t>(out.rows.size());
    for (auto from = first; from < last; from += tile_rows)
      out.tiles.push_back(
          {from, std::min(from + tile_rows, last), static_cast<std::int32_t>(sequence.begin)});
  }
  std::ranges::stable_sort(out.tiles, std::greater<>(), [&](const RepeatedTokenTile& tile) {
    return tile.last - out.rows[as_index(tile.first)].block;  // keys to read
  });
  return out;
}

// Sampled queries of the heads of one launch. Storing statistics for only these queries lets a
// launch cover more heads, which saves time: a launch takes at least as long as its longest tile.
struct SampledQueries {
  std::vector<SampledQueryBlock> blocks;  // (heads, blocks of all documents)
  std::vector<DocumentRowTile> tiles;     // tiles with many keys first
  std::int64_t head_rows = 0;             // output rows of a head, equal for all heads
};

SampledQueries sample_queries(std::span<const Sequence> sequences, const ScoreArguments& scores,
                              const AttentionRequest& request) {
  const auto tile_rows = all_keys_tile_rows(scores.dtype, scores.d_head);
  SampledQueries out;
  for (auto head = scores.first_head; head < scores.first_head + scores.heads; ++head) {
    out.head_rows = 0;
    for (std::int64_t d = 0; d < std::ssize(sequences); ++d) {
      const auto& sequence = sequences[as_index(d)];
      std::int64_t first = 0;  // position of the block
      for (const float weight : request.horvitz_thompson_weights(sequence.length, d, head)) {
        const auto output_row = out.head_rows - first;
        out.blocks.push_back({weight, static_cast<std::int32_t>(output_row)});
        for (std::int64_t row = 0; weight > 0 && row < kSampledQueries; row += tile_rows)
          out.tiles.push_back(
              make_row_tile(sequence, first + row, output_row, head - scores.first_head));
        if (weight > 0) out.head_rows += kSampledQueries;
        first += kSampledQueries;
      }
    }
  }
  std::ranges::stable_sort(out.tiles, std::greater<>(), &DocumentRowTile::first);
  return out;
}

std::vector<DocumentBucket> list_document_buckets(std::span<const Sequence> sequences,
                                                  std::int64_t bucket_size, std::int64_t buckets) {
  std::vector<DocumentBucket> cells;
  std::int32_t document = 0;
  std::int64_t block = 0;
  for (const auto& sequence : sequences) {
    for (std::int64_t bucket = 0; bucket < buckets; ++bucket) {
      const auto from = bucket * bucket_size;
      const auto to =
          bucket + 1 == buckets ? sequence.length : std::min(sequence.length, from + bucket_size);
      if (from >= to) break;
      cells.push_back({static_cast<std::int32_t>(sequence.begin + from),
                       static_cast<std::int32_t>(sequence.begin + to),
                       static_cast<std::int32_t>(from), document, static_cast<std::int32_t>(bucket),
                       static_cast<std::int32_t>(block)});
    }
    ++document;
    block += (sequence.length + kSampledQueries - 1) / kSampledQueries;
  }
  return cells;
}

}  // namespace

void ScoreStatistics::begin_batch(const Batch& batch) {
  batch_ = &batch;
  is_prepared_ = false;
  cells_.reset();
}

SoftmaxRowStats ScoreStatistics::reserve_row_stats(std::int64_t heads) {
  const auto bytes = batch_->rows() * heads * kFloatBytes;
  summed_.make_stream_wait(stream_);
  return {static_cast<float*>(lse_.reserve(bytes, "row sums")),
          static_cast<float*>(largest_.reserve(bytes, "row sums"))};
}

void ScoreStatistics::prepare_tiles(const QueriesAndKeys& source) {
  if (is_prepared_) return;
  const auto tile_rows = score_tile_rows(source.dtype, source.d_head);
  const auto key_tile_rows = all_keys_tile_rows(source.dtype, source.d_head);
  tiles_.upload(list_row_tiles(batch_->sequences, tile_rows), "statistics", stream_);
  key_tiles_.upload(list_row_tiles(batch_->sequences, key_tile_rows), "statistics", stream_);
  const auto tokens = list_repeated_tokens(*batch_, static_cast<std::int32_t>(tile_rows));
  token_rows_.upload(tokens.rows, "statistics", stream_);
  token_tiles_.upload(tokens.tiles, "statistics", stream_);
  is_prepared_ = true;
}

void ScoreStatistics::prepare_document_buckets(const AttentionRequest& request) {
  if (cells_) return;  // one partition of the rows per pass
  auto cells = std::make_shared<std::vector<DocumentBucket>>(
      list_document_buckets(batch_->sequences, request.bucket_size, request.buckets));
  device_cells_.upload(*cells, "statistics", stream_);
  cells_ = std::move(cells);
}

ScoreArguments ScoreStatistics::make_arguments(const QueriesAndKeys& source) const {
  const auto elements = 16 / element_bytes(source.dtype);
  ScoreArguments a{source};
  a.rows = batch_->rows();
  a.output_rows = a.rows;
  a.heads = a.tile_heads = source.n_heads;
  a.vectors = is_16_byte_aligned(source.q) && is_16_byte_aligned(source.k) &&
              source.row_stride % elements == 0 && source.d_head % elements == 0;
  a.row_stats = {lse_.as<float>(), largest_.as<float>()};
  a.tiles = tiles_.as<DocumentRowTile>();
  a.tile_count = tiles_.count();
  return a;
}

void ScoreStatistics::compute_row_stats(const QueriesAndKeys& source) {
  prepare_tiles(source);
  cuda::compute_row_stats(make_arguments(source), stream_);
}

std::vector<rows::RunningSoftmax> ScoreStatistics::fetch_running_softmax(
    const QueriesAndKeys& source) const {
  const auto count = as_index(batch_->rows() * source.n_heads);
  std::vector<float> lse(count), largest(count);
  for (const auto& [to, from] : {std::pair(&lse, &lse_), std::pair(&largest, &largest_)})
    check(cudaMemcpyAsync(to->data(), from->data(), count * sizeof(float), cudaMemcpyDeviceToHost,
                          stream_),
          "copy row sums to the host");
  check(cudaStreamSynchronize(stream_), "wait for row sums");
  std::vector<rows::RunningSoftmax> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    sums[i].highest = largest[i] * source.scale;
    const double octaves = static_cast<double>(lse[i]) - sums[i].highest / std::numbers::ln2;
    sums[i].sum = static_cast<float>(std::exp2(octaves));
  }
  return sums;
}

template <typename Compute>
void ScoreStatistics::sum_by_bucket(BucketSumArguments sums, std::int64_t most_heads,
                                    const Compute& compute) {
  auto& scores = sums.scores;
  const auto head_bytes = scores.columns * scores.output_rows * kFloatBytes;
  const auto step = std::clamp<std::int64_t>(most_value_bytes_ / head_bytes, 1, most_heads);
  scores.statistics =
      static_cast<float*>(values_.reserve_with_slack(step * head_bytes, "statistics of rows"));
  for (scores.first_head = 0; scores.first_head < scores.n_heads; scores.first_head += step) {
    scores.heads = scores.tile_heads = std::min(step, scores.n_heads - scores.first_head);
    summed_.make_stream_wait(stream_);
    compute(sums);
    on_main_.record(stream_);
    on_main_.make_stream_wait(side_);
    sum_document_buckets(sums, side_);
    summed_.record(side_);
  }
}

void ScoreStatistics::add_all_key_statistics(BucketSumArguments sums,
                                             const AttentionRequest& request,
                                             std::int64_t* key_sums) {
  auto& scores = sums.scores;
  scores.first_column = request.layout.near_key_column_count();
  scores.columns = request.layout.sink_above_half_column() - scores.first_column;
  const bool is_sampled = !request.sample.takes_all_queries();
  scores.heads = 1;  // all heads have equally many sampled queries
  if (is_sampled) scores.output_rows = sample_queries(batch_->sequences, scores, request).head_rows;
  // Without sampling, a launch covers as many heads as fit into kAllKeysLaunchBlocks thread blocks.
  const auto most_heads = std::clamp<std::int64_t>(
      is_sampled ? scores.n_heads : kAllKeysLaunchBlocks / key_tiles_.count(), 1, scores.n_heads);
  sum_by_bucket(sums, most_heads, [&](BucketSumArguments& launch) {
    auto& all = launch.scores;
    if (is_sampled) {
      const auto queries = sample_queries(batch_->sequences, all, request);
      key_tiles_.upload(queries.tiles, "statistics", stream_);
      launch.blocks = sampled_blocks_.upload(queries.blocks, "statistics", stream_);
      launch.block_count = std::ssize(queries.blocks) / all.heads;
      all.tile_heads = 1;
    }
    all.tiles = key_tiles_.as<DocumentRowTile>();
    all.tile_count = key_tiles_.count();
    auto* bins = bins_.reserve(all_keys_histogram_bytes(), "statistics");
    compute_all_key_statistics(all, {.key_sums = key_sums, .bins = bins}, stream_);
  });
}

void ScoreStatistics::add_layer(const QueriesAndKeys& source, const AttentionRequest& request,
                                AttentionConsumer& sink) {
  QKSCOPE_ASSERT(request.replacements.empty() && request.kept.empty());
  prepare_tiles(source);
  prepare_document_buckets(request);
  const ScoreResultLayout layout{static_cast<std::int64_t>(cells_->size()), source.n_heads,
                                 request.layout.columns(), batch_->rows(),
                                 request.layout.all_keys && request.sample.takes_all_queries()};
  auto* result = transfers_.begin_transfer(layout.bytes(), layout.bytes(), "statistics");
  auto* key_sums = layout.has_key_sums
                       ? reinterpret_cast<std::int64_t*>(result + layout.key_sums_offset())
                       : nullptr;
  if (layout.has_key_sums)
    check(cudaMemsetAsync(key_sums, 0, as_index(layout.rows * source.n_heads * 8), stream_),
          "clear key sums");
  BucketSumArguments sums{
      .scores = make_arguments(source),
      .cells = device_cells_.as<DocumentBucket>(),
      .cell_count = layout.cells,
      .sum = reinterpret_cast<double*>(result),
      .square = reinterpret_cast<double*>(result + layout.squared_sums_offset()),
      .max_logit = reinterpret_cast<float*>(result + layout.max_logit_offset())};
  sums.scores.layout = request.layout;
  sums.scores.columns = request.layout.near_key_column_count() + 1;
  sum_by_bucket(sums, source.n_heads, [&](const BucketSumArguments& launch) {
    const auto& scores = launch.scores;
    constexpr auto kTokenColumns = 4;  // dup, dup_first, ind, ind_self
    const auto values = scores.heads * scores.output_rows;
    on_main_.record(stream_);
    on_main_.make_stream_wait(side_);
    compute_near_key_statistics(scores, stream_);
    check(cudaMemsetAsync(scores.statistics + column_index(NearKeyColumn::dup) * values, 0,
                          as_index(kTokenColumns * values * kFloatBytes), side_),
          "clear statistics of rows");
    compute_repeated_token_statistics(scores,
                                      {token_rows_.as<RepeatedTokenRow>(),
                                       token_tiles_.as<RepeatedTokenTile>(), token_tiles_.count()},
                                      side_);
    on_side_.record(side_);
    on_side_.make_stream_wait(stream_);
  });
  if (request.layout.all_keys) add_all_key_statistics(sums, request, key_sums);
  transfers_.enqueue_copy(
      [layout, cells = cells_, sink = &sink, buckets = request.buckets,
       documents = std::ssize(batch_->sequences)](const std::byte* bytes) {
        sink->add(read_attention_sums(layout, *cells, documents, buckets, bytes));
      },
      side_);
}

}  // namespace qkscope::cuda
