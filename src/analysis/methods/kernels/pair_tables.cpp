#include "analysis/methods/kernels/pair_tables.h"

#include <algorithm>
#include <cmath>

#include "base/core/numbers.h"
#include "base/numerics/normal.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

std::int64_t count_pairs(std::span<const KeyRange> ranges) {
  std::int64_t total = 0;
  for (const auto& range : ranges) total += range.key_pair_count();
  return total;
}

// Evaluates a seeded random sample of `size` pairs of keys. The number of pairs drawn from each key
// range is proportional to the number of pairs in the range.
void evaluate_pair_sample(std::span<const KeyRange> ranges, std::int64_t size, std::uint64_t seed,
                          ZScoreEvaluator& evaluator) {
  const auto total = static_cast<double>(count_pairs(ranges));
  Random random(seed);
  double owed = 0;
  std::int64_t drawn = 0;
  for (const auto& range : ranges) {
    owed += static_cast<double>(size) * static_cast<double>(range.key_pair_count()) / total;
    for (; drawn < std::llround(owed); ++drawn)
      evaluator.add_pair(range.nth_pair(static_cast<std::int64_t>(
          random.next_below(static_cast<std::uint64_t>(range.key_pair_count())))));
    evaluator.flush();
  }
}

// Computes the plasticity of a tile of key pairs at ranges of query points.
class PlasticityEvaluator {
 public:
  explicit PlasticityEvaluator(const QueryEvaluationPoints& points)
      : column_(points.column),
        fraction_(points.fraction.begin(), points.fraction.end()),
        running_(as_index((kMostPoints + 1) * kMostLanes)),
        total_(as_index(kMostPoints)) {}

  // Evaluates query points [first, end) in parts of at most kMostPoints points: computes the prefix
  // sums and totals of a part, then calls body(part). range_of(pair) returns the points at which a
  // pair of keys is eligible.
  template <typename RangeOf, typename Body>
  void evaluate_tile(const KeyPairZScores& tile, std::int64_t first, std::int64_t end,
                     const RangeOf& range_of, const Body& body) {
    for (; first < end; first += kMostPoints) {
      QueryRangesPerSimdLane part{static_cast<std::int32_t>(first),
                                  static_cast<std::int32_t>(std::min(end, first + kMostPoints))};
      std::fill_n(part.lane_first, kMostLanes, part.first);
      std::fill_n(part.lane_end, kMostLanes, part.end);
      for (std::size_t p = 0; p < tile.pairs.size(); ++p) {
        const auto [from, to] = range_of(tile.pairs[p]);
        part.lane_first[p] = std::clamp(static_cast<std::int32_t>(from), part.first, part.end);
        part.lane_end[p] = std::clamp(static_cast<std::int32_t>(to), part.first, part.end);
      }
      accumulate_plasticity(
          {tile.z, tile.columns, tile.lanes, static_cast<std::int32_t>(tile.first_column),
           column_.data(), fraction_.data()},
          part, running_.data(), total_.data());
      body(part);
    }
  }
  // Returns prefix sums of plasticity over a range of query points, shape (points + 1, lanes).
  const std::uint32_t* prefix_sums() const { return running_.data(); }
  // Adds the plasticity of all pairs at each point of `part` to `sum`, shape (all query points).
  void add_totals(const QueryRangesPerSimdLane& part, double* sum) const {
    for (auto i = part.first; i < part.end; ++i)
      sum[i] += kPlasticityUnit * total_.data()[i - part.first];
  }

 private:
  const std::vector<std::int32_t>& column_;  // (points)
  std::vector<float> fraction_;              // (points)
  std::vector<std::uint32_t> running_;
  std::vector<std::uint32_t> total_;  // (points): sums over pairs
};

