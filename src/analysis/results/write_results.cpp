#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include "analysis/results/head_results.h"
#include "analysis/results/results_folder.h"
#include "base/core/clock.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/project.h"
#include "base/core/thread_pool.h"
#include "base/io/file_list.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "capture/format/capture_source.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "capture/stats_format/stats_file.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/verify.h"
#include "qkscope/version.h"

namespace qkscope {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AnalysisTimes, read, moments, pca, rotation, plasticity,
                                   geometry, errors)

namespace {

namespace fs = std::filesystem;
using results_layout::kSummaryFile;

bool has_analysis(const Json& options, const std::string& analysis) {
  return std::ranges::count(options.at("analyses"), Json(analysis)) > 0;
}

// Appends "NAME is OLD there, NEW here" if the values differ.
void add_if_changed(const std::string& name, const Json& there, const Json& here,
                    std::vector<std::string>& differences) {
  if (there != here)
    differences.push_back(fmt::format("{} is {} there, {} here", name, there.dump(), here.dump()));
}

// Lists options that differ between two runs and affect an analysis that both of them ran.
void diff_options(const Json& there, const Json& here, std::vector<std::string>& differences) {
  Json all = there;
  all.update(here);
  for (const auto& [key, value] : all.items()) {
    const auto analysis = analysis_name_of_option(key);
    const bool compared =
        analysis.empty() || (has_analysis(there, analysis) && has_analysis(here, analysis));
    if (key != "analyses" && compared)
      add_if_changed(key, there.value(key, Json()), here.value(key, Json()), differences);
  }
}

// Returns the summary.json of the folder, or null if there is none.
Json read_existing_summary(const std::string& folder) {
  const auto file = folder + "/" + kSummaryFile;
  return path_exists(file) ? load_json(file) : Json();
}

void check_same_analysis(const std::string& folder, const Json& there,
                         const AnalyzeOptions& options, const std::string& label) {
  if (there.is_null()) return;
  std::vector<std::string> differences;
  try {
    if (!label.empty()) add_if_changed("label", there.at("model"), label, differences);
    add_if_changed("capture", there.at("data_root"), id_or_base_name(options.data_root),
                   differences);
    const auto hash = fingerprint_capture(options.data_root);
    if (differences.empty() && !hash.empty() && there.at("capture_hash") != hash)
      differences.emplace_back("the capture has changed since");
    add_if_changed("qkscope", there.at("versions").at("qkscope"), version_string(), differences);
    diff_options(there.at("options"), analyze_options_to_json(options), differences);
  } catch (const Json::exception& error) {
    reject(
        "{}/{}: not a summary as an analysis writes it ({}); choose another folder with --out, or "
        "replace what is there with --overwrite",
        folder, kSummaryFile, error.what());
  }
  if (!differences.empty())
    reject(
        "{}: holds results of other options: {}; choose another folder with --out, or replace "
        "them with --overwrite",
        folder, fmt::join(differences, "; "));
}

std::vector<std::string> table_file_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& [table, schema] : result_table_schemas())
    for (const char* ending : {".csv", ".parquet"})
      if (auto name = table + ending; path_exists(fmt::format("{}/{}", folder, name)))
        names.push_back(std::move(name));
  return names;
}

constexpr char kStaging[] = ".new";

// Writes tables into a hidden folder and then moves them all into place. Other commands reject a
// results folder if its summary is missing or lists other files.
class StagedTables {
 public:
  explicit StagedTables(const std::string& folder)
      : target_(folder),
        lock_(folder + "/" + results_layout::kLockFile, FileLock::LockMode::exclusive,
              FileLock::Blocking::no) {
    if (!lock_.is_held())
      reject("{}: another analysis is writing into this folder; wait until it ends", folder);
    FolderHandle(folder).remove_tree(kStaging);  // left by a process that was killed
    make_folders(path());
  }
  ~StagedTables() {
    try {
      FolderHandle(target_).remove_tree(kStaging);
      FolderHandle(target_).remove_file(results_layout::kLockFile);
    } catch (const Error& error) {
      log::debug("{}", error.what());
    }
  }

  std::string path() const { return target_ + "/" + kStaging; }

  // Replaces the result tables and deletes the folder's summary; the caller writes a new one.
  void move_into_place() const {
    remove_summary_file(target_);
    const FolderHandle to(target_);
    const auto from = to.open_subfolder(kStaging);
    for (const auto& name : from.entry_names()) from.move_file(name, to);
    to.remove_empty_folder(kStaging);  // made durable, like the moves, by sync()
    to.sync();
  }

 private:
  std::string target_;
  FileLock lock_;
};

