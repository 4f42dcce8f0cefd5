#include "analysis/report/report.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include "analysis/figures/figure.h"
#include "analysis/results/results_folder.h"
#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/thread_pool.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "qkscope/experimental/log.h"
#include "qkscope/figures.h"
#include "qkscope/version.h"

namespace qkscope {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Drawn, figures, left_out, of_several, report)

// Contents of the files in page/, embedded by CMake.
namespace embedded {
extern const char page_html[];
extern const char page_css[];
extern const char page_script[];
}  // namespace embedded

namespace {

namespace fs = std::filesystem;

struct ReportResults {
  AnalysisResults results;
  Drawn drawn = {};
  std::vector<Figure> figures = {};
  std::string pictures = {};  // folder with NAME.svg and NAME.png of every figure
};

// Larger SVG files are embedded as PNG, because a plot with thousands of points is smaller as PNG.
constexpr std::uintmax_t kLargestSvgBytes = 250'000;
constexpr std::int64_t kMostTableCells = 20'000;  // longer tables are not embedded

// Returns rows as JSON, column names first; null above kMostTableCells cells. NaN becomes null.
Json table_json(const Table& table) {
  if (table.rows() * std::ssize(table.columns()) > kMostTableCells) return nullptr;
  std::vector<Json> rows(1 + static_cast<std::size_t>(table.rows()), Json::array());
  for (const auto& column : table.columns()) {
    rows[0].push_back(column.name);
    for (std::size_t row = 0; row + 1 < rows.size(); ++row)
      rows[row + 1].push_back(column.type == Table::Type::text   ? Json(column.texts[row])
                              : column.type == Table::Type::real ? Json(column.reals[row])
                                                                 : Json(column.integers[row]));
  }
  return rows;
}

// Returns tooltip areas as [left, top, right, bottom, text]; an area of a head adds layer and head.
Json tooltips_json(const Figure& figure) {
  const auto rounded = [](double fraction) { return std::round(1e4 * fraction) / 1e4; };
  Json cells = Json::array();
  for (const auto& cell : figure.hover) {
    Json entry = {rounded(cell.left), rounded(cell.top), rounded(cell.right), rounded(cell.bottom),
                  cell.text};
    if (cell.layer >= 0) entry.insert(entry.end(), {Json(cell.layer), Json(cell.head)});
    cells.push_back(std::move(entry));
  }
  return cells;
}

Json figures_json(const std::vector<Figure>& figures, const std::string& pictures) {
  Json list = Json::array();
  for (const auto& figure : figures) {
    const auto path = pictures + "/" + figure.name;
    const MappedFile svg(path + ".svg");
    const bool small = svg.bytes().size() <= kLargestSvgBytes;
    list.push_back({{"name", figure.name},
                    {"title", figure.title},
                    {"caption", figure.caption},
                    {"width", figure.width},
                    {"height", figure.height},
                    {"picture", small ? "data:image/svg+xml;base64," + encode_base64(svg.bytes())
                                      : "data:image/png;base64," +
                                            encode_base64(MappedFile(path + ".png").bytes())},
                    {"question", figure.column_group},
                    {"hover", tooltips_json(figure)},
                    {"table", table_json(figure.data)}});
  }
  return list;
}

// Returns the metadata of all runs. Runs with table rows come first: heads refer to them by index.
Json runs_json(const AnalysisResults& results) {
  Json runs = Json::array();
  for (const auto& run : results.runs()) {
    Json known = run.facts;
    known["title"] = run.title;
    known["family"] = run.family;
    for (const std::string quantity : {"r_q", "r_k", "pc0_variance", "abs_r_k_a", "alpha_k",
                                       "bias_strength", "separation_strength", "plane_var_fraction",
                                       "ap_profile_overall", "ap_first20", "ap_last20", "ap_drop"})
      if (const auto found = results.confidence_interval(runs.size(), quantity);
          !std::isnan(found.low))
        known["intervals"][quantity == "pc0_variance" ? "explained_variance" : quantity] = {
            found.low, found.high};
    runs.push_back(std::move(known));
  }
  for (const auto& entry : results.runs_without_results()) runs.push_back(entry);
  return runs;
}

Json results_json(const ReportResults& part, const ReportHeadData& heads) {
  return {{"name", part.results.sweep_name()},
          {"folder", std::filesystem::weakly_canonical(part.results.folder()).filename().string()},
          {"runs", runs_json(part.results)},
          {"figures", figures_json(part.figures, part.pictures)},
          {"left_out", part.drawn.left_out},
          {"of_several", part.drawn.of_several},
          {"heads", heads.json}};
}

// Returns the report as HTML. `other`: results to compare with (see check_same_heads()), or null.
std::string render_report_page(const ReportResults& part, const ReportResults* other = nullptr) {
  const ReportHeadData heads = collect_report_head_data(part.results);
  const ReportHeadData others = other ? collect_report_head_data(other->results) : ReportHeadData();
  Json data = results_json(part, heads);
  data["other"] = other ? results_json(*other, others) : Json();
  data["version"] = version_string();
  data["questions"] = Json::array();  // headings of the groups of geometry figures
  for (const auto& group : geometry_column_groups())
    data["questions"].push_back({group.name, group.title, group.sentence});
  data["shades"] = {{"query", {style::kQueryEarly, style::kQueryLate}},
                    {"key", {style::kKeyEarly, style::kKeyLate}},
                    {"accent", style::kKey}};
  return fill_placeholders(embedded::page_html, {{"style", embedded::page_css},
                                                 {"data", escape_for_script(data)},
                                                 {"points", heads.points},
                                                 {"other_points", others.points},
                                                 {"script", embedded::page_script}});
}

constexpr std::string_view kFormats[] = {"svg", "png", "pdf"};

// A temporary folder inside the output folder, so that rename() can move the finished files.
struct TemporaryFigureFolder {
  explicit TemporaryFigureFolder(const std::string& out) {
    constexpr std::string_view kPrefix = ".drawing-";
    remove_stale_temporaries(out, kPrefix, "", 6);
    while (!lock.is_open()) {
      path = fmt::format("{}/{}XXXXXX", out, kPrefix);
      if (!::mkdtemp(path.data())) throw_system_error("make a folder in", out, errno);
      lock = try_lock_temporary_file(path);
    }
  }
  ~TemporaryFigureFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TemporaryFigureFolder(const TemporaryFigureFolder&) = delete;
  TemporaryFigureFolder& operator=(const TemporaryFigureFolder&) = delete;