// Accumulates the plasticity of all eligible pairs by text and query point, and in the heat map.
class PlasticityProfileSums {
 public:
  PlasticityProfileSums(const PlasticityTableInput& source, const PlasticityOptions& options)
      : keys_(source.by_bin),
        points_(source.at_bins.points),
        options_(options),
        keys_before_(source.eligible),
        first_column_(points_.column),
        last_column_(points_.column),
        plasticity_(points_),
        sums_(keys_.example_count(), points_.size()),
        heatmap_(source.extent, options.heatmap_bins, points_.position),
        evaluator_(source.at_bins.columns,
                   [this](const KeyPairZScores& tile) { add_score_tile(tile); }) {
    const auto columns = static_cast<std::int32_t>(source.at_bins.columns.size());
    first_column_.push_back(columns);
    last_column_.insert(last_column_.begin(), -1);
    for (auto c = points_.column.size(); c > 0; --c)
      first_column_[c - 1] = std::min(first_column_[c - 1], first_column_[c]);
    for (std::size_t c = 1; c < last_column_.size(); ++c)
      last_column_[c] = std::max(std::min(last_column_[c] + 1, columns - 1), last_column_[c - 1]);
    eligible_.resize(points_.column.size());
    for (std::int64_t e = 0; e < keys_.example_count(); ++e)
      for (std::int64_t c = 0; c < points_.size(); ++c)
        eligible_[as_index(c)] += keys_before_.key_range(e, c).key_pair_count();
    for (std::int64_t c = 0; c < points_.size(); ++c) {
      if (is_sampled(c)) continue;
      if (at_work_.empty() || at_work_.back().end != c) at_work_.push_back({c, c});
      ++at_work_.back().end;
    }
  }

  // Adds all key pairs of texts [first, end), at points with at most max_pairs eligible pairs.
  void add_texts(const KeyTile& block, std::int64_t first, std::int64_t end) {
    if (at_work_.empty()) return;
    evaluator_.set_keys(block);
    for (auto e = first; e < end; ++e) {
      for (std::int64_t c = 0; c < points_.size(); ++c)
        if (!is_sampled(c))
          sums_.add_pair_count(e, c, keys_before_.key_range(e, c).key_pair_count());
      add_example(e);
    }
  }

  // Adds a seeded random sample of pairs at each point with more than max_pairs eligible pairs.
  void add_sampled_pairs(const KeyTile& all) {
    for (std::int64_t c = 0; c < points_.size(); ++c) {
      if (!is_sampled(c)) continue;
      if (!drawing_) evaluator_.set_keys(all);
      drawing_ = true;
      const auto at = as_index(c);
      at_work_ = {{c, c + 1}};
      heatmap_.set_pair_weight(static_cast<double>(eligible_[at]) /
                               static_cast<double>(options_.max_pairs));
      evaluator_.set_column_range(points_.column[at], last_column_[at + 1] + 1);
      evaluate_pair_sample(eligible_key_ranges(c), options_.max_pairs,
                           options_.seed ^ (static_cast<std::uint64_t>(c + 1) << 32), evaluator_);
    }
  }

  PlasticityProfileTables take_tables(const JackknifeGroups& groups) {
    PlasticityProfileTables tables;
    for (std::int64_t c = 0; c < points_.size(); ++c)
      tables.profile.push_back(sums_.mean_at_point(c, eligible_[as_index(c)]));
    tables.groups = sums_.sum_by_text_group(groups, keys_.text);
    tables.texts = std::move(sums_);
    tables.heatmap = heatmap_.cells();
    return tables;
  }

 private:
  // Query points [first, end) at which a pair of keys is eligible.
  struct PointRange {
    std::int64_t first = 0;
    std::int64_t end = 0;
  };

  bool is_sampled(std::int64_t point) const {
    return eligible_[as_index(point)] > options_.max_pairs;
  }

  std::vector<KeyRange> eligible_key_ranges(std::int64_t point) const {
    std::vector<KeyRange> ranges;
    for (std::int64_t e = 0; e < keys_.example_count(); ++e)
      ranges.push_back(keys_before_.key_range(e, point));
    return ranges;
  }

  void add_score_tile(const KeyPairZScores& tile) {
    PointRange all = eligible_points(tile.pairs.front());
    for (const auto& pair : tile.pairs) {
      all.first = std::min(all.first, eligible_points(pair).first);
      all.end = std::max(all.end, eligible_points(pair).end);
    }
    for (const auto& stretch : at_work_)
      plasticity_.evaluate_tile(
          tile, std::max(all.first, stretch.first), std::min(all.end, stretch.end),
          [this](const KeyPair& pair) { return eligible_points(pair); },
          [&](const QueryRangesPerSimdLane& part) { add_point_range(tile, part); });
  }