// Returns the rows of errors.parquet from earlier analyses, followed by the errors of this run.
std::vector<MeanError> merge_errors(const std::string& folder,
                                    const std::vector<MeanError>& errors) {
  const auto file = folder + "/errors.parquet";
  if (!path_exists(file)) return errors;
  const Table table = read_parquet_table(file);
  std::vector<MeanError> merged;
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row) {
    const auto text = [&](const char* name) { return table.find(name)->texts[row]; };
    const auto number = [&](const char* name) { return table.find(name)->number(row); };
    const auto quantity = text("quantity");
    if (std::ranges::count(errors, quantity, &MeanError::quantity) > 0) continue;
    merged.push_back({quantity, text("heads"), number("mean"), number("se"), number("low"),
                      number("high"), table.find("texts")->integers[row],
                      table.find("n_heads")->integers[row]});
  }
  merged.insert(merged.end(), errors.begin(), errors.end());
  return merged;
}

// Fills in scatter coordinates that this run skipped, from an earlier run over the same rows.
Table merge_scatter(const std::string& folder, const Table& table) {
  const auto file = folder + "/head_scatter.parquet";
  if (!path_exists(file)) return table;
  const Table earlier = read_parquet_table_with_gaps(file);
  if (earlier.rows() != table.rows()) return table;
  const bool wider = earlier.columns().size() > table.columns().size();
  auto columns = wider ? earlier.columns() : table.columns();
  for (auto& column : columns)
    if (const auto* other = (wider ? table : earlier).find(column.name);
        other != nullptr && column.type == Table::Type::real &&
        std::ranges::all_of(column.reals, [](double x) { return std::isnan(x); }))
      column = *other;
  return Table(std::move(columns));
}

void merge_tables(const std::string& folder, const AnalysisRun& run, ResultTables& results) {
  for (auto& result : results.tables) {
    if (result.name == "head_scatter") result.table = merge_scatter(folder, result.table);
    if (result.name != "errors") continue;
    ResultTables merged;
    add_errors_table(run, merge_errors(folder, run.errors), merged);
    result = std::move(merged.tables.front());
    results.undefined.erase("errors.csv");
    results.undefined.merge(merged.undefined);
  }
}

// Copies sections and options of analyses that ran only in the earlier run to `summary`.
void merge_summary(const Json& earlier, Json& summary) {
  if (earlier.is_null()) return;
  for (const auto& [key, value] : earlier.items())
    if (!summary.contains(key)) summary[key] = value;
  for (const auto& [file, columns] : earlier.at("undefined").items())
    if (!summary["undefined"].contains(file)) summary["undefined"][file] = columns;
  for (const char* list : {"warnings", "notes"})
    for (const auto& item : earlier.value(list, Json::array()))
      if (std::ranges::count(summary[list], item) == 0) summary[list].push_back(item);
  Json& options = summary["options"];
  const Json& earlier_options = earlier.at("options");
  for (const auto& [key, value] : earlier_options.items()) {
    const auto analysis = analysis_name_of_option(key);
    if (!analysis.empty() && key != "analyses" && !has_analysis(options, analysis))
      options[key] = value;
  }
  const Json now = options;
  options["analyses"] = Json::array();
  for (const auto& analysis : kAnalyses)
    if (has_analysis(now, analysis.name) || has_analysis(earlier_options, analysis.name))
      options["analyses"].push_back(analysis.name);
}

void write_tables(const std::string& folder, const std::vector<ResultTable>& tables) {
  // Start with the last table: head_scatter, by far the largest, is at the end of the list.
  const auto files = 2 * std::ssize(tables);
  parallel_for(files, [&](std::int64_t i) {
    const auto& result = tables[static_cast<std::size_t>((files - 1 - i) / 2)];
    const std::string path = folder + "/" + result.name;
    if (i % 2 == 0) {
      if (result.csv) result.table.write_csv(path + ".csv");
    } else {
      result.table.write_parquet(path + ".parquet");
    }
  });
}

constexpr std::pair<const char*, const char*> kStateFiles[] = {
    {"capture", layout::kStateFile},
    {"statistics", stats_layout::kStateFile},
    {"results", results_layout::kSummaryFile}};

// Runs `check` on all items in parallel; adds the message of each Error to `found.problems`.
template <typename Items, typename Check>
void check_all_items(const Items& items, FolderVerification& found, Check check) {
  const auto all = to_vector(items, [](const auto& item) { return &item; });
  std::mutex mutex;
  parallel_for(std::ssize(all), [&](std::int64_t i) {
    try {
      check(*all[static_cast<std::size_t>(i)]);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      found.problems.emplace_back(error.what());
    }
  });
  found.files += std::ssize(all);
  std::sort(found.problems.begin(), found.problems.end());
}

}  // namespace

void remove_summary_file(const std::string& folder) {
  if (!is_folder(folder)) return;
  FolderHandle(folder).remove_file(kSummaryFile);
  fsync_folder(folder);
}

void check_results_folder(const std::string& folder, const AnalyzeOptions& options) {
  translate_exceptions([&] {
    if (!is_store_address(folder))
      check_same_analysis(folder, read_existing_summary(folder), options, options.label);
  });
}

