#include "study/combine.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/thread_pool.h"
#include "io/folder.h"
#include "qkscope/tables.h"
#include "study/overview.h"

namespace qkscope {
namespace {

constexpr char kEnding[] = ".parquet";

using Column = Table::Column;

// Names of the tables that any of the runs has.
std::set<std::string> table_names(const SweepFolder& folder, const std::vector<RunEntry>& runs) {
  std::set<std::string> names;
  for (const auto& run : runs)
    for (const auto& file : names_in(folder.results(run.label)))
      if (file.ends_with(kEnding)) names.insert(file.substr(0, file.size() - sizeof kEnding + 1));
  return names;
}

// The run's own columns behind the three that say which run it is.
std::vector<Column> with_run(const Table& table, const RunEntry& run) {
  const auto rows = static_cast<std::size_t>(table.rows());
  std::vector<Column> columns = {
      {"model", Table::Type::text, {}, {}, std::vector<std::string>(rows, run.label)},
      {"phase", Table::Type::text, {}, {}, std::vector<std::string>(rows, run.phase)},
      {"order", Table::Type::integer, std::vector<std::int64_t>(rows, run.order), {}, {}}};
  for (const auto& column : table.columns())
    if (column.name != "model") columns.push_back(column);
  return columns;
}

void append(const std::vector<Column>& from, const std::string& path, std::vector<Column>& to) {
  if (to.empty()) {
    to = from;
    return;
  }
  const auto same = [](const Column& a, const Column& b) {
    return a.name == b.name && a.type == b.type;
  };
  if (!std::equal(to.begin(), to.end(), from.begin(), from.end(), same))
    bad_input("{}: its columns are not those of the runs before it; analyse it again", path);
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto add = [](auto& all, const auto& more) {
      all.insert(all.end(), more.begin(), more.end());
    };
    add(to[i].integers, from[i].integers);
    add(to[i].reals, from[i].reals);
    add(to[i].texts, from[i].texts);
  }
}

void combine(const SweepFolder& folder, const std::vector<RunEntry>& runs,
             const std::string& name) {
  std::vector<Column> columns;
  bool csv = false;
  for (const auto& run : runs) {
    const auto path = folder.results(run.label) + "/" + name;
    if (!path_exists(path + kEnding)) continue;
    append(with_run(read_parquet_table(path + kEnding), run), path + kEnding, columns);
    csv = csv || path_exists(path + ".csv");
  }
  const Table table(std::move(columns));
  if (csv) table.write_csv(folder.path() + "/" + name + ".csv");
  table.write_parquet(folder.path() + "/" + name + kEnding);
}

// Tables that no finished run has any more would tell an old story.
void remove_others(const SweepFolder& folder, const std::set<std::string>& names) {
  for (const auto& file : names_in(folder.path())) {
    const std::filesystem::path path(file);
    const bool table = path.extension() == ".csv" || path.extension() == kEnding;
    if (table && !names.contains(path.stem().string()))
      std::filesystem::remove(folder.path() + "/" + file);
  }
}

}  // namespace

void combine_tables(const SweepFolder& folder, const SweepConfig& config) {
  std::vector<RunEntry> done;
  for (auto& entry : folder.entries(config))
    if (entry.state == RunState::done) done.push_back(std::move(entry));
  remove_strays(folder.path());
  auto names = table_names(folder, done);
  const std::vector<std::string> list(names.begin(), names.end());
  parallel_for(std::ssize(list),
               [&](std::int64_t i) { combine(folder, done, list[static_cast<std::size_t>(i)]); });
  if (!done.empty()) {
    const auto overview = overview_table(read_overview(folder, done));
    overview.write_csv(folder.path() + "/overview.csv");
    overview.write_parquet(folder.path() + "/overview.parquet");
    names.insert("overview");
  }
  remove_others(folder, names);
}

}  // namespace qkscope