  void add_point_range(const KeyPairZScores& tile, const QueryRangesPerSimdLane& part) {
    const auto example = keys_.example[as_index(tile.pairs.front().first)];
    for (std::size_t p = 0; p < tile.pairs.size(); ++p) {
      const KeyPair& pair = tile.pairs[p];
      const std::uint32_t* const running = plasticity_.prefix_sums() + p;
      heatmap_.add_key_pair({static_cast<double>(keys_.position[as_index(pair.first)]),
                             static_cast<double>(keys_.position[as_index(pair.second)]),
                             part.lane_first[p], part.lane_end[p],
                             running + (part.lane_first[p] - part.first) * tile.lanes, tile.lanes});
    }
    plasticity_.add_totals(part, sums_.sums_of_example(example));
    if (drawing_) sums_.add_pair_count(example, part.first, std::ssize(tile.pairs));
  }

  PointRange eligible_points(const KeyPair& pair) const {
    return {keys_before_.first_eligible_point(pair.second),
            keys_before_.end_of_eligible_points(pair.first)};
  }

  // Queues the pairs of one text by ascending later key, so that the pairs of a tile share most of
  // the query points at which they are eligible. Starts a new tile if the first points of a key and
  // of the tile differ by more than a quarter of the number of points where the key is eligible.
  void add_example(std::int64_t example) {
    const auto begin = keys_.begin[as_index(example)];
    const auto last = keys_.begin[as_index(example) + 1];
    std::int64_t tile_first = 0;  // first point of the tile
    for (auto j = begin; j < last; ++j) {
      const auto first = std::max(at_work_.front().first, keys_before_.first_eligible_point(j));
      const auto end = std::min(at_work_.back().end, keys_before_.end_of_eligible_points(j));
      if (first >= end) continue;
      if (4 * (first - tile_first) > end - first) evaluator_.flush();
      if (evaluator_.empty()) tile_first = first;
      evaluator_.set_column_range(first_column_[as_index(first)], last_column_[as_index(end)] + 1);
      for (auto i = keys_before_.key_range(example, first).begin; i < j; ++i) {
        evaluator_.add_pair({i, j});
        if (evaluator_.empty()) tile_first = first;
      }
    }
    evaluator_.flush();
  }

  const SortedKeys& keys_;
  const QueryEvaluationPoints& points_;
  const PlasticityOptions& options_;
  const EligibleKeys& keys_before_;
  std::vector<std::int64_t> eligible_;      // (points): number of eligible pairs
  std::vector<std::int32_t> first_column_;  // (points + 1): smallest column that points >= i use
  std::vector<std::int32_t> last_column_;   // (points + 1): largest column that points < i use
  PlasticityEvaluator plasticity_;
  std::vector<PointRange> at_work_;  // ranges of points being evaluated
  bool drawing_ = false;             // sampling: at_work_ is one point
  PlasticitySumsByText sums_;
  PlasticityHeatmap heatmap_;
  ZScoreEvaluator evaluator_;
};

// A range of at least two keys in the same text and bucket.
struct BucketKeyRange {
  KeyRange keys;
  std::size_t bucket = 0;  // index into the distinct bucket numbers
};

std::vector<BucketKeyRange> find_bucket_key_ranges(const SortedKeys& keys,
                                                   const DistinctIntegers& buckets) {
  std::vector<BucketKeyRange> runs;
  const auto count = std::ssize(keys.bin);
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    const auto at = as_index(begin);
    end = begin + 1;
    while (end < count && keys.bin[as_index(end)] == keys.bin[at] &&
           keys.example[as_index(end)] == keys.example[at])
      ++end;
    if (end - begin > 1) runs.push_back({{begin, end}, as_index(buckets.place[at])});
  }
  return runs;
}

