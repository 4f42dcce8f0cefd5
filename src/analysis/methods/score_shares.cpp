#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "analysis/methods/geometry.h"
#include "analysis/methods/moments.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/numerics/matrix.h"
#include "base/numerics/products.h"
#include "base/numerics/random.h"

namespace qkscope {
namespace {

// A query and the keys that it attends to: earlier keys of the same text within the window.
struct QueryKeyRange {
  std::size_t query = 0;  // row of the queries
  std::size_t first = 0;  // keys [first, last) in sorted order
  std::size_t last = 0;
  int group = 0;  // of texts

  std::size_t count() const { return last - first; }
};

// Queries that attend to at least one captured key, and the row indices of all keys, sorted by text
// and position.
struct AttendedKeys {
  std::vector<std::size_t> keys;
  std::vector<QueryKeyRange> queries;
};

AttendedKeys attended_keys(const QueryKeyRows& rows) {
  const auto place = [](const RowsView& view, std::size_t i) {
    return std::pair(view.example(i), std::int64_t{view.position[i]});
  };
  AttendedKeys found{argsort_by_text_and_position(rows.keys), {}};
  const auto& keys = found.keys;
  std::size_t first = 0;
  std::size_t last = 0;
  for (const auto query : argsort_by_text_and_position(rows.queries)) {
    const auto [text, position] = place(rows.queries, query);
    const auto oldest = rows.window > 0 ? position - rows.window + 1 : std::int64_t{0};
    while (last < keys.size() && place(rows.keys, keys[last]) < std::pair(text, position)) ++last;
    while (first < last && place(rows.keys, keys[first]) < std::pair(text, oldest)) ++first;
    if (first < last) found.queries.push_back({query, first, last, rows.texts.group_of(text)});
  }
  return found;
}

std::vector<double> row_as_double(const RowsView& rows, std::size_t row) {
  const auto dim = as_index(rows.dim);
  const auto from = rows.vectors.subspan(row * dim, dim);
  return {from.begin(), from.end()};
}

// ---- Shares of the variance

// Distance bins: one per distance below 8, then four per octave.
constexpr std::int64_t kExactDistances = 8;
constexpr int kBinsPerOctave = 4;

std::size_t distance_bin(std::int64_t distance) {
  if (distance < kExactDistances) return as_index(distance);
  const double octaves = std::log2(static_cast<double>(distance)) - 3;
  return kExactDistances + static_cast<std::size_t>(kBinsPerOctave * octaves);
}

// Number, sum and sum of squares of the scores at one level of a factor (analysis of variance).
struct FactorLevelSums {
  double n = 0;
  double sum = 0;
  double square = 0;

  void add(double score) { *this += FactorLevelSums{1, score, score * score}; }
  void operator+=(const FactorLevelSums& other) {
    n += other.n;
    sum += other.sum;
    square += other.square;
  }
  double sum_of_squares_around_mean() const { return n > 0 ? square - sum * sum / n : 0; }
};

// Sampled (query, key) pairs: scores, and levels of the ANOVA factors distance, key and query.
struct ScoredPairs {
  std::vector<double> score;              // (pairs), minus the mean of all
  std::vector<int> group;                 // (pairs): group of texts
  std::vector<std::size_t> bin;           // (pairs): bin of the distance
  std::vector<std::size_t> shuffled_bin;  // (pairs): bin after permuting key positions
  std::vector<std::size_t> key;           // (pairs): key in sorted order
  std::vector<std::size_t> query;         // (pairs): row of the queries
};

// One-way analysis of variance of the scores, by group of texts.
class OneWayAnova {
 public:
  // `level` (pairs): level of the factor for each pair, for example the index of its key. `nested`:
  // all pairs of one level belong to the same group of texts, which holds for keys and queries.
  OneWayAnova(const ScoredPairs& pairs, const std::vector<std::size_t>& level, int groups,
              bool nested)
      : groups_(as_index(groups)), total_(groups_), within_(groups_), used_(groups_) {
    const auto levels = std::ranges::max(level) + 1;
    cells_.resize(nested ? levels : levels * groups_);
    std::vector<std::size_t> group_of_cell(cells_.size());
    for (std::size_t i = 0; i < level.size(); ++i) {
      const auto group = as_index(pairs.group[i]);
      const auto cell = nested ? level[i] : level[i] * groups_ + group;
      cells_[cell].add(pairs.score[i]);
      group_of_cell[cell] = group;
      total_[group].add(pairs.score[i]);
    }
    for (std::size_t cell = 0; nested && cell < cells_.size(); ++cell) {
      within_[group_of_cell[cell]] += cells_[cell].sum_of_squares_around_mean();
      used_[group_of_cell[cell]] += cells_[cell].n > 0 ? 1 : 0;
    }
    if (nested) cells_.clear();
  }

