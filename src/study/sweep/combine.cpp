// combine_sweeps() of qkscope/experimental/study.h: concatenates the tables of several sweeps.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "base/tables/parquet_stream.h"
#include "input/store/stored_folder.h"
#include "qkscope/experimental/study.h"
#include "qkscope/tables.h"
#include "study/sweep/checkpoint_branches.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr char kParquet[] = ".parquet";
constexpr char kRunsTable[] = "runs";
constexpr char kListFile[] = "combined.json";  // lists the tables of the last call

struct NamedSweep {
  std::string name;
  SweepFolder folder;
};

// Opens a sweep given as "FOLDER" or "NAME=FOLDER".
NamedSweep open_sweep(const std::string& text) {
  const auto equals = text.find('=');
  const bool named = equals != std::string::npos && !is_folder(text);
  const auto path = named ? text.substr(equals + 1) : text;
  SweepFolder folder(fetch_folder(path, true));
  const auto index = read_sweep_index(folder);
  const auto left = std::ranges::count_if(
      index.runs, [](const RunEntry& run) { return run.state != RunState::done; });
  if (left > 0) log::warn("{}: {} of {} runs are not done", path, left, index.runs.size());
  auto name = named ? text.substr(0, equals) : index.name;
  if (name.empty()) bad_input("{}: the sweep has no name; expected NAME=FOLDER", in_quotes(text));
  return {std::move(name), std::move(folder)};
}

std::vector<NamedSweep> open_sweeps(const std::vector<std::string>& texts, const std::string& out) {
  std::vector<NamedSweep> sweeps;
  std::map<std::string, std::string> taken;
  for (const auto& text : texts) {
    auto sweep = open_sweep(text);
    const auto [found, anew] = taken.try_emplace(sweep.name, sweep.folder.path());
    if (!anew)
      bad_input("{} and {} are both called {}; expected names that differ, as in NAME=FOLDER",
                found->second, sweep.folder.path(), in_quotes(sweep.name));
    std::error_code ignored;
    if (fs::equivalent(sweep.folder.path(), out, ignored))
      bad_input("{}: it is one of the sweeps, whose tables would be replaced; choose another --out",
                out);
    sweeps.push_back(std::move(sweep));
  }
  return sweeps;
}

// The table `runs`: checkpoint and step of every run, for joins with the other tables.
Table runs_table(const std::vector<NamedSweep>& sweeps) {
  Table table;
  for (const char* name : {"sweep", "model", "phase"}) table.column(name, Table::Type::text);
  table.column("order", Table::Type::integer);
  for (const char* name : {"state", "checkpoint", "revision"})
    table.column(name, Table::Type::text);
  table.column("step", Table::Type::integer);
  for (const auto& sweep : sweeps) {
    const Json json = load_json(sweep.folder.runs_file());
    for (const auto& run : json.at("runs")) {
      const Json model = run.value("config", Json::object()).value("model", Json::object());
      const auto revision = model.value("revision", Json());
      const std::string branch = revision.is_string() ? revision.get<std::string>() : "";
      const auto step = parse_branch(branch).step;
      table.add({sweep.name, run.value("label", ""), run.value("phase", ""),
                 run.value("order", std::int64_t{0}), run.value("state", ""),
                 model.value("name", ""), branch,
                 step ? Table::Cell(*step) : Table::Cell(std::nan(""))});
    }
  }
  return table;
}

// Files of each table, by table name.
std::map<std::string, std::vector<TableFile>> tables_of(const std::vector<NamedSweep>& sweeps) {
  std::map<std::string, std::vector<TableFile>> tables;
  for (const auto& sweep : sweeps)
    for (const auto& file : names_in(sweep.folder.path()))
      if (file.ends_with(kParquet))
        tables[file.substr(0, file.size() - sizeof kParquet + 1)].push_back(
            {sweep.name, sweep.folder.path() + "/" + file});
  if (tables.empty()) bad_input("none of the sweeps has a table yet; run them first");
  return tables;
}

// Removes tables of an earlier call that this call does not write.
void remove_earlier(const std::string& out, const std::set<std::string>& names) {
  const auto list = out + "/" + kListFile;
  if (!path_exists(list)) return;
  const Json earlier = load_json(list);
  if (!earlier.is_object()) return;
  for (const auto& name : earlier.value("tables", Json::array()))
    if (name.is_string() && !names.contains(name.get<std::string>()))
      fs::remove(fs::path(out) / fs::path(name.get<std::string>() + kParquet).filename());
}

}  // namespace

std::vector<CombinedTable> combine_sweeps(const std::vector<std::string>& sweeps,
                                          const std::string& out) {
  return translate_exceptions([&] {
    const auto opened = open_sweeps(sweeps, out);
    const auto tables = tables_of(opened);
    for (const auto& [name, files] : tables)
      check_stack("sweep", files);  // before anything is written
    make_folders(out);
    std::vector<CombinedTable> combined;
    std::set<std::string> names = {kRunsTable};
    Json parts = Json::array();
    for (const auto& sweep : opened) parts.push_back(sweep.name);
    for (const auto& [name, files] : tables) {
      const auto rows = stack_tables("sweep", files, fmt::format("{}/{}{}", out, name, kParquet));
      combined.push_back({name, std::ssize(files), rows});
      names.insert(name);
    }
    const auto runs = runs_table(opened);
    runs.write_parquet(out + "/" + kRunsTable + kParquet);
    combined.push_back({kRunsTable, std::ssize(opened), runs.rows()});
    remove_earlier(out, names);
    write_file(out + "/" + kListFile, Json{{"sweeps", parts}, {"tables", names}}.dump(
                                          2, ' ', false, Json::error_handler_t::replace) +
                                          "\n");
    return combined;
  });
}

}  // namespace qkscope