// Sums of plasticity over pairs of keys in the same bucket, for every later query bucket.
class BucketPlasticitySums {
 public:
  BucketPlasticitySums(const SortedKeys& keys, const QueryModelsAtPoints& queries,
                       const PlasticityOptions& options)
      : points_(queries.points),
        options_(options),
        numbers_(keys.bin),
        runs_(find_bucket_key_ranges(keys, numbers_)),
        row_(keys.bin.size()),
        plasticity_(points_),
        evaluator_(queries.columns, [this](const KeyPairZScores& tile) { add_score_tile(tile); }) {
    for (const auto number : numbers_.numbers) {
      buckets_.emplace_back();
      buckets_.back().number = number;
      buckets_.back().first = std::ranges::upper_bound(points_.bin, number) - points_.bin.begin();
    }
    for (const auto& run : runs_) {
      Bucket& bucket = buckets_[run.bucket];
      for (auto key = run.keys.begin; key < run.keys.end; ++key)
        row_[as_index(key)] = std::ssize(bucket.runs);
      bucket.runs.push_back(run.keys);
      bucket.eligible += run.keys.key_pair_count();
    }
    for (auto& bucket : buckets_) {
      bucket.sampled = bucket.eligible > options.max_pairs && bucket.first < points_.size();
      bucket.sums = PlasticitySumsByText(std::ssize(bucket.runs), points_.size());
    }
  }

  // Adds all pairs in buckets with at most max_pairs pairs. Tiles must come in ascending order.
  void add_texts(const KeyTile& block) {
    evaluator_.set_keys(block);
    const auto end = block.first + block.count;
    for (; next_run_ < runs_.size() && runs_[next_run_].keys.begin < end; ++next_run_) {
      const BucketKeyRange& run = runs_[next_run_];
      const Bucket& bucket = buckets_[run.bucket];
      if (bucket.first == points_.size() || bucket.sampled) continue;
      for (auto j = run.keys.begin; j < run.keys.end; ++j)
        for (auto i = run.keys.begin; i < j; ++i) evaluator_.add_pair({i, j});
    }
    evaluator_.flush();
  }

  // Adds a seeded random sample of max_pairs pairs for each bucket that has more pairs.
  void add_sampled_pairs(const KeyTile& all) {
    if (std::ranges::any_of(buckets_, &Bucket::sampled)) evaluator_.set_keys(all);
    for (const auto& bucket : buckets_)
      if (bucket.sampled)
        evaluate_pair_sample(bucket.runs, options_.max_pairs,
                             options_.seed ^ static_cast<std::uint64_t>(bucket.number), evaluator_);
  }

  std::vector<BucketCell> cells(const BucketRanges& ranges) const {
    std::vector<BucketCell> cells;
    for (std::int64_t c = 0; c < points_.size(); ++c)
      for (const auto& bucket : buckets_) {
        const auto q_bucket = points_.bin[as_index(c)];
        if (c < bucket.first) continue;
        if (options_.sliding_window &&
            !ranges.window_reaches_bucket(q_bucket, bucket.number, *options_.sliding_window))
          continue;
        cells.push_back({q_bucket, bucket.number, bucket.sums.mean_at_point(c, bucket.eligible)});
      }
    return cells;
  }

 private:
  struct Bucket {
    std::int32_t number = 0;
    std::int64_t first = 0;     // first query point after the bucket
    std::int64_t eligible = 0;  // number of pairs
    bool sampled = false;
    std::vector<KeyRange> runs;
    PlasticitySumsByText sums{0, 0};  // one row per text that has pairs
  };

  void add_score_tile(const KeyPairZScores& tile) {
    const auto bucket_of = [this](const KeyPair& pair) -> Bucket& {
      return buckets_[as_index(numbers_.place[as_index(pair.first)])];
    };
    auto first = points_.size();
    for (const auto& pair : tile.pairs) first = std::min(first, bucket_of(pair).first);
    plasticity_.evaluate_tile(
        tile, first, points_.size(),
        [&](const KeyPair& pair) { return std::pair(bucket_of(pair).first, points_.size()); },
        [&](const QueryRangesPerSimdLane& part) {
          for (std::size_t p = 0; p < tile.pairs.size(); ++p) {
            const auto row = row_[as_index(tile.pairs[p].first)];
            PlasticitySumsByText& sums = bucket_of(tile.pairs[p]).sums;
            const std::uint32_t* running = plasticity_.prefix_sums() + p;
            for (auto c = part.first; c < part.end; ++c, running += tile.lanes) {
              sums.sums_of_example(row)[c] += kPlasticityUnit * (running[tile.lanes] - running[0]);
              if (c >= part.lane_first[p]) sums.add_pair_count(row, c, 1);
            }
          }
        });
  }