  std::string path;
  FileDescriptor lock;
};

void check_draw_options(const DrawOptions& options) {
  if (options.formats.empty()) reject("--format: expected some of svg,png,pdf");
  for (const auto& format : options.formats)
    if (std::ranges::find(kFormats, format) == std::end(kFormats))
      reject("--format: '{}' is not a format; expected some of svg,png,pdf", format);
  if (const int least = std::ranges::min(options.components); least < 0)
    reject("--components: {} is no component; expected two from 0 on, such as 0,1", least);
  if (options.only.empty()) return;
  const auto names = figure_names();
  if (std::ranges::find(names, options.only) != names.end()) return;
  const auto guess = closest_spelling(options.only, names);
  reject("--only: '{}' is not a figure{}; there are {}", options.only,
         guess.empty() ? "" : fmt::format("; did you mean '{}'?", guess), fmt::join(names, ", "));
}

Figure make_figure(const FigureKind& kind, const AnalysisResults& results) {
  for (const auto& table : kind.tables) {
    if (!results.has_table(table))
      return make_empty_figure(fmt::format("there is no {}.parquet", table));
    if (results.frame(table).row_count() == 0)
      return make_empty_figure(fmt::format("{}.parquet has no rows", table));
  }
  Figure figure = kind.draw(results, kind);
  figure.name = kind.name;
  if (figure.title.empty()) figure.title = kind.text("title");
  if (figure.caption.empty()) figure.caption = kind.text("caption");
  if (figure.missing.empty() && figure.data.rows() == 0)
    return make_empty_figure("none of its numbers exists");
  return figure;
}

std::string drawing_record_path(const DrawOptions& options) {
  return options.out + "/.drawn.json";
}

void add_file_fingerprint(const std::string& path, Json& files) {
  if (path_exists(path)) files[path] = file_fingerprint(path);
}

// Returns the names of all files that belong to a figure, with a leading slash: "/NAME.csv".
std::vector<std::string> figure_file_names(const std::string& figure, const DrawOptions& options) {
  std::vector<std::string> endings = options.formats;
  endings.insert(endings.end(), {"csv", "gp", "txt"});
  return to_vector(
      endings, [&](const std::string& ending) { return fmt::format("/{}.{}", figure, ending); });
}

// Returns the inputs of the figures as JSON: program version, options, fingerprints of files.
Json drawing_inputs_json(const DrawOptions& options, const AnalysisResults& results) {
  Json files = Json::object();
  for (const auto& name : entry_names(options.results))
    if (name.ends_with(".parquet")) add_file_fingerprint(options.results + "/" + name, files);
  for (const char* name : {"runs.json", "summary.json", "timings.json"})
    add_file_fingerprint(options.results + "/" + name, files);
  for (const auto& run : results.runs())
    if (const Json folder = run.facts.value("results", Json()); folder.is_string())
      for (const char* name : {"summary.json", "timings.json"})
        add_file_fingerprint(options.results + "/" + folder.get<std::string>() + "/" + name, files);
  if (!options.scores.empty()) add_file_fingerprint(options.scores, files);
  return {{"version", version_string()},    {"formats", options.formats},
          {"report", options.report},       {"components", options.components},
          {"head", options.head},           {"scores", options.scores},
          {"attention", options.attention}, {"files", files}};
}

// Returns the record of figures drawn earlier from the same `inputs`, if all their files exist.
std::optional<Drawn> find_earlier_drawing(const DrawOptions& options, const Json& inputs) {
  if (!path_exists(drawing_record_path(options))) return std::nullopt;
  try {
    const Json record = load_json(drawing_record_path(options));
    if (record.at("inputs") != inputs) return std::nullopt;
    auto drawn = record.at("drawn").get<Drawn>();
    drawn.up_to_date = true;
    auto files = drawn.report.empty() ? std::vector<std::string>() : std::vector{drawn.report};
    for (const auto& name : drawn.figures)
      for (const auto& file : figure_file_names(name, options)) files.push_back(options.out + file);
    if (std::ranges::all_of(files, path_exists)) return drawn;
  } catch (const Error&) {  // an unreadable record counts as missing
  } catch (const Json::exception&) {
  }
  return std::nullopt;
}

// Makes all figures, or only the one named `only`. Figures without data go to part.drawn.left_out.
void make_figures(const std::string& only, ReportResults& part) {
  const auto& results = part.results;
  Drawn& drawn = part.drawn;
  for (const auto& kind : figure_kinds()) {
    const bool asked_for = only == kind.name;
    if (!only.empty() && !asked_for) continue;
    if (!asked_for && kind.runs == "several" && results.has_single_run()) {
      drawn.of_several.push_back(kind.name);
      continue;
    }
    if (kind.runs == "one" && !results.has_single_run()) {
      if (!asked_for) continue;
      reject("no figure '{}': it is of one run, and {} has {}; give the folder of one of them",
             kind.name, results.folder(), results.runs().size());
    }
    Figure figure = make_figure(kind, results);
    if (!figure.missing.empty()) {
      if (asked_for) reject("no figure '{}': {}", kind.name, figure.missing);
      drawn.left_out.emplace_back(kind.name, figure.missing);
      continue;
    }
    drawn.figures.push_back(kind.name);
    part.figures.push_back(std::move(figure));
  }
  if (!part.figures.empty()) require_gnuplot();
}

void draw_figure_files(const std::vector<Figure>& figures, const std::string& folder,
                       const std::vector<std::string>& formats, bool quiet) {
  Progress progress(
      {.what = "figures", .unit = "figures", .total = std::ssize(figures), .quiet = quiet});
  std::mutex mutex;
  std::int64_t done = 0;
  parallel_for(std::ssize(figures), [&](std::int64_t i) {
    const auto& figure = figures[static_cast<std::size_t>(i)];
    const auto path = folder + "/" + figure.name;
    figure.data.write_csv(path + ".csv");
    write_file(path + ".gp", gnuplot_script(figure, formats));
    write_file(path + ".txt",
               fmt::format("{0}\n\n{1}\n\nThe numbers drawn are in {2}.csv; `gnuplot {2}.gp` draws "
                           "them.\n",
                           figure.title, figure.caption, figure.name));
    run_gnuplot(folder, figure.name);
    const std::lock_guard lock(mutex);
    progress.update(++done);
  });
  progress.finish();
}

}  // namespace

