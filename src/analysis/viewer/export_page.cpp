// The viewer's page as one HTML file.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "analysis/report/report.h"
#include "analysis/viewer/viewer_session.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "qkscope/experimental/text.h"

namespace qkscope {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunHead, run, layer, head)

namespace {

constexpr double kOverviewShare = 0.4;      // largest share of the budget that overviews may take
constexpr std::int64_t kExactKeys = 32;     // keys of a row that are stored without rounding
constexpr std::int64_t kMostQueries = 512;  // evenly spaced queries, if none are given

// Quantises the logarithm of an attention weight in steps of `step`; code 0 means weight 0.
template <typename Code>
Code logarithm_code(double value, double lowest, double step) {
  constexpr double kLargest = std::numeric_limits<Code>::max();
  if (!(value > 0)) return 0;
  return static_cast<Code>(
      std::clamp(std::round((std::log(value) - lowest) / step), 1.0, kLargest));
}

// Rows store ln p from -32 to 0 in 16-bit codes, with a relative error of at most 0.025 %.
constexpr double kRowLowest = -32.0;
constexpr double kRowStep = 32.0 / 65535.0;
// Overview cells store the logarithm from -16 to 9.5 in 8-bit codes, in steps of 10 %.
constexpr double kCellLowest = -16.0;
constexpr double kCellStep = 0.1;

Json row_json(const AttentionRow& row) {
  const auto codes = project(
      row.pattern, [](float p) { return logarithm_code<std::uint16_t>(p, kRowLowest, kRowStep); });
  std::vector<std::uint32_t> order(row.pattern.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto exact = std::min(kExactKeys, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + exact, order.end(),
                    [&](auto a, auto b) { return row.pattern[a] > row.pattern[b]; });
  order.resize(as_index(exact));
  const auto scores = project(order, [&](std::uint32_t key) { return row.scores[key]; });
  const auto weights = project(order, [&](std::uint32_t key) { return row.pattern[key]; });
  return {{"first", row.first_key},
          {"summary", {row.log_sum_exp, row.entropy, row.first_token, row.distance}},
          {"codes", pack_base64(codes)},
          {"top", pack_base64(order)},
          {"top_scores", pack_base64(scores)},
          {"top_weights", pack_base64(weights)},
          {"attended", pack_base64(row.attended_by_frequency)},
          {"mean", pack_base64(row.mean_by_frequency)}};
}

// Encodes a downsampled attention matrix with at most `most` cells per side as base64.
Json overview_json(const HeadAttention& attention, CellValue value, std::int64_t most) {
  int level = attention.base_level();
  while (attention.cells_at(level) > most) ++level;
  const auto side = attention.cells_at(level);
  std::vector<std::uint8_t> codes;
  for (const float x : attention.overview(level, 0, 0, side, value))
    codes.push_back(logarithm_code<std::uint8_t>(x, kCellLowest, kCellStep));
  return {{"level", level}, {"side", side}, {"codes", pack_base64(codes)}};
}

// Returns at most `most` evenly spaced queries. Keeps `shown` if `queries` contains it.
std::vector<std::int64_t> evenly_spaced_queries(const std::vector<std::int64_t>& queries,
                                                std::int64_t most, std::int64_t shown) {
  const auto count = std::ssize(queries);
  if (count <= most) return queries;
  std::vector<std::int64_t> kept;
  for (std::int64_t i = 1; i <= most; ++i) kept.push_back(queries[as_index(i * count / most - 1)]);
  const auto place = std::ranges::lower_bound(kept, shown);
  if (place != kept.end() && std::ranges::binary_search(queries, shown)) *place = shown;
  return kept;
}

class PageExport {
 public:
  PageExport(ViewerSession& session, const ViewerExportOptions& options)
      : session_(session), options_(options), data_(session.info()) {
    for (std::size_t run = 0; run < session.runs(); ++run)
      for (const auto& [layer, head] : session.options().heads)
        heads_.push_back({run, layer, head});
  }

  std::string page() {
    add_statistics();
    check_size("the text");
    add_overviews();
    add_rows();
    return render_export_page(data_);
  }

 private:
  static std::string render_export_page(const Json& data) {
    return fill_placeholders(embedded::viewer_export_html, {{"style", embedded::viewer_css},
                                                            {"body", embedded::viewer_body},
                                                            {"data", escape_for_script(data)},
                                                            {"script", embedded::viewer_script}});
  }

  std::int64_t size() const { return std::ssize(render_export_page(data_)); }

  void check_size(const char* what) const {
    if (size() > options_.budget)
      bad_input("--budget {}: {} alone needs {}; give a larger budget or a shorter text",
                format_bytes(as_index(options_.budget)), what, format_bytes(as_index(size())));
  }

  void add_statistics() {
    Json runs = Json::array();
    for (std::size_t run = 0; run < session_.runs(); ++run) {
      Json layers = Json::array();
      for (std::size_t layer = 0; layer < data_["layers"].size(); ++layer) {
        layers.push_back(nullptr);
        if (!data_["layers"][layer]["attends"].get<bool>()) continue;
        const auto bytes = session_.statistics_bytes(run, static_cast<std::int64_t>(layer));
        layers.back() = encode_base64(std::as_bytes(std::span<const char>(bytes)));
      }
      runs.push_back(std::move(layers));
    }
    data_["stored"]["statistics"] = std::move(runs);
  }

  void add_overviews() {
    const auto room = kOverviewShare * static_cast<double>(options_.budget - size()) /
                      static_cast<double>(2 * heads_.size());
    auto most = kOverviewCells;
    while (most > kTileCells / 4 && 4.0 / 3.0 * static_cast<double>(most * most) > room) most /= 2;
    Json overviews = Json::array();
    for (const auto& head : heads_) {
      auto& attention = session_.attention(head);
      while (attention.extend_overview(1.0) < 1.0) {
      }
      overviews.push_back(Json(head));
      overviews.back()["largest"] = overview_json(attention, CellValue::largest, most);
      overviews.back()["sum"] = overview_json(attention, CellValue::sum, most);
    }
    data_["stored"]["overviews"] = std::move(overviews);
    check_size("the text with the smallest matrix");
  }

  void add_rows() {
    const auto rows = session_.rows();
    const auto shown = session_.options().query;
    auto wanted = options_.queries;
    if (wanted.empty()) {
      wanted.resize(as_index(rows));
      std::iota(wanted.begin(), wanted.end(), 0);
      wanted = evenly_spaced_queries(wanted, kMostQueries, shown);
    }
    // The last row is the longest, so its size is an upper bound for every row.
    const auto row_bytes = std::ssize(row_json(session_.row(heads_[0], rows - 1)).dump()) + 64;
    const auto most = (options_.budget - size()) / (row_bytes * std::ssize(heads_));
    if (most < 1) check_size("the text with one row of each head");
    const auto queries = evenly_spaced_queries(wanted, std::max<std::int64_t>(1, most), shown);
    Json stored = Json::array();
    for (const auto& head : heads_) {
      Json by_query = Json::object();
      for (const auto query : queries)
        by_query[std::to_string(query)] = row_json(session_.row(head, query));
      stored.push_back(Json(head));
      stored.back()["rows"] = std::move(by_query);
    }
    data_["stored"]["queries"] = queries;
    data_["stored"]["heads"] = std::move(stored);
    Json attributions = Json::array();
    for (const auto& [layer, head] : session_.options().heads)
      for (const auto query : queries)
        if (auto found = session_.attribution(layer, head, query); !found.empty())
          attributions.push_back(
              {{"layer", layer}, {"head", head}, {"query", query}, {"rows", found}});
    data_["stored"]["attributions"] = std::move(attributions);
  }

  ViewerSession& session_;
  ViewerExportOptions options_;
  Json data_;
  std::vector<RunHead> heads_;
};

}  // namespace

std::string export_viewer_page(ViewerSession& session, const ViewerExportOptions& options) {
  return PageExport(session, options).page();
}

}  // namespace qkscope
