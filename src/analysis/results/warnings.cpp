#include "analysis/results/warnings.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/core/log.h"

namespace qkscope {
namespace {

constexpr int kRowsPerDimension = 10;
constexpr double kChance = 0.05;

bool has_few_rows_per_dimension(const HeadReport& head) {
  return head.n_q + head.n_k < std::int64_t{kRowsPerDimension} * head.dim;
}

bool within_chance(const HeadReport& head) {
  return head.rotation && head.rotation->null.position_r_p > kChance;
}

// Counts and extremes over the heads that a warning is about.
struct AffectedHeads {
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

std::vector<std::string> warnings_of(const AnalysisRun& run) {
  AffectedHeads few;
  AffectedHeads chance;
  std::int64_t analysed = 0;
  for (const auto& head : run.heads) {
    if (!head.error.empty()) continue;
    ++analysed;
    if (has_few_rows_per_dimension(head))
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

std::vector<std::string> notes_of(const AnalysisRun& run, const TaxonomyOptions& options) {
  std::int64_t positional = 0;
  std::map<int, std::int64_t> later;  // heads by component, without PC0
  std::int64_t on_later = 0;
  for (const auto& head : run.heads) {
    const int pc = head.pca ? position_component(*head.pca) : -1;
    if (pc < 0) continue;
    const auto& component = head.pca->components[static_cast<std::size_t>(pc)];
    if (std::min(std::fabs(component.q.r), std::fabs(component.k.r)) <= options.high) continue;
    ++positional;
    if (pc == 0) continue;
    ++later[pc];
    ++on_later;
  }
  if (2 * on_later <= positional) return {};
  const auto most = std::max_element(
      later.begin(), later.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return {fmt::format(
      "{} of {} heads whose queries and keys both follow position on one component (|r| above {}) "
      "do so on another one than PC0, most often PC{} ({} heads): class looks at PC0 alone; see "
      "class_axis and pc_position in taxonomy.csv",
      on_later, positional, options.high, most->first, most->second)};
}

}  // namespace

bool has_few_rows(const HeadReport& head) {
  return has_few_rows_per_dimension(head) || within_chance(head);
}

void add_messages(AnalysisRun& run, const AnalyzeOptions& options) {
  run.warnings = warnings_of(run);
  for (const auto& warning : run.warnings) log::warn("{}: {}", run.label, warning);
  run.notes = notes_of(run, options.taxonomy);
  for (const auto& note : run.notes) log::info("{}: {}", run.label, note);
}

}  // namespace qkscope
