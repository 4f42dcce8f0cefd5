// Combined tables of the runs of a sweep, and of several sweeps (combine_sweeps()).
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/core/log.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/tables/empty_table.h"
#include "base/tables/parquet_stream.h"
#include "input/store/stored_folder.h"
#include "qkscope/tables.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kParquet = ".parquet";

// Returns the names, without the extension, of the Parquet files of a folder.
std::vector<std::string> table_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& file : entry_names(folder))
    if (file.ends_with(kParquet)) names.push_back(file.substr(0, file.size() - kParquet.size()));
  return names;
}

// Tables that exist only for runs with statistics.
constexpr std::string_view kStatisticsTables[] = {"attention", "distance", "key_channels", "pairs"};

// Returns the path of a run's table without its extension.
std::string table_path(const SweepFolder& folder, const RunEntry& run, const std::string& name) {
  auto own = folder.results_folder(run.label) + "/" + name;
  const bool of_statistics = std::ranges::count(kStatisticsTables, name) > 0;
  if (!of_statistics || path_exists(fmt::format("{}{}", own, kParquet))) return own;
  return folder.statistics_results_folder(run.label) + "/" + name;
}

// Returns the columns of a table, preceded by the columns model, phase and order.
std::vector<Table::Column> prepend_run_columns(const Table& table, const RunEntry& run) {
  const auto rows = as_index(table.rows());
  std::vector<Table::Column> columns = {
      {"model", Table::Type::text, {}, {}, std::vector<std::string>(rows, run.label)},
      {"phase", Table::Type::text, {}, {}, std::vector<std::string>(rows, run.phase)},
      {"order", Table::Type::integer, std::vector<std::int64_t>(rows, run.order), {}, {}}};
  for (const auto& column : table.columns())
    if (column.name != "model") columns.push_back(column);
  return columns;
}

// Reads a table of a run. If the run has a capture and statistics, `geometry` combines both:
// columns that need individual rows come from the capture, all others from the statistics.
Table read_run_table(const SweepFolder& folder, const RunEntry& run, const std::string& name,
                     const std::string& file) {
  const auto exact =
      fmt::format("{}/{}{}", folder.statistics_results_folder(run.label), name, kParquet);
  Table sampled = read_parquet_table_with_gaps(file);
  if (name != "geometry" || file == exact || !path_exists(exact)) return sampled;
  auto columns = read_parquet_table_with_gaps(exact).columns();
  for (auto& column : columns) {
    const auto* other = sampled.find(column.name);
    if (other != nullptr && other->reals.size() == column.reals.size() && !column.reals.empty() &&
        all_nan(column.reals))
      column = *other;
  }
  return Table(std::move(columns));
}

void combine_run_tables(const SweepFolder& folder, const std::vector<RunEntry>& runs,
                        const std::string& name) {
  std::vector<std::pair<const RunEntry*, std::string>> files;  // runs that have the table
  bool csv = false;
  for (const auto& run : runs) {
    const auto path = table_path(folder, run, name);
    const auto file = fmt::format("{}{}", path, kParquet);
    if (path_exists(file)) files.emplace_back(&run, file);
    csv = csv || path_exists(path + ".csv");
  }
  TableFileAppender table(folder.path() + "/" + name, csv);
  for (const auto& [run, file] : files)
    if (!table.append(prepend_run_columns(read_run_table(folder, *run, name, file), *run)))
      reject("{}: its columns are not those of the runs before it; analyse it again", file);
  table.finish();
}

// Writes the tables of all finished runs. Removes tables that no finished run has any more, and
// temporary files of a killed process. The caller must hold the tables' lock.
void combine_finished_runs(const SweepFolder& folder, const SweepConfig& config) {
  auto done = folder.read_run_entries(config);
  std::erase_if(done, [](const RunEntry& run) { return run.state != RunState::done; });
  std::set<std::string> names;
  for (const auto& run : done) {
    for (const auto& name : table_names(folder.results_folder(run.label))) names.insert(name);
    for (const auto name : kStatisticsTables)
      if (path_exists(fmt::format("{}{}", table_path(folder, run, std::string(name)), kParquet)))
        names.emplace(name);
  }
  const std::vector<std::string> list(names.begin(), names.end());
  parallel_for(std::ssize(list),
               [&](std::int64_t i) { combine_run_tables(folder, done, list[as_index(i)]); });
  const auto write = [&](const std::string& name, const Table& table) {
    if (table.rows() == 0) return;
    table.write_csv(fmt::format("{}/{}.csv", folder.path(), name));
    table.write_parquet(fmt::format("{}/{}{}", folder.path(), name, kParquet));
    names.insert(name);
  };
  write("overview", make_overview_table(folder, done));
  write("sampling", make_sampling_error_table(folder, done));
  for (const auto& file : entry_names(folder.path())) {
    const fs::path path(file);
    const bool table = path.extension() == ".csv" || path.extension() == kParquet;
    if (path.extension() == ".tmp" || (table && !names.contains(path.stem().string())))
      fs::remove(folder.path() / path);
  }
}