Drawn draw_figures(const DrawOptions& options) {
  return translate_exceptions([&] {
    check_draw_options(options);
    ReportResults part{AnalysisResults(options.results, options)};
    const bool record = options.only.empty() && !options.again;
    Json inputs;
    if (record) {
      inputs = drawing_inputs_json(options, part.results);
      if (const auto before = find_earlier_drawing(options, inputs)) return *before;
    }
    make_figures(options.only, part);
    part.results.check_tables_unchanged();
    make_folders(options.out);
    std::error_code error;
    fs::remove(drawing_record_path(options), error);  // before a figure is overwritten
    if (error) throw_system_error("remove", drawing_record_path(options), error.value());
    const TemporaryFigureFolder drawing(options.out);
    const bool report = options.report && options.only.empty();
    std::vector<std::string> formats = options.formats;
    if (report) formats.insert(formats.end(), {"svg", "png"});  // the report embeds one of the two
    part.pictures = drawing.path;
    draw_figure_files(part.figures, part.pictures, formats, options.quiet);
    Drawn& drawn = part.drawn;
    if (report) {
      drawn.report = options.out + "/report.html";
      const auto page = render_report_page(part);
      part.results.check_tables_unchanged();  // the page reads more tables than the figures
      write_file(drawn.report, page);
    }
    for (const auto& figure : part.figures) {
      // The gnuplot script in the output folder draws only the requested formats.
      if (report)
        write_file(drawing.path + "/" + figure.name + ".gp",
                   gnuplot_script(figure, options.formats));
      for (const auto& file : figure_file_names(figure.name, options)) {
        fs::rename(drawing.path + file, options.out + file, error);
        if (error) throw_system_error("move a figure to", options.out + file, error.value());
      }
    }
    if (record)
      write_file(drawing_record_path(options),
                 Json{{"inputs", inputs}, {"drawn", drawn}}.dump() + "\n");
    return drawn;
  });
}