  // Omega squared: (SS_between - (levels - 1) MS_within) / (SS_total + MS_within). Excludes the
  // pairs of one group of texts, `without`; -1 excludes no pairs.
  double omega_squared(int without) const {
    FactorLevelSums all;
    double within = 0;
    double used = 0;
    for (std::size_t group = 0; group < groups_; ++group) {
      if (static_cast<int>(group) == without) continue;
      all += total_[group];
      within += within_[group];
      used += used_[group];
    }
    for (std::size_t begin = 0; begin < cells_.size(); begin += groups_) {
      FactorLevelSums level;
      for (std::size_t group = 0; group < groups_; ++group)
        if (static_cast<int>(group) != without) level += cells_[begin + group];
      within += level.sum_of_squares_around_mean();
      used += level.n > 0 ? 1 : 0;
    }
    const double total = all.sum_of_squares_around_mean();
    if (all.n <= used || !(total > 0)) return kNan;
    const double mean_within = within / (all.n - used);
    return (total - within - (used - 1) * mean_within) / (total + mean_within);
  }

 private:
  std::size_t groups_;
  std::vector<FactorLevelSums> total_;  // (groups)
  std::vector<double> within_;  // (groups): sum of squares within levels, of a nested factor
  std::vector<double> used_;    // (groups): levels with pairs, of a nested factor
  std::vector<FactorLevelSums> cells_;  // (levels, groups) of a factor that is not nested
};

// Returns the positions of the keys in `order`, shuffled among the keys of the same text.
std::vector<std::int64_t> permuted_positions(const RowsView& keys,
                                             const std::vector<std::size_t>& order,
                                             Random& random) {
  auto positions =
      to_vector(order, [&](std::size_t row) -> std::int64_t { return keys.position[row]; });
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && keys.example(order[end]) == keys.example(order[begin])) ++end;
    for (std::size_t i = end; i - begin > 1; --i)
      std::swap(positions[i - 1], positions[begin + random.next_below(i - begin)]);
  }
  return positions;
}

// Returns `draws` independent uniform numbers below `total` in ascending order, or every number if
// there are at most `draws`. Spacings of sorted uniform numbers are exponential.
std::vector<std::uint64_t> sample_ascending_integers(std::uint64_t draws, std::uint64_t total,
                                                     Random& random) {
  std::vector<std::uint64_t> drawn(std::min(draws, total));
  if (drawn.size() == total) {
    std::iota(drawn.begin(), drawn.end(), std::uint64_t{0});
    return drawn;
  }
  std::vector<double> reached;
  double sum = 0;
  for (std::size_t i = 0; i <= drawn.size(); ++i)
    reached.push_back(sum -= std::log(1 - random.uniform()));
  for (std::size_t i = 0; i < drawn.size(); ++i)
    drawn[i] = std::min(total - 1,
                        static_cast<std::uint64_t>(reached[i] / sum * static_cast<double>(total)));
  return drawn;
}