constexpr char kRunsTable[] = "runs";
constexpr char kListFile[] = "combined.json";  // lists the tables of the last combine_sweeps()

struct NamedSweep {
  std::string name;
  SweepFolder folder;
};

// Opens sweeps given as "FOLDER" or "NAME=FOLDER".
std::vector<NamedSweep> open_sweeps(const std::vector<std::string>& texts, const std::string& out) {
  std::vector<NamedSweep> sweeps;
  std::map<std::string, std::string> taken;
  for (const auto& text : texts) {
    const auto equals = text.find('=');
    const bool named = equals != std::string::npos && !is_folder(text);
    const auto path = named ? text.substr(equals + 1) : text;
    const SweepFolder folder(fetch_stored_folder(path, true));
    const auto index = read_sweep_index(folder);
    const auto left = std::ranges::count_if(
        index.runs, [](const RunEntry& run) { return run.state != RunState::done; });
    if (left > 0) log::warn("{}: {} of {} runs are not done", path, left, index.runs.size());
    const auto name = named ? text.substr(0, equals) : index.name;
    if (name.empty()) reject("{}: the sweep has no name; expected NAME=FOLDER", quote_text(text));
    const auto [found, anew] = taken.try_emplace(name, folder.path());
    if (!anew)
      reject("{} and {} are both called {}; expected names that differ, as in NAME=FOLDER",
             found->second, folder.path(), quote_text(name));
    std::error_code ignored;
    if (fs::equivalent(folder.path(), out, ignored))
      reject("{}: it is one of the sweeps, whose tables would be replaced; choose another --out",
             out);
    sweeps.push_back({name, folder});
  }
  return sweeps;
}

// The table `runs`: checkpoint and step of every run, for joins with the other tables.
Table runs_table(const std::vector<NamedSweep>& sweeps) {
  Table table = empty_table(
      "text sweep, text model, text phase, integer order, text state, text checkpoint, text "
      "revision, integer step");
  for (const auto& sweep : sweeps) {
    const Json json = load_json(sweep.folder.runs_file());
    for (const auto& run : json.at("runs")) {
      const Json model = run.value("config", Json::object()).value("model", Json::object());
      const auto revision = model.value("revision", Json());
      const std::string branch = revision.is_string() ? revision.get<std::string>() : "";
      const auto step = parse_branch_name(branch).step;
      table.add({sweep.name, run.value("label", ""), run.value("phase", ""),
                 run.value("order", std::int64_t{0}), run.value("state", ""),
                 model.value("name", ""), branch, step ? Table::Cell(*step) : Table::Cell(kNan)});
    }
  }
  return table;
}

}  // namespace

void write_combined_tables(const SweepFolder& folder, const SweepConfig& config, bool quiet) {
  const auto lock = folder.lock_tables();
  // Repeat if another machine has uploaded its tables in the meantime, to include its runs.
  do {
    folder.download_sweep_and_runs_locked(config);
    folder.write_runs_file(config);
    combine_finished_runs(folder, config);
  } while (!folder.upload_sweep_files(config, quiet));
}

std::vector<CombinedTable> combine_sweeps(const std::vector<std::string>& sweeps,
                                          const std::string& out) {
  return translate_exceptions([&] {
    const auto opened = open_sweeps(sweeps, out);
    std::map<std::string, std::vector<NamedTableFile>> tables;  // files by table name
    for (const auto& sweep : opened)
      for (const auto& name : table_names(sweep.folder.path()))
        tables[name].push_back(
            {sweep.name, fmt::format("{}/{}{}", sweep.folder.path(), name, kParquet)});
    if (tables.empty()) reject("none of the sweeps has a table yet; run them first");
    // Check the columns of all tables before the first file is written.
    for (const auto& [name, files] : tables) check_compatible_columns("sweep", files);
    make_folders(out);
    std::vector<CombinedTable> combined;
    std::set<std::string> names = {kRunsTable};
    for (const auto& [name, files] : tables) {
      const auto rows = concat_tables("sweep", files, fmt::format("{}/{}{}", out, name, kParquet));
      combined.push_back({name, std::ssize(files), rows});
      names.insert(name);
    }
    const auto runs = runs_table(opened);
    runs.write_parquet(fmt::format("{}/{}{}", out, kRunsTable, kParquet));
    combined.push_back({kRunsTable, std::ssize(opened), runs.rows()});
    // Remove tables that an earlier call of combine_sweeps() wrote and that are not in `names`.
    const auto list_file = out + "/" + kListFile;
    const Json earlier = path_exists(list_file) ? load_json(list_file) : Json();
    for (const auto& name : earlier.is_object() ? earlier.value("tables", Json()) : Json())
      if (name.is_string() && !names.contains(name.get<std::string>()))
        fs::remove(fs::path(out) / fs::path(name.get<std::string>().append(kParquet)).filename());
    Json list = {{"sweeps", Json::array()}, {"tables", names}};
    for (const auto& sweep : opened) list["sweeps"].push_back(sweep.name);
    write_json_file(list_file, list);
    return combined;
  });
}

}  // namespace qkscope