Drawn write_report(const ReportOptions& options) {
  return translate_exceptions([&] {
    DrawOptions choices;
    choices.components = options.components;
    choices.attention = options.attention;
    std::vector<ReportResults> parts;
    parts.push_back({AnalysisResults(options.results, choices)});
    if (!options.compare.empty()) {
      parts.push_back({AnalysisResults(options.compare, choices)});
      check_same_heads(parts[0].results, parts[1].results);
    }
    make_folders(parent_folder(options.out));
    const TemporaryFigureFolder drawing(parent_folder(options.out));
    for (auto& part : parts) {
      make_figures("", part);
      part.pictures = fmt::format("{}/{}", drawing.path, &part - parts.data());
      make_folders(part.pictures);
      draw_figure_files(part.figures, part.pictures, {"svg", "png"}, options.quiet);
    }
    write_file(options.out, render_report_page(parts[0], parts.size() > 1 ? &parts[1] : nullptr));
    parts[0].drawn.report = options.out;
    return parts[0].drawn;
  });
}

std::vector<std::string> figure_names() {
  return translate_exceptions([] { return to_vector(figure_kinds(), &FigureKind::name); });
}

std::string escape_for_script(const Json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace))
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  return text;
}

std::string fill_placeholders(std::string_view page,
                              const std::vector<std::pair<std::string, std::string>>& parts) {
  std::string text;
  for (const auto& [name, content] : parts) {
    const std::string mark = "{{" + name + "}}";
    const auto at = page.find(mark);
    QKSCOPE_ASSERT(at != std::string_view::npos);
    text.append(page.substr(0, at)).append(content);
    page.remove_prefix(at + mark.size());
  }
  return text.append(page);
}

}  // namespace qkscope