void write_results(const std::string& path_or_uri, const AnalysisRun& run,
                   const AnalyzeOptions& options, bool overwrite) {
  translate_exceptions([&] {
    const auto begun = Clock::now();
    StoredOutput output(path_or_uri, "results");
    const auto& folder = output.folder();
    make_folders(folder);
    const StagedTables staged(folder);
    const Json earlier = overwrite ? Json() : read_existing_summary(folder);
    check_same_analysis(folder, earlier, options, run.label);
    ResultTables results = result_tables(run, options);
    if (!earlier.is_null()) merge_tables(folder, run, results);
    write_tables(staged.path(), results.tables);
    Json summary = summary_json(run, results.undefined, options);
    merge_summary(earlier, summary);
    if (earlier.is_null()) {  // tables of an interrupted run or of other options must not remain
      remove_summary_file(folder);
      // Do not delete the tables of a statistics folder: some are named like result tables.
      if (!is_statistics_folder(folder))
        for (const auto& name : table_file_names(folder)) fs::remove(fs::path(folder) / name);
    }
    staged.move_into_place();
    summary["files"] = to_json(make_file_list(folder, table_file_names(folder)));
    const double write_seconds = seconds_since(begun);
    // timings.json is the only output file that differs between repeated runs.
    const Json timings = {
        {"finished", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
        {"threads", thread_count()},
        {"total_seconds", run.seconds + write_seconds},
        {"analysis_seconds", run.seconds},
        {"write_seconds", write_seconds},
        {"thread_seconds", run.times}};
    write_file(folder + "/timings.json", timings.dump(2) + "\n");
    write_file(folder + "/" + kSummaryFile,
               summary.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    output.publish(options.quiet);
  });
}

void report_failed_heads(const AnalysisRun& run, const std::string& folder) {
  translate_exceptions([&] {
    std::size_t failed = 0;
    ErrorKind kind = ErrorKind::bad_input;
    std::map<std::string, std::vector<const HeadReport*>> by_reason;
    for (const auto& head : run.heads) {
      if (head.error.empty()) continue;
      ++failed;
      if (head.error_kind == ErrorKind::failure) kind = ErrorKind::failure;
      // Drop the file path, so that heads that failed for the same reason have equal messages.
      const auto end_of_path = head.error.find(".parquet: ");
      by_reason[end_of_path == std::string::npos ? head.error : head.error.substr(end_of_path)]
          .push_back(&head);
    }
    if (failed == 0) return;
    for (const auto& [reason, heads] : by_reason)
      log::error("layer {} head {}{}: {}", heads.front()->query.layer, heads.front()->query.head,
                 heads.size() > 1 ? fmt::format(" and {} more heads", heads.size() - 1) : "",
                 heads.front()->error);
    throw Error(kind,
                fmt::format("{} of {} heads could not be analysed; {}", failed, run.heads.size(),
                            failed < run.heads.size() ? "the results of the others are in " + folder
                                                      : "the tables in " + folder + " are empty"));
  });
}

void check_results_complete(const std::string& folder) {
  constexpr char kAdvice[] = "run 'qkscope analyze' again with --overwrite";
  const auto summary = folder + "/" + results_layout::kSummaryFile;
  if (!path_exists(summary)) {
    if (path_exists(folder + "/" + results_layout::kLockFile))
      reject("{}: an analysis is writing these results, or was killed; wait until it ends, or {}",
             folder, kAdvice);
    return;
  }
  const Json content = load_json(summary);
  if (const auto files = content.is_object() ? parse_file_list(content, summary) : std::nullopt)
    check_file_sizes(folder, *files, kAdvice);
}

FolderVerification verify_folder(const std::string& folder) {
  return translate_exceptions([&] {
    FolderVerification found;
    std::optional<FileList> files;
    for (const auto& [kind, state_file] : kStateFiles) {
      const auto path = folder + "/" + state_file;
      if (!path_exists(path)) continue;
      found.kind = kind;
      const Json state = load_json(path);
      files = state.is_object() ? parse_file_list(state, path) : std::nullopt;
      break;
    }
    if (found.kind.empty() || (found.kind == "capture" && !files)) {
      found.kind = "capture";
      const auto index = index_capture(folder);
      auto heads = index.queries;
      heads.insert(heads.end(), index.keys.begin(), index.keys.end());
      for (const auto& head : heads)
        found.bytes += fs::file_size(head_file_path(index.data_root, head));
      check_all_items(heads, found, [&](const HeadId& head) { read_capture_head(index, head); });
      return found;
    }
    if (!files) reject("{}: made by version 0.1, without checksums to compare", folder);
    for (const auto& [name, record] : *files) found.bytes += record.size;
    check_all_items(*files, found, [&](const auto& file) {
      check_file_content(folder, file.first, file.second, "make it again");
    });
    if (found.kind == "capture" && found.problems.empty()) index_capture(folder);  // foreign heads
    return found;
  });
}

}  // namespace qkscope
