#include "study/published.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "core/edge.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "io/data_folder.h"
#include "io/folder.h"
#include "study/sweep_folder.h"
#include "study/sweep_tables.h"
#include "tables/csv.h"

namespace qkscope {
namespace {

constexpr std::string_view kEnding = ".csv";

// The files that hold sets, by the name of the set. Earlier data folders win.
std::map<std::string, std::string> published_files() {
  std::map<std::string, std::string> files;
  for (const auto& data : data_folders()) {
    const auto folder = data + "/published";
    if (!is_folder(folder)) continue;
    for (const auto& name : names_in(folder))
      if (name.ends_with(kEnding))
        files.emplace(name.substr(0, name.size() - kEnding.size()), folder + "/" + name);
  }
  return files;
}

std::string find_published(const std::string& name) {
  const auto files = published_files();
  if (files.empty())
    bad_input(
        "the published numbers are not there; looked in {}. Set QKSCOPE_DATA to the folder "
        "share/qkscope of an installation",
        fmt::join(data_folders(), " and "));
  const auto found = files.find(name);
  if (found != files.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [set, file] : files) known.push_back(set);
  bad_input("--published {}: known {} {}", in_quotes(name), known.size() == 1 ? "is" : "are",
            fmt::join(known, ", "));
}

// Adds one row of a file to the runs that were read before it.
void add_number(std::vector<PublishedRun>& runs, const PublishedRun& run,
                const std::string& measure, double value, const std::string& where) {
  const auto& measures = overview_measures();
  if (std::find(measures.begin(), measures.end(), measure) == measures.end()) {
    const auto near = nearest(measure, measures);
    bad_input("{}: {} is not a measure of an overview{}", where, in_quotes(measure),
              near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
  if (!std::isfinite(value)) bad_input("{}: the value is missing, expected a number", where);
  auto found = std::find_if(runs.begin(), runs.end(),
                            [&](const PublishedRun& other) { return other.label == run.label; });
  if (found == runs.end()) found = runs.insert(runs.end(), run);
  if (found->phase != run.phase)
    bad_input("{}: {} is in phase {}, above in {}", where, run.label, in_quotes(run.phase),
              in_quotes(found->phase));
  if (!found->values.emplace(measure, value).second)
    bad_input("{}: {} of {} is there twice", where, measure, run.label);
}

const OverviewRow* find_label(const std::vector<const OverviewRow*>& rows,
                              const std::string& label) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const OverviewRow* row) { return row->label == label; });
  return found == rows.end() ? nullptr : *found;
}

Table difference_table(const Comparison& comparison) {
  Table table;
  table.column("measure", Table::Type::text)
      .column("checkpoint", Table::Type::text)
      .column("model", Table::Type::text)
      .column("published", Table::Type::real)
      .column("ours", Table::Type::real)
      .column("difference", Table::Type::real);
  for (const auto& measure : overview_measures())
    for (const auto& run : comparison.runs) {
      const auto found = run.published->values.find(measure);
      if (found == run.published->values.end()) continue;
      const double ours = run.ours ? run.ours->value(measure) : std::nan("");
      table.add({measure, run.published->label, run.ours ? run.ours->label : "", found->second,
                 ours, ours - found->second});
    }
  return table;
}

}  // namespace

std::vector<PublishedRun> read_published(const std::string& name) {
  const auto file = find_published(name);
  using Type = Table::Type;
  const auto table = read_csv_table(file, {{"model", Type::text},
                                           {"phase", Type::text},
                                           {"measure", Type::text},
                                           {"value", Type::real}});
  if (table.rows() == 0) bad_input("{}: holds no numbers", file);
  const auto& columns = table.columns();
  std::vector<PublishedRun> runs;
  for (std::size_t i = 0; i < static_cast<std::size_t>(table.rows()); ++i) {
    const auto where = fmt::format("{}: row {}", file, i + 2);  // the header is row 1
    add_number(runs, {columns[0].texts[i], columns[1].texts[i], {}}, columns[2].texts[i],
               columns[3].reals[i], where);
  }
  return runs;
}

Comparison match_runs(const std::vector<PublishedRun>& published,
                      const std::vector<OverviewRow>& rows) {
  std::vector<const OverviewRow*> whole;  // in the order of the runs
  for (const auto& row : rows)
    if (row.layers == "all") whole.push_back(&row);
  Comparison comparison;
  bool any = false;
  for (const auto& run : published) {
    const auto* ours = find_label(whole, run.label);
    any = any || ours != nullptr;
    comparison.runs.push_back({&run, ours});
  }
  if (any) return comparison;
  comparison.by_label = false;
  if (whole.size() != published.size())
    bad_input(
        "no run has the label of a published checkpoint ({} to {}), and {} finished runs cannot be "
        "matched with {} checkpoints by their order",
        published.front().label, published.back().label, whole.size(), published.size());
  for (std::size_t i = 0; i < whole.size(); ++i) comparison.runs[i].ours = whole[i];
  return comparison;
}

std::vector<std::string> published_sets() {
  return at_edge([] {
    std::vector<std::string> names;
    for (const auto& [name, file] : published_files()) names.push_back(name);
    return names;
  });
}

Table compare_with_published(const std::string& sweep_folder, const std::string& set,
                             Version headers) {
  return at_edge([&] {
    check_version(headers);
    const SweepFolder folder(sweep_folder);
    const auto index = read_sweep_index(folder);
    const auto rows = overview_of(folder, index.runs);
    const auto published = read_published(set);
    const auto comparison = match_runs(published, rows);
    if (!comparison.by_label)
      log::warn(
          "{}: no label is that of a published checkpoint; matched by order. Another model: "
          "trends can be compared, values cannot",
          index.name);
    return difference_table(comparison);
  });
}

}  // namespace qkscope