  const QueryEvaluationPoints& points_;
  const PlasticityOptions& options_;
  DistinctIntegers numbers_;
  std::vector<BucketKeyRange> runs_;
  std::size_t next_run_ = 0;  // first run of the next tile
  std::vector<Bucket> buckets_;
  std::vector<std::int64_t> row_;  // (keys): row in the bucket's sums
  PlasticityEvaluator plasticity_;
  ZScoreEvaluator evaluator_;
};

// Calls body(tile, first, end) with the keys of texts [first, end). Combines short texts into one
// tile that stays in the L2 cache while its pairs are compared.
template <typename Body>
void for_each_key_tile(const KeyTile& keys, const SortedKeys& sorted, const Body& body) {
  constexpr std::int64_t kKeysTogether = 128;
  const auto begin = [&](std::int64_t text) { return sorted.begin[as_index(text)]; };
  for (std::int64_t first = 0, end = 0; first < sorted.example_count(); first = end) {
    end = first + 1;
    while (end < sorted.example_count() && begin(end + 1) - begin(first) <= kKeysTogether) ++end;
    body(keys.slice(begin(first), begin(end)), first, end);
  }
}

}  // namespace

double PlasticitySumsByGroup::mean_without_group(std::size_t group, std::size_t point) const {
  const auto points = sum.size() / as_index(groups);
  double total = 0;
  double pairs = 0;
  for (std::size_t at = point; at < sum.size(); at += points) {
    if (at == group * points + point) continue;
    total += sum[at];
    pairs += weight[at];
  }
  return total / pairs;
}

MeanPlasticity PlasticitySumsByText::mean_at_point(std::int64_t point,
                                                   std::int64_t eligible) const {
  double total = 0;
  double count = 0;
  double examples = 0;
  for (std::int64_t e = 0; e < sum_.rows; ++e) {
    total += sum_(e, point);
    count += count_(e, point);
    examples += count_(e, point) > 0 ? 1 : 0;
  }
  if (count == 0) return {kNan, kNan, 0, eligible};
  MeanPlasticity result{total / count, kNan, static_cast<std::int64_t>(count), eligible};
  if (examples < 2) return result;
  double spread = 0;
  for (std::int64_t e = 0; e < sum_.rows; ++e) {
    const double off = sum_(e, point) - result.ap * count_(e, point);
    spread += off * off;
  }
  result.stderr_ap = std::sqrt(examples / (examples - 1) * spread) / count;
  return result;
}

PlasticitySumsByGroup PlasticitySumsByText::sum_by_text_group(
    const JackknifeGroups& groups, std::span<const std::int64_t> texts) const {
  const auto size = as_index(groups.size() * sum_.cols);
  PlasticitySumsByGroup result{groups.size(), std::vector<double>(size), std::vector<double>(size)};
  for (std::int64_t e = 0; e < sum_.rows; ++e) {
    const auto to = as_index(groups.group_of(texts[as_index(e)])) * as_index(sum_.cols);
    for (std::int64_t c = 0; c < sum_.cols; ++c) {
      result.sum[to + as_index(c)] += sum_(e, c);
      result.weight[to + as_index(c)] += count_(e, c);
    }
  }
  return result;
}

BucketAndProfileTables compute_plasticity_tables(const PlasticityTableInput& source,
                                                 const PlasticityOptions& options) {
  BucketPlasticitySums buckets(source.by_bucket, source.at_buckets, options);
  PlasticityProfileSums profile(source, options);
  for_each_key_tile(source.keys, source.by_bin, [&](const KeyTile& tile, auto first, auto end) {
    profile.add_texts(tile, first, end);
  });
  profile.add_sampled_pairs(source.keys);
  const bool same_order = source.by_bucket.row == source.by_bin.row;
  FloatMatrix other;
  if (!same_order) other = rotate_and_scale_keys(source.rows, source.model, source.by_bucket.row);
  const KeyTile by_bucket = same_order ? source.keys : KeyTile(other);
  for_each_key_tile(by_bucket, source.by_bucket,
                    [&](const KeyTile& tile, auto, auto) { buckets.add_texts(tile); });
  buckets.add_sampled_pairs(by_bucket);
  return {buckets.cells(source.ranges), profile.take_tables(source.groups)};
}

}  // namespace qkscope
