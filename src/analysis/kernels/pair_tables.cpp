#include "analysis/kernels/pair_tables.h"

#include <algorithm>
#include <cmath>

#include "core/nan.h"
#include "numerics/random.h"

namespace qkscope {
namespace {

// Keys [begin, end) of one example between which pairs are formed.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t pairs() const { return (end - begin) * (end - begin - 1) / 2; }
};

// Pair number `index` of the range, counted row by row below the diagonal.
Pair pair_at(const KeyRange& range, std::int64_t index) {
  auto second = static_cast<std::int64_t>((1 + std::sqrt(1 + 8 * static_cast<double>(index))) / 2);
  while (second * (second - 1) / 2 > index) --second;
  while ((second + 1) * second / 2 <= index) ++second;
  return {range.begin + index - second * (second - 1) / 2, range.begin + second};
}

std::int64_t count_pairs(std::span<const KeyRange> ranges) {
  std::int64_t total = 0;
  for (const auto& range : ranges) total += range.pairs();
  return total;
}

// A sample of `size` pairs, each example's share proportional to its pairs.
void add_sample(std::span<const KeyRange> ranges, std::int64_t size, std::uint64_t seed,
                PairEvaluator& evaluator) {
  const auto total = static_cast<double>(count_pairs(ranges));
  Random random(seed);
  double owed = 0;
  std::int64_t drawn = 0;
  for (const auto& range : ranges) {
    owed += static_cast<double>(size) * static_cast<double>(range.pairs()) / total;
    for (; drawn < std::llround(owed); ++drawn)
      evaluator.add(pair_at(range, static_cast<std::int64_t>(
                                       random.below(static_cast<std::uint64_t>(range.pairs())))));
  }
  evaluator.flush();
}

std::vector<std::int32_t> distinct(std::vector<std::int32_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// The keys of `bucket` in one example.
KeyRange range_of_bucket(const SortedKeys& keys, std::int64_t example, std::int32_t bucket) {
  const auto first = keys.bucket.begin() + keys.begin[static_cast<std::size_t>(example)];
  const auto last = keys.bucket.begin() + keys.begin[static_cast<std::size_t>(example) + 1];
  const auto [low, high] = std::equal_range(first, last, bucket);
  return {low - keys.bucket.begin(), high - keys.bucket.begin()};
}

std::vector<KeyRange> ranges_of_bucket(const SortedKeys& keys, std::int32_t bucket) {
  std::vector<KeyRange> ranges;
  for (std::int64_t e = 0; e < keys.examples(); ++e)
    ranges.push_back(range_of_bucket(keys, e, bucket));
  return ranges;
}

// The keys of each example that a query of the column may choose between.
std::vector<KeyRange> ranges_before_column(const SortedKeys& keys, const QueryColumns& columns,
                                           std::int64_t column,
                                           std::optional<std::int32_t> window) {
  std::vector<KeyRange> ranges;
  const auto at = static_cast<std::size_t>(column);
  for (std::int64_t e = 0; e < keys.examples(); ++e) {
    auto begin = keys.begin[static_cast<std::size_t>(e)];
    const auto last = keys.bucket.begin() + keys.begin[static_cast<std::size_t>(e) + 1];
    const auto end = std::lower_bound(keys.bucket.begin() + begin, last, columns.bucket[at]) -
                     keys.bucket.begin();
    while (window && begin < end &&
           keys.position[static_cast<std::size_t>(begin)] <= columns.position[at] - *window)
      ++begin;
    ranges.push_back({begin, end});
  }
  return ranges;
}

// Plasticity over the distance between the keys and from their midpoint to the query.
class Heatmap {
 public:
  Heatmap(double extent, int bins)
      : bins_(bins),
        width_(extent / bins),
        sum_(static_cast<std::size_t>(bins * bins)),
        weight_(static_cast<std::size_t>(bins * bins)),
        count_(static_cast<std::size_t>(bins * bins)) {}

  // The line of cells for keys so far apart.
  int row(double key_distance) const { return bin(key_distance) * bins_; }
  // `weight`: how many pairs this one stands for, more than one where it was drawn from many.
  void add(int row, double query_distance, double value, double weight) {
    const auto at = static_cast<std::size_t>(row) + static_cast<std::size_t>(bin(query_distance));
    sum_[at] += weight * value;
    weight_[at] += weight;
    ++count_[at];
  }

  std::vector<HeatmapCell> cells() const {
    std::vector<HeatmapCell> cells;
    for (int i = 0; i < bins_; ++i)
      for (int j = 0; j < bins_; ++j) {
        const auto at = static_cast<std::size_t>(i) * static_cast<std::size_t>(bins_) +
                        static_cast<std::size_t>(j);
        if (count_[at] == 0) continue;
        cells.push_back({i * width_, (i + 1) * width_, j * width_, (j + 1) * width_,
                         sum_[at] / weight_[at], count_[at]});
      }
    return cells;
  }

 private:
  int bin(double distance) const {
    const int whole = static_cast<int>(distance / width_);
    return std::max(0, std::min(whole, bins_ - 1));
  }

  int bins_;
  double width_;
  std::vector<double> sum_;          // weighted
  std::vector<double> weight_;       // in all
  std::vector<std::int64_t> count_;  // pairs evaluated
};

double context_length(const SortedKeys& keys, const QueryColumns& columns) {
  double longest = 0;
  for (const auto t : keys.position) longest = std::max(longest, static_cast<double>(t));
  for (const auto t : columns.position) longest = std::max(longest, t);
  return std::floor(longest) + 1;
}

}  // namespace

void ExampleSums::clear() {
  std::fill(sum_.data.begin(), sum_.data.end(), 0.0);
  std::fill(count_.data.begin(), count_.data.end(), 0.0);
}

MeanPlasticity ExampleSums::mean(std::int64_t column, std::int64_t eligible) const {
  double total = 0;
  double count = 0;
  double examples = 0;
  for (std::int64_t e = 0; e < sum_.rows; ++e) {
    total += sum_(e, column);
    count += count_(e, column);
    examples += count_(e, column) > 0 ? 1 : 0;
  }
  if (count == 0) return {kNan, kNan, 0, eligible};
  MeanPlasticity result{total / count, kNan, static_cast<std::int64_t>(count), eligible};
  if (examples < 2) return result;
  double spread = 0;
  for (std::int64_t e = 0; e < sum_.rows; ++e) {
    const double off = sum_(e, column) - result.ap * count_(e, column);
    spread += off * off;
  }
  result.stderr_ap = std::sqrt(examples / (examples - 1) * spread) / count;
  return result;
}

ProfileGroups ExampleSums::grouped(const TextGroups& groups,
                                   std::span<const std::int64_t> texts) const {
  const auto size = static_cast<std::size_t>(groups.size() * sum_.cols);
  ProfileGroups result{groups.size(), std::vector<double>(size), std::vector<double>(size)};
  for (std::int64_t e = 0; e < sum_.rows; ++e) {
    const auto to = static_cast<std::size_t>(groups.of(texts[static_cast<std::size_t>(e)])) *
                    static_cast<std::size_t>(sum_.cols);
    for (std::int64_t c = 0; c < sum_.cols; ++c) {
      result.sum[to + static_cast<std::size_t>(c)] += sum_(e, c);
      result.weight[to + static_cast<std::size_t>(c)] += count_(e, c);
    }
  }
  return result;
}

std::vector<BucketCell> bucket_table(const SortedKeys& keys, const QueryColumns& columns,
                                     const BucketRanges& ranges, const PlasticityOptions& options) {
  ExampleSums sums(keys.examples(), columns.size());
  PairEvaluator evaluator(keys, columns, [&](const PairBlock& block) {
    const double* value = block.plasticity.data();
    for (const Pair& pair : block.pairs)
      for (std::int64_t c = 0; c < block.columns; ++c)
        sums.add(keys.example[static_cast<std::size_t>(pair.first)], block.first_column + c,
                 *value++);
  });
  std::vector<BucketCell> table;
  for (const auto k_bucket : distinct(keys.bucket)) {
    const auto first = columns.after(k_bucket);
    const auto here = ranges_of_bucket(keys, k_bucket);
    const auto eligible = count_pairs(here);
    sums.clear();
    evaluator.set_columns(first, columns.size());
    if (eligible > options.max_pairs) {
      add_sample(here, options.max_pairs, options.seed ^ static_cast<std::uint64_t>(k_bucket),
                 evaluator);
    } else {
      for (const auto& range : here)
        for (auto j = range.begin; j < range.end; ++j)
          for (auto i = range.begin; i < j; ++i) evaluator.add({i, j});
      evaluator.flush();
    }
    for (auto c = first; c < columns.size(); ++c) {
      const auto q_bucket = columns.bucket[static_cast<std::size_t>(c)];
      if (options.sliding_window && !ranges.reaches(q_bucket, k_bucket, *options.sliding_window))
        continue;
      table.push_back({q_bucket, k_bucket, sums.mean(c, eligible)});
    }
  }
  std::sort(table.begin(), table.end(), [](const auto& x, const auto& y) {
    return std::pair(x.q_bucket, x.k_bucket) < std::pair(y.q_bucket, y.k_bucket);
  });
  return table;
}

ProfileTables profile_tables(const SortedKeys& keys, const QueryColumns& columns,
                             const TextGroups& groups, const PlasticityOptions& options) {
  const auto column_count = columns.size();
  std::vector<std::vector<KeyRange>> ranges;
  std::vector<std::int64_t> eligible;
  std::vector<char> sampled;
  std::vector<double> weight;  // pairs of the column that each evaluated one stands for
  for (std::int64_t c = 0; c < column_count; ++c) {
    ranges.push_back(ranges_before_column(keys, columns, c, options.sliding_window));
    eligible.push_back(count_pairs(ranges.back()));
    sampled.push_back(eligible.back() > options.max_pairs ? 1 : 0);
    weight.push_back(sampled.back() != 0 ? static_cast<double>(eligible.back()) /
                                               static_cast<double>(options.max_pairs)
                                         : 1.0);
  }
  // (examples, columns): the first key that counts; none in columns that will be sampled.
  std::vector<std::int64_t> first_key;
  for (std::size_t e = 0; e < static_cast<std::size_t>(keys.examples()); ++e)
    for (std::size_t c = 0; c < ranges.size(); ++c)
      first_key.push_back(sampled[c] != 0 ? keys.vectors.rows : ranges[c][e].begin);
  ExampleSums sums(keys.examples(), column_count);
  Heatmap heatmap(context_length(keys, columns), options.heatmap_bins);
  PairEvaluator evaluator(keys, columns, [&](const PairBlock& block) {
    const double* value = block.plasticity.data();
    for (const Pair& pair : block.pairs) {
      const auto example = keys.example[static_cast<std::size_t>(pair.first)];
      const double t1 = keys.position[static_cast<std::size_t>(pair.first)];
      const double t2 = keys.position[static_cast<std::size_t>(pair.second)];
      const auto row = heatmap.row(t2 - t1);
      const std::int64_t* const from = first_key.data() + example * column_count;
      for (std::int64_t c = block.first_column; c < block.first_column + block.columns; ++c) {
        const double plasticity = *value++;
        if (pair.first < from[c]) continue;
        sums.add(example, c, plasticity);
        heatmap.add(row, columns.position[static_cast<std::size_t>(c)] - 0.5 * (t1 + t2),
                    plasticity, weight[static_cast<std::size_t>(c)]);
      }
    }
  });
  // Pairs are grouped by the bucket of their later key: it decides from which column on they count.
  // A few examples at a time, so that their keys stay in the second cache.
  constexpr std::int64_t kExamples = 16;
  const auto buckets = distinct(keys.bucket);
  for (std::int64_t chunk = 0; chunk < keys.examples(); chunk += kExamples)
    for (const auto k_bucket : buckets) {
      auto first = columns.after(k_bucket);
      auto end = column_count;
      while (first < end && sampled[static_cast<std::size_t>(first)] != 0) ++first;
      while (end > first && sampled[static_cast<std::size_t>(end - 1)] != 0) --end;
      evaluator.set_columns(first, end);
      if (first == end) continue;
      for (auto e = chunk; e < std::min(chunk + kExamples, keys.examples()); ++e) {
        const auto later = range_of_bucket(keys, e, k_bucket);
        for (auto j = later.begin; j < later.end; ++j)
          for (auto i = keys.begin[static_cast<std::size_t>(e)]; i < j; ++i) evaluator.add({i, j});
      }
    }
  evaluator.flush();
  std::fill(first_key.begin(), first_key.end(), 0);  // a sample holds only pairs that count
  for (std::int64_t c = 0; c < column_count; ++c) {
    if (sampled[static_cast<std::size_t>(c)] == 0) continue;
    evaluator.set_columns(c, c + 1);
    add_sample(ranges[static_cast<std::size_t>(c)], options.max_pairs,
               options.seed ^ (static_cast<std::uint64_t>(c + 1) << 32), evaluator);
  }
  ProfileTables tables;
  for (std::int64_t c = 0; c < column_count; ++c)
    tables.profile.push_back(sums.mean(c, eligible[static_cast<std::size_t>(c)]));
  tables.groups = sums.grouped(groups, keys.text);
  tables.heatmap = heatmap.cells();
  return tables;
}

}  // namespace qkscope
