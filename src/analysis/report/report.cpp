#include "analysis/report/report.h"

#include <cmath>
#include <filesystem>

#include "analysis/figures/style.h"
#include "analysis/results/geometry_columns.h"
#include "base/core/error.h"
#include "base/io/mapped_file.h"
#include "qkscope/version.h"

namespace qkscope {

// Contents of the files in page/, embedded by CMake.
namespace embedded {
extern const char page_html[];
extern const char page_css[];
extern const char page_script[];
}  // namespace embedded

namespace {

// Larger SVG files are embedded as PNG, because a plot with thousands of points is smaller as PNG.
constexpr std::uintmax_t kLargestSvgBytes = 250'000;
constexpr std::int64_t kMostTableCells = 20'000;  // longer tables are not embedded

std::string embed_picture(const std::string& folder, const std::string& name) {
  const MappedFile svg(folder + "/" + name + ".svg");
  if (svg.bytes().size() <= kLargestSvgBytes)
    return "data:image/svg+xml;base64," + encode_base64(svg.bytes());
  return "data:image/png;base64," + encode_base64(MappedFile(folder + "/" + name + ".png").bytes());
}

// Returns an array of rows, column names first, or null above kMostTableCells. NaN becomes null.
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

// Returns tooltips as [left, top, right, bottom, text], plus layer and head for cells of a head.
Json hover_cells(const Figure& figure) {
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
  for (const auto& figure : figures)
    list.push_back({{"name", figure.name},
                    {"title", figure.title},
                    {"caption", figure.caption},
                    {"width", figure.width},
                    {"height", figure.height},
                    {"picture", embed_picture(pictures, figure.name)},
                    {"question", figure.question},
                    {"hover", hover_cells(figure)},
                    {"table", table_json(figure.data)}});
  return list;
}

// Returns the metadata of all runs, runs with rows first: heads refer to runs by index.
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
  for (const auto& entry : results.runs_without_rows()) runs.push_back(entry);
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

}  // namespace

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

std::string render_report_page(const ReportResults& part, const ReportResults* other) {
  const ReportHeadData heads = collect_report_head_data(part.results);
  const ReportHeadData others = other ? collect_report_head_data(other->results) : ReportHeadData();
  Json data = results_json(part, heads);
  data["other"] = other ? results_json(*other, others) : Json();
  data["version"] = version_string();
  data["questions"] = Json::array();  // headings of the groups of geometry figures
  for (const auto& question : geometry_questions())
    data["questions"].push_back({question.name, question.title, question.sentence});
  data["shades"] = {{"query", {style::kQueryEarly, style::kQueryLate}},
                    {"key", {style::kKeyEarly, style::kKeyLate}},
                    {"accent", style::kKey}};
  return fill_placeholders(embedded::page_html, {{"style", embedded::page_css},
                                                 {"data", escape_for_script(data)},
                                                 {"points", heads.points},
                                                 {"other_points", others.points},
                                                 {"script", embedded::page_script}});
}

}  // namespace qkscope
