#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/io/folder.h"
#include "base/tables/parquet_stream.h"
#include "capture/stats_format/stats_file.h"
#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"

namespace qkscope {
namespace {

using Type = Table::Type;

// ---- channels.parquet

void add_channel_rows(Table& table, std::int64_t layer, VectorKind kind, VectorStage stage,
                      const std::string& set, const HeadMoments& m) {
  const auto n = static_cast<double>(m.n());
  const bool any = m.n() > 0;
  for (std::int64_t head = 0; head < m.heads; ++head)
    for (std::int64_t channel = 0; channel < m.dim; ++channel) {
      const auto i = as_index(head * m.dim + channel);
      const double m2 =
          m.m2[as_index(head * triangle_size(m.dim) + triangle_index(m.dim, channel, channel))];
      const bool varies = m2 > 0;
      const double low = any ? static_cast<double>(m.min[i]) : kNan;
      const double high = any ? static_cast<double>(m.max[i]) : kNan;
      table.add({layer, head, std::string(kind_name(kind)), std::string(stage_name(stage)), set,
                 channel, m.n(), any ? m.mean[i] : kNan, m.n() > 1 ? std::sqrt(m2 / (n - 1)) : kNan,
                 varies ? m.m3[i] / n / std::pow(m2 / n, 1.5) : kNan,
                 varies ? n * m.m4[i] / (m2 * m2) - 3 : kNan, low, high, std::max(-low, high)});
    }
}

void write_channel_table(const std::string& path, const Statistics& s) {
  ParquetTableWriter file(path);
  for (const auto& [key, layers] : s.moments)
    for (std::size_t i = 0; i < layers.size(); ++i) {
      Table table = empty_table(
          "integer layer, integer head, text kind, text stage, text set, integer channel, integer "
          "n, real mean, real std, real skew, real excess_kurtosis, real min, real max, real "
          "absmax");
      const auto layer = s.moment_layers[i];
      add_channel_rows(table, layer, key.first, key.second, "first", layers[i].first);
      add_channel_rows(table, layer, key.first, key.second, "body", layers[i].body);
      add_channel_rows(table, layer, key.first, key.second, "all", all_rows(layers[i]));
      file.append(table);
    }
  file.finish();
}

// ---- attention.parquet and distance.parquet

// Declares the columns of a statistic: mean over rows, standard deviation and standard error.
void add_summary_columns(Table& table, const std::string& name) {
  table.column(name, Type::real).column(name + "_sd", Type::real).column(name + "_se", Type::real);
}
void add_summary(std::vector<Table::Cell>& cells, const ColumnSummary& value) {
  for (const double number : {value.mean, value.sd, value.se}) cells.emplace_back(number);
}

// Returns the largest attention logit of the queries in a bucket (-1: all); NaN without queries.
double largest_logit(const AttentionStatistics& a, std::int64_t layer, std::int64_t head,
                     std::int64_t bucket) {
  const auto* logits = a.max_logit.data() + (layer * a.heads + head) * a.buckets;
  const float largest =
      bucket >= 0 ? logits[bucket] : *std::max_element(logits, logits + a.buckets);
  return std::isinf(largest) ? kNan : static_cast<double>(largest);
}

// Returns the mean of a per-key quantity over the keys in a position bucket (-1: over all keys).
double mean_over_keys(const AttentionStatistics& a, const std::vector<double>& sums,
                      std::int64_t layer, std::int64_t head, std::int64_t bucket) {
  const auto* of_head = sums.data() + (layer * a.heads + head) * a.buckets;
  double sum = 0;
  for (std::int64_t b = 0; b < a.buckets; ++b)
    if (bucket < 0 || b == bucket) sum += of_head[b];
  const auto keys = count_query_rows(a, bucket);
  return keys > 0 ? sum / static_cast<double>(keys) : kNan;
}

// Bucket -1 (all buckets) becomes null in the tables.
Table::Cell bucket_cell(std::int64_t bucket) {
  return bucket < 0 ? Table::Cell(kNan) : Table::Cell(bucket);
}

void add_attention_row(Table& table, const Statistics& s, std::int64_t layer, std::int64_t head,
                       std::int64_t bucket) {
  const AttentionStatistics& a = s.attention;
  auto cells = head_id_cells(s, layer, head);
  cells.push_back(bucket_cell(bucket));
  cells.emplace_back(count_query_rows(a, bucket));
  for (std::size_t c = 0; c < a.columns.size(); ++c)
    if (is_per_query_column(a.columns[c]))
      add_summary(cells, summarize_column(a, layer, head, bucket, static_cast<std::int64_t>(c)));
  cells.emplace_back(largest_logit(a, layer, head, bucket));
  if (!a.key_mass.empty())
    for (const auto* sums : {&a.key_mass, &a.key_observed})
      cells.emplace_back(mean_over_keys(a, *sums, layer, head, bucket));
  for (std::size_t c = 0; c < a.document_columns.size(); ++c)
    add_summary(cells, bucket < 0
                           ? summarize_document_values(a, layer, head, static_cast<std::int64_t>(c))
                           : ColumnSummary{kNan, kNan, kNan});
  table.add(std::move(cells));
}

// ---- retrieval.parquet

Table empty_retrieval_table() {
  return empty_table(
      "integer trial, text id, integer tokens, integer needle_begin, integer needle_end, "
      "real greedy_match, boolean counts, integer layer, integer head, real score");
}

Table retrieval_table(const Statistics& s) {
  Table table = empty_retrieval_table();
  for (std::size_t i = 0; i < s.retrieval.size(); ++i) {
    const RetrievalTrial& trial = s.retrieval[i];
    for (std::size_t layer = 0; layer < s.layers.size(); ++layer)
      for (std::int64_t head = 0; head < s.heads; ++head)
        table.add({static_cast<std::int64_t>(i), trial.id, trial.tokens, trial.needle_begin,
                   trial.needle_end, trial.greedy_match, std::int64_t{trial.counts ? 1 : 0},
                   s.layers[layer], head, trial.score[layer * as_index(s.heads) + as_index(head)]});
  }
  return table;
}

}  // namespace

Table attention_table(const Statistics& s) {
  const AttentionStatistics& a = s.attention;
  Table table = empty_table(fmt::format("{}, integer bucket, integer rows", kHeadColumns));
  for (const auto& name : a.columns)
    if (is_per_query_column(name)) add_summary_columns(table, name);
  table.column("max_logit_largest", Type::real);
  if (!a.key_mass.empty()) table.column("key_mass", Type::real).column("key_observed", Type::real);
  for (const auto& name : a.document_columns) add_summary_columns(table, name);
  for (std::int64_t layer = 0; layer < a.layers; ++layer)
    for (std::int64_t head = 0; head < a.heads; ++head)
      for (std::int64_t bucket = -1; bucket < a.buckets; ++bucket)
        if (count_query_rows(a, bucket) > 0) add_attention_row(table, s, layer, head, bucket);
  return table;
}

Table attention_by_distance_table(const Statistics& s) {
  const AttentionStatistics& a = s.attention;
  const AttentionColumnLayout layout = attention_column_layout(s.settings);
  Table table = empty_table(
      fmt::format("{}, integer bucket, integer rows, integer width, integer distance_low, integer "
                  "distance_high, real mass, real mass_se",
                  kHeadColumns));
  for (std::int64_t layer = 0; layer < a.layers; ++layer)
    for (std::int64_t head = 0; head < a.heads; ++head)
      for (std::int64_t bucket = -1; bucket < a.buckets; ++bucket)
        for (std::int64_t width = 0; width < kDistances; ++width) {
          if (count_query_rows(a, bucket) == 0) continue;
          const auto value =
              summarize_column(a, layer, head, bucket, layout.distance_band_column(width));
          auto cells = head_id_cells(s, layer, head);
          cells.push_back(bucket_cell(bucket));
          // A band holds the distances from query i to key j with std::bit_width(i - j) == width.
          const auto high = std::int64_t{1} << width;
          for (const auto number : {count_query_rows(a, bucket), width, high / 2, high})
            cells.emplace_back(number);
          cells.emplace_back(value.mean);
          cells.emplace_back(value.se);
          table.add(std::move(cells));
        }
  return table;
}

void write_statistics_tables(const std::string& folder, const Statistics& s,
                             DocumentSource& documents) {
  if (!s.moments.empty()) write_channel_table(folder + "/" + stats_layout::kChannelsFile, s);
  if (!s.attention.empty()) {
    attention_table(s).write_parquet(folder + "/" + stats_layout::kAttentionFile);
    write_document_tables(folder, s, documents);
  }
  if (s.settings.all_keys && !s.attention.empty())
    attention_by_distance_table(s).write_parquet(folder + "/" + stats_layout::kDistanceFile);
  if (!s.retrieval.empty())
    retrieval_table(s).write_parquet(folder + "/" + stats_layout::kRetrievalFile);
}

std::vector<RetrievalTrial> read_retrieval_trials(const std::string& folder, const Statistics& s) {
  const auto path = folder + "/" + stats_layout::kRetrievalFile;
  if (!path_exists(path)) return {};
  const auto heads = s.layers.size() * as_index(s.heads);
  const Table expected = empty_retrieval_table();
  const Table table = read_parquet_table(path, to_vector(expected.columns(), &Table::Column::name));
  const auto& columns = table.columns();
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (columns[i].type != expected.columns()[i].type)
      reject("{}: column '{}' is of another type; make the statistics again", path,
             columns[i].name);
  if (heads == 0 || as_index(table.rows()) % heads != 0)
    reject("{}: has {} rows; expected {} for each trial", path, table.rows(), heads);
  std::vector<RetrievalTrial> trials;
  for (std::size_t row = 0; row < as_index(table.rows()); row += heads) {
    const auto scores = columns[9].reals.begin() + static_cast<std::ptrdiff_t>(row);
    const std::vector<double> score(scores, scores + static_cast<std::ptrdiff_t>(heads));
    trials.push_back({columns[1].texts[row], columns[2].integers[row], columns[3].integers[row],
                      columns[4].integers[row], columns[5].reals[row],
                      columns[6].integers[row] != 0, score});
  }
  return trials;
}

}  // namespace qkscope
