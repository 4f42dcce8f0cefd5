#include "analysis/figures/results.h"

#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "analysis/figures/figure.h"
#include "analysis/results/results_folder.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"

namespace qkscope {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string_view last_path_component(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// Returns false for "org/name", which names a repository on the Hub.
bool looks_like_a_path(std::string_view text) {
  for (const char* start : {"/", "./", "../", "~/"})
    if (text.starts_with(start)) return true;
  const bool plain = std::ranges::all_of(text, [](char c) {
    return is_letter(c) || is_digit(c) || std::string_view("._+-/").find(c) != std::string::npos;
  });
  return plain && std::count(text.begin(), text.end(), '/') > 1;
}

// Returns the value at a JSON pointer, or null if there is none.
Json value_at_json_pointer(const Json& json, const char* pointer) {
  const Json::json_pointer path(pointer);
  return json.contains(path) ? json[path] : Json();
}

// Returns the string at a JSON pointer, or "" if there is none.
std::string string_at_json_pointer(const Json& json, const char* pointer) {
  const Json value = value_at_json_pointer(json, pointer);
  return value.is_string() ? value.get<std::string>() : "";
}

// The family given in the sweep file takes precedence over the family derived from the model name.
std::string family_of_run(const RunInfo& run) {
  if (auto family = string_at_json_pointer(run.facts, "/family"); !family.empty()) return family;
  for (const char* pointer : {"/summary/capture/model", "/config/model/name"})
    if (const auto model = string_at_json_pointer(run.facts, pointer); !model.empty())
      return model_family(model);
  return model_family(run.label);
}

// Merges the run's entry in runs.json with the summary.json and timings.json of its results.
Json collect_run_metadata(const RunInfo& run, const Json& entries, const std::string& folder) {
  Json facts = {{"label", run.label}, {"phase", run.phase}, {"order", run.order}};
  std::string own = folder;
  for (const auto& entry : entries) {
    if (string_at_json_pointer(entry, "/label") != run.label) continue;
    facts.update(entry);
    if (const auto results = string_at_json_pointer(entry, "/results"); !results.empty())
      own += "/" + results;
  }
  for (const std::string file : {"summary", "timings"})
    if (const auto path = fmt::format("{}/{}.json", own, file); path_exists(path))
      facts[file] = load_json(path);
  return facts;
}

// Appends the runs of `table` that are not yet in `runs`, in order of appearance.
void append_new_runs(const Table& table, std::vector<RunInfo>& runs) {
  const auto* model = table.find("model");
  if (!model || model->type != Table::Type::text) return;
  const auto* phase = table.find("phase");
  const auto* order = table.find("order");
  for (std::size_t row = 0; row < model->texts.size(); ++row) {
    const std::string& label = model->texts[row];
    if (std::ranges::count(runs, label, &RunInfo::label) > 0) continue;
    RunInfo run;
    run.label = label;
    run.order = std::ssize(runs);
    if (phase && phase->type == Table::Type::text) run.phase = phase->texts[row];
    if (order && order->type == Table::Type::integer) run.order = order->integers[row];
    runs.push_back(std::move(run));
  }
}

// Keeps the rows with `value` in a text column. Keeps all rows if there is no value or no column.
Table filter_rows(Table table, const char* column, const std::string& value) {
  const auto* texts = table.find(column);
  if (value.empty() || !texts || texts->type != Table::Type::text) return table;
  const auto matches = texts->texts;
  auto columns = table.columns();
  const auto keep = [&](auto& values) {
    if (values.empty()) return;
    std::size_t kept = 0;
    for (std::size_t row = 0; row < matches.size(); ++row)
      if (matches[row] == value) std::swap(values[kept++], values[row]);
    values.resize(kept);
  };
  for (auto& kept : columns) {
    keep(kept.integers);
    keep(kept.reals);
    keep(kept.texts);
  }
  return Table(std::move(columns));
}

// Signed distance of each value from the median, in units of the interquartile range.
std::vector<double> distances_in_iqr(const std::vector<double>& values) {
  const double middle = quantile_of(values, 0.5);
  const double spread = quantile_of(values, 0.75) - quantile_of(values, 0.25);
  return to_vector(values, [&](double x) { return spread > 0 ? (x - middle) / spread : 0; });
}

}  // namespace

std::string display_label(const std::string& label) {
  if (!looks_like_a_path(label)) return label;
  constexpr std::string_view kCacheEntry = "/models--";
  if (const auto at = label.rfind(kCacheEntry); at != std::string::npos) {
    const auto begin = at + kCacheEntry.size();
    std::string name = label.substr(begin, label.find('/', begin) - begin);
    if (const auto dashes = name.find("--"); dashes != std::string::npos)
      name.replace(dashes, 2, "/");
    return name;
  }
  const auto last = last_path_component(label);
  return last.empty() ? label : std::string(last);
}

std::string model_family(std::string_view model) {
  const std::string name = ascii_lower(last_path_component(display_label(std::string(model))));
  std::size_t at = 0;
  while (at < name.size() && is_letter(name[at])) ++at;
  constexpr std::size_t kFewestLetters = 3;
  if (at < kFewestLetters) return "";
  std::string family = name.substr(0, at);
  if (at < name.size() && (name[at] == '-' || name[at] == '_')) ++at;
  std::size_t end = at;
  while (end < name.size() && (is_digit(name[end]) || name[end] == '.')) ++end;
  const std::string version = name.substr(at, end - at);
  const bool small = std::min(version.find('.'), version.size()) <= 2;
  if (small && (end == name.size() || !is_letter(name[end]))) family += version;
  return family;
}

bool is_same_model(std::string_view x, std::string_view y) {
  const auto key = [](std::string_view name) {
    std::string text = ascii_lower(last_path_component(name));
    std::erase_if(text, [](char c) { return c == '-' || c == '_'; });
    return text;
  };
  return key(x) == key(y) && !key(x).empty();
}

const Table::Column& ResultFrame::column(std::string_view name, Table::Type type) const {
  const auto* found = table_.find(name);
  if (!found || found->type != type)
    reject("{}: column '{}' is missing or of another type; analyse again with this version", path_,
           name);
  return *found;
}

const std::vector<std::int64_t>& ResultFrame::integer_column(std::string_view name) const {
  if (columns_with_nulls_.contains(name))
    reject("{}: empty fields in the column '{}' of integers", path_, name);
  return nullable_integer_column(name);
}

std::vector<double> ResultFrame::numeric_column(std::string_view name) const {
  const auto* found = table_.find(name);
  if (!found || found->type == Table::Type::text) return real_column(name);  // throws
  std::vector<double> values;
  for (std::size_t row = 0; row < row_count(); ++row) values.push_back(found->number(row));
  return values;
}

bool ResultFrame::has_nope_rows() const {
  return std::ranges::count(text_column("rope"), "nope") > 0;
}

const std::string& ResultFrame::attention_kind(std::size_t row) const {
  static const std::string kUnknown;
  return has_column("attention") ? text_column("attention")[row] : kUnknown;
}

HeadValuesByRun ResultFrame::group_by_run(const std::vector<double>& values,
                                          const RowFilter& filter) const {
  HeadValuesByRun groups(run_count_);
  for (std::size_t row = 0; row < row_count(); ++row)
    if (!std::isnan(values[row]) && (!filter || filter(row)))
      groups[run_[row]].push_back(values[row]);
  return groups;
}

AnalysisResults::AnalysisResults(std::string folder, DrawOptions choices)
    : folder_(std::move(folder)), choices_(std::move(choices)) {
  if (!is_folder(folder_)) reject("{}: there is no such folder", folder_);
  summary_.add(folder_ + "/" + results_layout::kSummaryFile);
  check_results_complete(folder_);
  bool any = false;
  for (const char* name : {"qk", "taxonomy", "rotated", "complement", "head_metrics",
                           "head_profile", "pair_heatmap", "head_component_weights", "head_scatter",
                           "head_planes", "head_bucket_plasticity", "attention", "distance",
                           "key_channels", "geometry", "attribution", "composition_components"}) {
    if (!has_table(name)) continue;
    any = true;
    // All tables of a sweep have the same runs, so the first table with rows lists them all.
    append_new_runs(read_parquet_table_with_gaps(table_path(name)), runs_);
    if (!runs_.empty()) break;
  }
  if (!any)
    reject(
        "{}: no result tables (qk.parquet, rotated.parquet, head_metrics.parquet ...); expected "
        "the folder that 'qkscope analyze --out' or 'qkscope sweep' wrote",
        folder_);
  std::ranges::stable_sort(runs_, {}, &RunInfo::order);
  read_run_metadata();
  read_confidence_intervals();
}

void AnalysisResults::read_run_metadata() {
  Json entries = Json::array();
  if (const std::string list = folder_ + "/runs.json"; path_exists(list)) {
    const Json sweep = load_json(list);
    sweep_name_ = string_at_json_pointer(sweep, "/name");
    if (const Json runs_entry = value_at_json_pointer(sweep, "/runs"); runs_entry.is_array())
      entries = runs_entry;
  }
  for (auto& run : runs_) {
    run.facts = collect_run_metadata(run, entries, folder_);
    run.title = display_label(run.label);
    run.family = family_of_run(run);
    const auto read_bound = [&](const char* pointer, double& bound) {
      if (const Json found = value_at_json_pointer(run.facts, pointer); found.is_number())
        bound = found;
    };
    read_bound("/summary/options/taxonomy_high", run.high);
    read_bound("/summary/options/taxonomy_low", run.low);
  }
  for (const auto& entry : entries)
    if (entry.is_object() && std::ranges::none_of(runs_, [&](const RunInfo& run) {
          return run.label == string_at_json_pointer(entry, "/label");
        }))
      runs_without_results_.push_back(entry);
}

void AnalysisResults::read_confidence_intervals() {
  if (!has_table("errors")) return;
  const ResultFrame errors(read_parquet_table(table_path("errors")), table_path("errors"), {}, 0);
  const auto& quantity = errors.text_column("quantity");
  const auto& heads = errors.text_column("heads");
  const auto& low = errors.real_column("low");
  const auto& high = errors.real_column("high");
  for (std::size_t row = 0; row < quantity.size(); ++row) {
    const auto run = find_run(errors.has_column("model") ? errors.text_column("model")[row]
                              : has_single_run()         ? runs_[0].label
                                                         : "");
    if (!run || std::isnan(low[row]) || std::isnan(high[row])) continue;
    intervals_[{*run, quantity[row], heads[row]}] = {low[row], high[row]};
  }
}

ConfidenceInterval AnalysisResults::confidence_interval(std::size_t run,
                                                        const std::string& quantity,
                                                        const std::string& heads) const {
  const auto found = intervals_.find({run, quantity, heads});
  return found == intervals_.end() ? ConfidenceInterval{kNan, kNan} : found->second;
}

std::string AnalysisResults::run_label(std::size_t run) const {
  return replace_control_characters(runs_[run].label);
}

std::string AnalysisResults::run_title(std::size_t run) const {
  return replace_control_characters(runs_[run].title);
}

bool AnalysisResults::has_table(const std::string& table) const {
  return path_exists(table_path(table));
}

std::optional<std::size_t> AnalysisResults::find_run(const std::string& label) const {
  for (std::size_t i = 0; i < runs_.size(); ++i)
    if (runs_[i].label == label) return i;
  return std::nullopt;
}

const ResultFrame& AnalysisResults::frame(const std::string& name) const {
  auto& frame = frames_[name];
  if (frame) return *frame;
  Table table =
      filter_rows(read_parquet_table_with_gaps(table_path(name)), "attention", choices_.attention);
  const auto* model = table.find("model");
  if (!model || model->type != Table::Type::text)
    reject("{}: there is no text column 'model'; expected a table of 'qkscope analyze'",
           table_path(name));
  std::vector<std::size_t> run_of_row;
  for (const auto& label : model->texts) {
    const auto run = find_run(label);
    if (!run) reject("{}: model '{}' is in no other table; analyse again", table_path(name), label);
    run_of_row.push_back(*run);
  }
  frame = std::make_unique<ResultFrame>(std::move(table), table_path(name), std::move(run_of_row),
                                        runs_.size());
  return *frame;
}

PanelHeadGroups::PanelHeadGroups(const AnalysisResults& results, const ResultFrame& frame) {
  std::vector<std::set<std::string>> kinds(results.runs().size());
  for (std::size_t row = 0; row < frame.row_count(); ++row)
    kinds[frame.run_indices()[row]].insert(frame.attention_kind(row));
  std::map<std::pair<std::size_t, std::string>, std::size_t> places;
  for (std::size_t run = 0; run < kinds.size(); ++run) {
    const auto& title = results.runs()[run].title;
    if (kinds[run].empty()) kinds[run].emplace();
    for (const auto& kind : kinds[run]) {
      places[{run, kind}] = groups.size();
      const auto colon = kind.find(':');
      if (kinds[run].size() == 1)
        groups.push_back({run, "", title});
      else if (!results.has_single_run())
        groups.push_back({run, kind, fmt::format("{}, {}", title, kind)});
      else  // "sliding:512" -> "sliding attention, 512 tokens"
        groups.push_back({run, kind,
                          kind.substr(0, colon) + " attention" +
                              (colon == std::string::npos
                                   ? ""
                                   : fmt::format(", {} tokens", kind.substr(colon + 1)))});
    }
  }
  for (std::size_t row = 0; row < frame.row_count(); ++row)
    of_row.push_back(places.at({frame.run_indices()[row], frame.attention_kind(row)}));
}

std::string PanelHeadGroups::attention_kinds_note() const {
  const bool split =
      std::ranges::any_of(groups, [](const auto& group) { return !group.attention.empty(); });
  return split ? " Heads of different attention kinds have panels of their own." : "";
}

std::string profile_error_column(const ResultFrame& profile) {
  return profile.has_column("se") ? "se" : profile.has_column("stderr") ? "stderr" : "";
}

std::string taxonomy_bounds_text(const AnalysisResults& results) {
  const RunInfo& first = results.runs().front();
  for (const auto& run : results.runs())
    if (run.high != first.high || run.low != first.low)
      return "the low and high bound that each run was analysed with";
  return fmt::format("{} and {}", first.low, first.high);
}

std::vector<double> absolute_values(std::vector<double> values) {
  for (double& value : values) value = std::fabs(value);
  return values;
}

std::vector<double> largest_value_by_group(const PanelHeadGroups& groups, const ResultFrame& frame,
                                           const std::string& column) {
  std::vector<double> largest(groups.groups.size(), kNan);
  const auto& values = frame.real_column(column);
  for (std::size_t row = 0; row < frame.row_count(); ++row) {
    double& so_far = largest[groups.of_row[row]];
    so_far = std::fmax(so_far, values[row]);  // ignores NaN
  }
  for (double& value : largest)
    if (std::isnan(value)) value = 1;
  return largest;
}

std::vector<std::size_t> find_outliers(const std::vector<double>& x, const std::vector<double>& y,
                                       std::size_t count) {
  if (x.empty()) return {};
  const auto across = distances_in_iqr(x);
  const auto up = distances_in_iqr(y);
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t i) { return std::hypot(across[i], up[i]); });
  const double wide = 0.15 * (std::ranges::max(x) - std::ranges::min(x));
  const double tall = 0.07 * (std::ranges::max(y) - std::ranges::min(y));
  std::vector<std::size_t> chosen;
  for (const auto i : order) {
    const bool overlaps = std::ranges::any_of(chosen, [&](std::size_t other) {
      return std::fabs(x[i] - x[other]) < wide && std::fabs(y[i] - y[other]) < tall;
    });
    if (!overlaps) chosen.push_back(i);
    if (chosen.size() == count) break;
  }
  return chosen;
}

std::vector<std::int64_t> HistogramBins::count_per_bin(const std::vector<double>& values) const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(count), 0);
  for (const double value : values) {
    const double bin = std::floor(count * (value - low) / (high - low));
    ++counts[static_cast<std::size_t>(std::clamp(bin, 0.0, count - 1.0))];
  }
  return counts;
}

}  // namespace qkscope