// Samples (query, attended key) pairs with replacement. If there are at most `draws` pairs, takes
// every pair once instead.
ScoredPairs sample_pairs(const QueryKeyRows& rows, const AttendedKeys& attended,
                         std::uint64_t draws, Random& random) {
  const auto& keys = attended.keys;
  const auto shuffled = permuted_positions(rows.keys, keys, random);
  std::uint64_t total = 0;
  for (const auto& query : attended.queries) total += query.count();
  const auto drawn = sample_ascending_integers(draws, total, random);
  ScoredPairs pairs;
  std::vector<double> vector;
  const auto dim = as_index(rows.keys.dim);
  std::uint64_t before = 0;  // number of (query, key) pairs of earlier queries
  auto next = drawn.begin();
  for (const auto& query : attended.queries) {
    vector.clear();
    const std::int64_t position = rows.queries.position[query.query];
    for (; next != drawn.end() && *next < before + query.count(); ++next) {
      if (vector.empty()) vector = row_as_double(rows.queries, query.query);
      const auto key = query.first + (*next - before);
      pairs.score.push_back(dot(rows.keys.vectors.subspan(keys[key] * dim, dim), vector));
      pairs.group.push_back(query.group);
      pairs.bin.push_back(distance_bin(position - rows.keys.position[keys[key]]));
      pairs.shuffled_bin.push_back(distance_bin(std::abs(position - shuffled[key])));
      pairs.key.push_back(key);
      pairs.query.push_back(query.query);
    }
    before += query.count();
  }
  const double mean = sum(pairs.score) / static_cast<double>(pairs.score.size());
  for (double& score : pairs.score) score -= mean;
  return pairs;
}

// ---- Swaps of keys

constexpr std::size_t kSwapKeys = 16;  // keys of a query, at most
constexpr std::size_t kLeastKeys = 6;  // three swaps
constexpr int kPairings = 2;           // random pairings of the keys of a query

// Sums of squares and products of x and y, centred within each query.
struct WithinQueryMoments {
  double xx = 0;
  double yy = 0;
  double xy = 0;

  void add(std::span<const double> x, std::span<const double> y) {
    const double n = static_cast<double>(x.size());
    xx += dot(x, x) - sum(x) * sum(x) / n;
    yy += dot(y, y) - sum(y) * sum(y) / n;
    xy += dot(x, y) - sum(x) * sum(y) / n;
  }
};

// The factor of a key's score (content or position) that swapping two keys leaves unchanged.
enum UnswappedFactor { kContent, kPosition, kNeither, kKeptFactors };
using SwapSums = std::array<WithinQueryMoments, kKeptFactors>;

// Returns the scores of one query, shape (content, position): element (i, j) is the score if the
// content of key i were at the position of key j.
Matrix content_position_scores(const QueryKeyRows& rows, const RotaryEmbedding& rope,
                               std::size_t query, std::span<const std::size_t> keys) {
  Matrix contents(std::ssize(keys), rows.keys.dim);
  Matrix queries(std::ssize(keys), rows.keys.dim);
  const auto q = row_as_double(rows.queries, query);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto k = row_as_double(rows.keys, keys[i]);
    const std::span<double> content(contents.row(static_cast<std::int64_t>(i)), k.size());
    const std::span<double> turned(queries.row(static_cast<std::int64_t>(i)), q.size());
    std::ranges::copy(k, content.begin());
    std::ranges::copy(q, turned.begin());
    // Rotating the query by -p equals rotating the content c by p: (R_p c).q = c.(R_-p q).
    const std::array<std::span<double>, 2> both = {content, turned};
    undo_rope(rope, rows.keys.position[keys[i]], both);
  }
  return multiply_by_transpose(contents, queries);
}

void shuffle_indices(std::span<std::size_t> values, Random& random) {
  for (auto i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.next_below(i)]);
}

// Adds the scores before and after swapping contents or positions of keys 2i and 2i + 1 in random
// pairings. The two keys of a pair are centred separately, so that no two scores of a sum share a
// key and independent scores have mean 0.
void add_swap_correlations(const Matrix& score, Random& random, SwapSums& sums) {
  std::vector<std::size_t> order(as_index(score.rows));
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto at = [&](std::size_t content, std::size_t position) {
    return score(static_cast<std::int64_t>(order[content]),
                 static_cast<std::int64_t>(order[position]));
  };
  for (int pairing = 0; pairing < kPairings; ++pairing) {
    shuffle_indices(order, random);
    for (const std::size_t side : {0, 1}) {
      std::vector<double> before;
      std::array<std::vector<double>, kKeptFactors> after;
      for (std::size_t i = 0; i + 1 < order.size(); i += 2) {
        const auto own = i + side;
        const auto other = i + 1 - side;
        before.push_back(at(own, own));
        after[kContent].push_back(at(own, other));
        after[kPosition].push_back(at(other, own));
        after[kNeither].push_back(at(other, (other + 2) % order.size()));
      }
      for (std::size_t kind = 0; kind < kKeptFactors; ++kind) sums[kind].add(before, after[kind]);
    }
  }
}

