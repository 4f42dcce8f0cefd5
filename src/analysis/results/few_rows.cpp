#include "analysis/results/few_rows.h"

#include <algorithm>

#include <fmt/format.h>

namespace qkscope {
namespace {

constexpr int kRowsPerDimension = 10;
constexpr double kChance = 0.05;

bool below_rows(const HeadReport& head) {
  return head.n_q + head.n_k < std::int64_t{kRowsPerDimension} * head.dim;
}

bool within_chance(const HeadReport& head) {
  return head.rotation && head.rotation->null.position_r_p > kChance;
}

// Of the heads that `chosen` takes.
struct Found {
  std::int64_t heads = 0;
  std::int64_t least_rows = 0;
  std::int64_t most_rows = 0;
  int dim = 0;
  double by_chance = 0;  // the largest position_r_null

  void add(const HeadReport& head) {
    const auto rows = head.n_q + head.n_k;
    least_rows = heads == 0 ? rows : std::min(least_rows, rows);
    most_rows = std::max(most_rows, rows);
    dim = std::max(dim, head.dim);
    if (head.rotation && head.rotation->null.position_r > by_chance)
      by_chance = head.rotation->null.position_r;
    ++heads;
  }
};

}  // namespace

bool has_few_rows(const HeadReport& head) {
  return below_rows(head) || within_chance(head);
}

std::vector<std::string> warnings_of(const AnalysisRun& run) {
  Found few;
  Found chance;
  std::int64_t analysed = 0;
  for (const auto& head : run.heads) {
    if (!head.error.empty()) continue;
    ++analysed;
    if (below_rows(head))
      few.add(head);
    else if (within_chance(head))
      chance.add(head);
  }
  std::vector<std::string> warnings;
  if (few.heads > 0) {
    const auto rows = few.least_rows == few.most_rows
                          ? fmt::format("{}", few.least_rows)
                          : fmt::format("{} to {}", few.least_rows, few.most_rows);
    const auto reach =
        few.by_chance > 0
            ? fmt::format("; correlations along a reach {:.2f} by chance, see position_r_null",
                          few.by_chance)
            : std::string();
    warnings.push_back(fmt::format(
        "in {} of {} heads rows are few: {} queries and keys in {} dimensions, fewer than {} per "
        "dimension{}. Capture more texts or positions",
        few.heads, analysed, rows, few.dim, kRowsPerDimension, reach));
  }
  if (chance.heads > 0)
    warnings.push_back(fmt::format(
        "in {} of {} heads, though rows are enough, the correlation with position along a is no "
        "larger than shuffled "
        "positions give (position_r_p above {}): a and what is measured along it mean nothing "
        "there",
        chance.heads, analysed, kChance));
  return warnings;
}

}  // namespace qkscope
