#include <algorithm>
#include <cmath>
#include <map>

#include "base/core/numbers.h"
#include "base/io/folder.h"
#include "qkscope/tables.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

// A quantity that the analysis of the capture and the exact analysis both have.
struct SampledNumber {
  const char* name;
  const char* table;
  const char* column;
};
constexpr SampledNumber kNumbers[] = {{"r_q", "qk", "r_q"},
                                      {"r_k", "qk", "r_k"},
                                      {"pc0_variance", "qk", "explained_variance"},
                                      {"position_r", "rotated", "position_r"},
                                      {"r_q_a", "rotated", "r_q_a"},
                                      {"r_k_a", "rotated", "r_k_a"},
                                      {"bias_strength", "rotated", "bias_strength"},
                                      {"separation_strength", "rotated", "separation_strength"},
                                      {"plane_var_fraction", "rotated", "plane_var_fraction"},
                                      {"q_R2_pos", "head_metrics", "q_R2_pos"}};

using HeadPlace = std::pair<std::int64_t, std::int64_t>;  // layer, head

const Table::Column* head_column_of(const Table& table) {
  const auto* head = table.find("head");
  return head != nullptr ? head : table.find("q_head");
}

// Values by head; tables with several components contribute the first.
template <typename Take>
auto by_head(const Table& table, Take take) {
  std::map<HeadPlace, decltype(take(std::size_t{}))> values;
  const auto* layer = table.find("layer");
  const auto* head = head_column_of(table);
  const auto* component = table.find("pc");
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row)
    if (component == nullptr || component->integers[row] == 0)
      values[{layer->integers[row], head->integers[row]}] = take(row);
  return values;
}

std::map<HeadPlace, double> numbers_in(const std::string& folder, const SampledNumber& wanted) {
  const auto file = folder + "/" + wanted.table + ".parquet";
  if (!path_exists(file)) return {};
  const Table table = read_parquet_table_with_gaps(file);
  const auto* column = table.find(wanted.column);
  if (column == nullptr) return {};
  return by_head(table, [&](std::size_t row) { return column->number(row); });
}

std::map<HeadPlace, std::string> classes_in(const std::string& folder) {
  const auto file = folder + "/taxonomy.parquet";
  if (!path_exists(file)) return {};
  const Table table = read_parquet_table(file, {"layer", "head", "class"});
  return by_head(table, [&](std::size_t row) { return table.find("class")->texts[row]; });
}

// Accumulates differences over the heads that both analyses have.
struct Difference {
  std::int64_t heads = 0;
  double sampled = 0;
  double exact = 0;
  double squares = 0;
  double largest = 0;

  void add(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return;
    ++heads;
    sampled += a;
    exact += b;
    squares += (a - b) * (a - b);
    largest = std::max(largest, std::fabs(a - b));
  }
};

void add_numbers(Table& table, const RunEntry& run, const SampledNumber& number,
                 const std::map<HeadPlace, double>& sampled,
                 const std::map<HeadPlace, double>& exact) {
  Difference all;
  for (const auto& [place, value] : sampled)
    if (const auto found = exact.find(place); found != exact.end()) all.add(value, found->second);
  if (all.heads == 0) return;
  const auto n = static_cast<double>(all.heads);
  table.add({run.label, run.phase, run.order, std::string(number.name), all.heads, all.sampled / n,
             all.exact / n, (all.sampled - all.exact) / n, std::sqrt(all.squares / n),
             all.largest});
}

// Adds the fraction of heads whose class differs, in the column `difference`.
void add_classes(Table& table, const RunEntry& run, const std::map<HeadPlace, std::string>& sampled,
                 const std::map<HeadPlace, std::string>& exact) {
  std::int64_t heads = 0;
  std::int64_t changed = 0;
  for (const auto& [place, name] : sampled) {
    const auto found = exact.find(place);
    if (found == exact.end() || name.empty() || found->second.empty()) continue;
    ++heads;
    changed += name != found->second ? 1 : 0;
  }
  if (heads > 0)
    table.add({run.label, run.phase, run.order, std::string("class_changed"), heads, kNan, kNan,
               static_cast<double>(changed) / static_cast<double>(heads), kNan, kNan});
}

}  // namespace

Table sampling_table(const SweepFolder& folder, const std::vector<RunEntry>& runs) {
  using enum Table::Type;
  Table table;
  table.column("model", text).column("phase", text).column("order", integer);
  table.column("quantity", text).column("heads", integer);
  for (const char* name : {"sampled", "exact", "difference", "rms_of_heads", "largest_of_heads"})
    table.column(name, real);
  for (const auto& run : runs) {
    const auto sampled = folder.results(run.label);
    const auto exact = folder.exact_results(run.label);
    if (!path_exists(exact + "/summary.json")) continue;
    for (const auto& number : kNumbers)
      add_numbers(table, run, number, numbers_in(sampled, number), numbers_in(exact, number));
    add_classes(table, run, classes_in(sampled), classes_in(exact));
  }
  return table;
}

}  // namespace qkscope
