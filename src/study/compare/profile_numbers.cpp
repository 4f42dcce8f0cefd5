#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "base/core/numbers.h"
#include "study/compare/quantities.h"

namespace qkscope {
namespace {

// Numeric columns of a table with several rows per head.
class ManyRows {
 public:
  ManyRows(const Table& table, const std::vector<std::string>& columns)
      : rows_(static_cast<std::size_t>(table.rows())) {
    layer_ = table.find("layer");
    head_ = table.find("head") != nullptr ? table.find("head") : table.find("q_head");
    whole_ = layer_ != nullptr && head_ != nullptr;
    for (const auto& name : columns) {
      columns_.push_back(table.find(name));
      whole_ = whole_ && columns_.back() != nullptr;
    }
  }

  bool has_all_columns() const { return whole_; }
  std::size_t count() const { return rows_; }
  std::pair<std::int64_t, std::int64_t> head(std::size_t row) const {
    return {layer_->integers[row], head_->integers[row]};
  }
  double number(std::size_t row, std::size_t column) const { return columns_[column]->number(row); }

 private:
  std::size_t rows_;
  const Table::Column* layer_ = nullptr;
  const Table::Column* head_ = nullptr;
  std::vector<const Table::Column*> columns_;
  bool whole_ = true;
};

// Calls visit(index of the run, rows, row) for every row of a table of every run. Returns false if
// the table or a column is missing.
bool for_each_row(RunNumbers& run, const std::string& name, const std::vector<std::string>& columns,
                  const std::function<void(std::size_t, const ManyRows&, std::size_t)>& visit) {
  const auto* tables = run.tables(name);
  if (tables == nullptr) return false;
  for (std::size_t i = 0; i < tables->size(); ++i) {
    const ManyRows rows((*tables)[i], columns);
    if (!rows.has_all_columns()) return false;
    for (std::size_t row = 0; row < rows.count(); ++row) visit(i, rows, row);
  }
  return true;
}

// Unweighted mean over the bins whose centre lies in the wanted bin. Fractions refer to the range
// from the first to the last bin with a value, as in ap_first20 and ap_last20.
double mean_over_bins(const HeadProfile& profile, const ProfileBin& wanted) {
  constexpr double kRounding = 1e-9;
  const double first = profile.values.front().low;
  const double range = profile.values.back().high - first;
  double sum = 0;
  int count = 0;
  for (const auto& value : profile.values) {
    const double place = wanted.fraction ? (value.middle() - first) / range : value.middle();
    // A centre on an edge belongs to the upper bin; the tolerance absorbs rounding of 0.3.
    if (place < wanted.low - kRounding || place >= wanted.high - kRounding) continue;
    sum += value.ap;
    ++count;
  }
  return count == 0 ? kNan : sum / count;
}

// Mean over all heads, or over the heads of one layer.
double mean_over_heads(const std::vector<HeadProfile>& profiles, std::optional<std::int64_t> layer,
                       const std::function<double(const HeadProfile&)>& of) {
  double sum = 0;
  int count = 0;
  for (const auto& profile : profiles) {
    if (layer && profile.layer != *layer) continue;
    const double value = of(profile);
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? kNan : sum / count;
}

constexpr char kNoProfile[] = "the results have no profile with bins (head_profile)";

std::string shown(const ProfileBin& bin) {
  return bin.fraction ? fmt::format("{:g} to {:g} % of the range", 100 * bin.low, 100 * bin.high)
                      : fmt::format("{:g} to {:g} tokens", bin.low, bin.high);
}

}  // namespace

OurNumber profile_number(const PublishedNumber& published, RunNumbers& run) {
  if (run.profiles().empty()) return no_number(kNoProfile);
  const auto of_head = [&](const HeadProfile& profile) {
    const double mean = mean_over_bins(profile, published.bin);
    return published.minus ? mean - mean_over_bins(profile, *published.minus) : mean;
  };
  OurNumber ours{.value = mean_over_heads(run.profiles(), published.layer, of_head),
                 .column = "head_profile ap, " + shown(published.bin)};
  if (published.minus) ours.column += " less " + shown(*published.minus);
  if (std::isnan(ours.value)) return no_number("no bin of our profile lies there");
  return ours;
}

OurNumber line_number(const PublishedNumber& published, RunNumbers& run) {
  if (run.profiles().empty()) return no_number(kNoProfile);
  const double middle = 0.5 * (published.bin.low + published.bin.high);
  const auto of_head = [&](const HeadProfile& profile) {
    for (const auto& bin : profile.values)
      if (bin.low <= middle && middle < bin.high) return bin.ap;
    return kNan;
  };
  const double value = mean_over_heads(run.profiles(), published.layer, of_head);
  if (std::isnan(value)) return no_number("no bin of our profile lies there");
  return {.value = value, .column = fmt::format("head_profile ap at {:.0f} tokens", middle)};
}

OurNumber heatmap_number(const PublishedNumber& published, RunNumbers& run) {
  double sum = 0;
  int count = 0;
  const auto same = [](double a, double b) {
    return std::fabs(a - b) < 0.5;
  };  // tolerance in tokens
  const bool there = for_each_row(
      run, "pair_heatmap", {"key_distance_low", "key_distance_high", "query_distance_low", "ap"},
      [&](std::size_t, const ManyRows& rows, std::size_t row) {
        const double ap = rows.number(row, 3);
        if (std::isnan(ap) || !same(rows.number(row, 0), published.bin.low) ||
            !same(rows.number(row, 1), published.bin.high) ||
            !same(rows.number(row, 2), static_cast<double>(published.index)))
          return;
        sum += ap;
        ++count;
      });
  if (!there) return no_number("the results have no table pair_heatmap");
  if (count == 0) return no_number("our heatmap has no such cell");
  return {.value = sum / count, .column = "mean of pair_heatmap ap"};
}

OurNumber weight_number(const PublishedNumber& published, RunNumbers& run) {
  double sum = 0;
  int count = 0;
  const bool there = for_each_row(run, "head_component_weights", {"component", "component_weight"},
                                  [&](std::size_t, const ManyRows& rows, std::size_t row) {
                                    const double weight = rows.number(row, 1);
                                    const auto index = static_cast<double>(published.index);
                                    if (std::isnan(weight) || rows.number(row, 0) != index) return;
                                    sum += weight;
                                    ++count;
                                  });
  if (!there) return no_number("the results have no table head_component_weights");
  if (count == 0) return no_number("our heads have no such dimension");
  return {.value = sum / count, .column = "mean of head_component_weights component_weight"};
}

OurNumber component_number(const PublishedNumber& published, RunNumbers& run) {
  const bool correlation = published.quantity.starts_with("correlation");
  const std::string column = correlation ? "correlation" : "explained_variance_ratio";
  double value = kNan;
  const bool there = for_each_row(
      run, "correlations", {"pca_dim", column},
      [&](std::size_t of_run, const ManyRows& rows, std::size_t row) {
        const auto& side = run.tables("correlations")->at(of_run).find("kind")->texts[row];
        if (rows.head(row) == std::pair(*published.layer, published.head) &&
            rows.number(row, 0) == static_cast<double>(published.index) &&
            side == std::string(1, published.side))
          value = rows.number(row, 1);
      });
  if (!there) return no_number("the results have no table correlations");
  if (std::isnan(value)) return no_number("this head was not analysed");
  return {.value = std::fabs(value),
          .column = correlation ? "correlations |correlation|" : "correlations " + column,
          .sizes = true};
}

OurNumber complement_share(RunNumbers& run, std::int64_t layer, std::int64_t head,
                           std::int64_t pair) {
  double share = kNan;
  const bool there = for_each_row(run, "complement", {"pair", "variance_share"},
                                  [&](std::size_t, const ManyRows& rows, std::size_t row) {
                                    if (rows.head(row) == std::pair(layer, head) &&
                                        rows.number(row, 0) == static_cast<double>(pair))
                                      share = rows.number(row, 1);
                                  });
  if (!there) return no_number("the results have no table complement");
  if (std::isnan(share))
    return no_number(fmt::format("layer {} head {} was not analysed", layer, head));
  return {.value = share,
          .column = fmt::format("complement variance_share of layer {} head {}", layer, head)};
}

}  // namespace qkscope