// Returns the within-query correlation between the scores before and after swapping keys. Leaves
// out the texts of one group; if `without` is -1, uses all texts.
double swap_correlation(const std::vector<SwapSums>& groups, UnswappedFactor kind, int without) {
  WithinQueryMoments total;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (static_cast<int>(group) == without) continue;
    total.xx += groups[group][kind].xx;
    total.yy += groups[group][kind].yy;
    total.xy += groups[group][kind].xy;
  }
  return total.xy / std::sqrt(total.xx * total.yy);
}

// Sets a column and its jackknife error: statistic(group) omits a group of texts, -1 omits none.
void set_column_with_error(const char* column, int groups,
                           const std::function<double(int)>& statistic, GeometryResult& result) {
  GeometryValue found{statistic(-1)};
  for (int group = 0; group < groups; ++group) found.without.push_back(statistic(group));
  found.se = jackknife_error(found.without);
  result.columns[column] = std::move(found);
}

void add_variance_shares(const QueryKeyRows& rows, const AttendedKeys& attended,
                         const GeometryOptions& options, Random& random, GeometryResult& result) {
  const auto pairs =
      sample_pairs(rows, attended, static_cast<std::uint64_t>(options.score_pairs), random);
  if (pairs.score.size() < 2) return;
  const int groups = rows.texts.size();
  const auto set_share = [&](const char* column, const std::vector<std::size_t>& levels,
                             bool nested) {
    const OneWayAnova factor(pairs, levels, groups, nested);
    set_column_with_error(
        column, groups, [&](int without) { return factor.omega_squared(without); }, result);
  };
  set_share("distance_share", pairs.bin, false);
  set_share("key_share", pairs.key, true);
  set_share("query_share", pairs.query, true);
  set_share("distance_share_null", pairs.shuffled_bin, false);
  result.set("residual_share", 1 - result.value("distance_share") - result.value("key_share") -
                                   result.value("query_share"));
}

void add_swap_scores(const QueryKeyRows& rows, AttendedKeys sorted, const RotaryEmbedding& rope,
                     const GeometryOptions& options, Random& random, GeometryResult& result) {
  const auto& keys = sorted.keys;
  auto& attended = sorted.queries;
  std::erase_if(attended, [](const QueryKeyRange& query) { return query.count() < kLeastKeys; });
  const auto queries = std::min(attended.size(), as_index(options.swap_queries));
  if (queries == 0) return;
  std::vector<SwapSums> groups(as_index(rows.texts.size()));
  for (std::size_t i = 0; i < queries; ++i) {
    std::swap(attended[i], attended[i + random.next_below(attended.size() - i)]);
    const auto& query = attended[i];
    std::vector<std::size_t> chosen(keys.begin() + static_cast<std::ptrdiff_t>(query.first),
                                    keys.begin() + static_cast<std::ptrdiff_t>(query.last));
    shuffle_indices(chosen, random);
    chosen.resize(std::min(kSwapKeys, chosen.size() / 2 * 2));
    add_swap_correlations(content_position_scores(rows, rope, query.query, chosen), random,
                          groups[as_index(query.group)]);
  }
  const auto correlation = [&](UnswappedFactor kind) {
    return [&groups, kind](int without) { return swap_correlation(groups, kind, without); };
  };
  set_column_with_error("symbolic_score", rows.texts.size(), correlation(kContent), result);
  set_column_with_error("positional_score", rows.texts.size(), correlation(kPosition), result);
  result.set("swap_null", swap_correlation(groups, kNeither, -1));
}

}  // namespace

void add_score_columns(const QueryKeyRows& rows, const RotaryEmbedding* rope,
                       const GeometryOptions& options, std::uint64_t seed, GeometryResult& result) {
  auto attended = attended_keys(rows);
  Random random(seed);
  add_variance_shares(rows, attended, options, random, result);
  if (rope != nullptr) add_swap_scores(rows, std::move(attended), *rope, options, random, result);
}

}  // namespace qkscope
