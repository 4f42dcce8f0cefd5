#include "analysis/viewer/viewer_session.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "analysis/report/report.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/output_file.h"
#include "base/tables/csv.h"
#include "engine/model/model_config.h"
#include "qkscope/captures.h"
#include "qkscope/experimental/text.h"
#include "qkscope/tokenizer.h"
#include "qkscope/version.h"

namespace qkscope {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HeadOfRun, run, layer, head)

namespace {

constexpr std::size_t kCachedHeads = 4;          // heads side by side on the page
constexpr std::int64_t kStatisticsQueries = 64;  // sampled queries of the statistics of a head

// Returns three quarters of the memory that is available without swapping.
std::int64_t default_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:"))
      return std::stoll(line.substr(line.find_first_of("0123456789"))) * 1024 / 4 * 3;
  throw_failure("/proc/meminfo: found no line MemAvailable; give the memory to use with --memory");
}

// Returns the text of each token, or "<id>" if there is no tokenizer.
std::vector<std::string> token_texts(const std::string& folder, std::span<const std::int32_t> ids) {
  if (!has_tokenizer(folder))
    return to_vector(ids, [](std::int32_t id) { return fmt::format("<{}>", id); });
  const auto tokenizer = Tokenizer::load(folder);
  return to_vector(ids, [&](const std::int32_t& id) { return tokenizer.decode({&id, 1}); });
}

template <typename... Values>
std::string concatenate_bytes(const std::vector<Values>&... arrays) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(arrays.data()), arrays.size() * sizeof(Values)), ...);
  return bytes;
}

constexpr double kOverviewShare = 0.4;      // largest share of the budget that overviews may take
constexpr std::int64_t kExactKeys = 32;     // keys of a row that are stored without rounding
constexpr std::int64_t kMostQueries = 512;  // number of evenly spaced queries, if none are given

// Quantises the logarithm of an attention weight in steps of `step`; code 0 means weight 0.
template <typename Code>
Code encode_log(double value, double lowest, double step) {
  constexpr double kLargest = std::numeric_limits<Code>::max();
  if (!(value > 0)) return 0;
  return static_cast<Code>(
      std::clamp(std::round((std::log(value) - lowest) / step), 1.0, kLargest));
}

// Exported rows store ln p from -32 to 0 in 16-bit codes, with a relative error of at most 0.025 %.
constexpr double kRowLowest = -32.0;
constexpr double kRowStep = 32.0 / 65535.0;
// Exported overview cells store ln of the attention, -16 to 9.5, in 8-bit codes: steps of 10 %.
constexpr double kCellLowest = -16.0;
constexpr double kCellStep = 0.1;

Json attention_row_json(const AttentionRow& row) {
  const auto codes = to_vector(
      row.pattern, [](float p) { return encode_log<std::uint16_t>(p, kRowLowest, kRowStep); });
  std::vector<std::uint32_t> order(row.pattern.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto exact = std::min(kExactKeys, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + exact, order.end(),
                    [&](auto a, auto b) { return row.pattern[a] > row.pattern[b]; });
  order.resize(as_index(exact));
  const auto scores = to_vector(order, [&](std::uint32_t key) { return row.scores[key]; });
  const auto weights = to_vector(order, [&](std::uint32_t key) { return row.pattern[key]; });
  return {{"first", row.first_key},
          {"summary", {row.log_sum_exp, row.entropy, row.first_token, row.distance}},
          {"codes", encode_base64(codes)},
          {"top", encode_base64(order)},
          {"top_scores", encode_base64(scores)},
          {"top_weights", encode_base64(weights)},
          {"attended", encode_base64(row.attended_by_frequency)},
          {"mean", encode_base64(row.mean_by_frequency)}};
}

// Encodes a downsampled attention matrix with at most `most` cells per side as base64.
Json overview_json(const HeadAttention& attention, ReduceOp value, std::int64_t most) {
  int level = attention.overview_level();
  while (attention.cells_per_side(level) > most) ++level;
  const auto side = attention.cells_per_side(level);
  std::vector<std::uint8_t> codes;
  for (const float x : attention.overview_cells(level, 0, 0, side, value))
    codes.push_back(encode_log<std::uint8_t>(x, kCellLowest, kCellStep));
  return {{"level", level}, {"side", side}, {"codes", encode_base64(codes)}};
}

// Returns at most `most` evenly spaced elements of `queries`; includes `shown` if `queries` does.
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
      : session_(session), options_(options), data_(session.session_info_json()) {
    for (std::size_t run = 0; run < session.run_count(); ++run)
      for (const auto& [layer, head] : session.options().heads)
        heads_.push_back({run, layer, head});
  }

  std::string build_page() {
    add_statistics();
    check_page_size("the text");
    add_overviews();
    add_rows();
    return render_page();
  }

 private:
  std::string render_page() const {
    return fill_placeholders(embedded::viewer_export_html, {{"style", embedded::viewer_css},
                                                            {"body", embedded::viewer_body},
                                                            {"data", escape_for_script(data_)},
                                                            {"script", embedded::viewer_script}});
  }

  std::int64_t page_bytes() const { return std::ssize(render_page()); }

  void check_page_size(const char* what) const {
    if (page_bytes() > options_.budget)
      reject("--budget {}: {} alone needs {}; give a larger budget or a shorter text",
             format_bytes(as_index(options_.budget)), what, format_bytes(as_index(page_bytes())));
  }

  void add_statistics() {
    Json runs = Json::array();
    for (std::size_t run = 0; run < session_.run_count(); ++run) {
      Json layers = Json::array();
      for (std::size_t layer = 0; layer < data_["layers"].size(); ++layer) {
        layers.push_back(nullptr);
        if (!data_["layers"][layer]["attends"].get<bool>()) continue;
        const auto bytes = session_.serialize_statistics(run, static_cast<std::int64_t>(layer));
        layers.back() = encode_base64(std::as_bytes(std::span<const char>(bytes)));
      }
      runs.push_back(std::move(layers));
    }
    data_["stored"]["statistics"] = std::move(runs);
  }

  void add_overviews() {
    const auto room = kOverviewShare * static_cast<double>(options_.budget - page_bytes()) /
                      static_cast<double>(2 * heads_.size());
    auto most = kOverviewCells;
    while (most > kTileCells / 4 && 4.0 / 3.0 * static_cast<double>(most * most) > room) most /= 2;
    Json overviews = Json::array();
    for (const auto& head : heads_) {
      auto& attention = session_.head_attention(head);
      while (attention.compute_overview_part(1.0) < 1.0) {
      }
      overviews.push_back(Json(head));
      overviews.back()["largest"] = overview_json(attention, ReduceOp::largest, most);
      overviews.back()["sum"] = overview_json(attention, ReduceOp::sum, most);
    }
    data_["stored"]["overviews"] = std::move(overviews);
    check_page_size("the text with the smallest matrix");
  }

  void add_rows() {
    const auto rows = session_.token_count();
    const auto shown = session_.options().query;
    auto wanted = options_.queries;
    if (wanted.empty()) {
      wanted.resize(as_index(rows));
      std::iota(wanted.begin(), wanted.end(), 0);
      wanted = evenly_spaced_queries(wanted, kMostQueries, shown);
    }
    // The last query sees the most keys, so the size of its row is an upper bound for every row.
    const auto row_bytes =
        std::ssize(attention_row_json(session_.attention_row(heads_[0], rows - 1)).dump()) + 64;
    const auto most = (options_.budget - page_bytes()) / (row_bytes * std::ssize(heads_));
    if (most < 1) check_page_size("the text with one row of each head");
    const auto queries = evenly_spaced_queries(wanted, std::max<std::int64_t>(1, most), shown);
    Json stored = Json::array();
    for (const auto& head : heads_) {
      Json by_query = Json::object();
      for (const auto query : queries)
        by_query[std::to_string(query)] = attention_row_json(session_.attention_row(head, query));
      stored.push_back(Json(head));
      stored.back()["rows"] = std::move(by_query);
    }
    data_["stored"]["queries"] = queries;
    data_["stored"]["heads"] = std::move(stored);
    Json attributions = Json::array();
    for (const auto& [layer, head] : session_.options().heads)
      for (const auto query : queries)
        if (auto found = session_.attributions_json(layer, head, query); !found.empty())
          attributions.push_back(
              {{"layer", layer}, {"head", head}, {"query", query}, {"rows", found}});
    data_["stored"]["attributions"] = std::move(attributions);
  }

  ViewerSession& session_;
  ViewerExportOptions options_;
  Json data_;
  std::vector<HeadOfRun> heads_;
};

}  // namespace

ViewerSession::ViewerSession(ViewerOptions options) : options_(std::move(options)) {
  if (options_.ids.empty()) reject("viewer: the text has no tokens");
  if (options_.query >= token_count())
    reject("query {}: the text has positions 0 to {}", options_.query, token_count() - 1);
  if (options_.query < 0) options_.query = token_count() - 1;
  if (options_.heads.empty()) options_.heads.push_back({});
  run_memory_ =
      (options_.memory > 0 ? options_.memory : default_memory_bytes()) / std::max(1, options_.runs);
  if (!options_.results.empty()) read_results();
}

void ViewerSession::read_results() {
  namespace fs = std::filesystem;
  const auto attribution = options_.results + "/attribution.csv";
  const bool attributed = fs::exists(attribution);
  if (attributed)
    attribution_ = read_csv_table(attribution, {{"layer", Table::Type::integer},
                                                {"head", Table::Type::integer},
                                                {"query", Table::Type::integer},
                                                {"key", Table::Type::integer},
                                                {"score", Table::Type::real},
                                                {"q_component", Table::Type::text},
                                                {"k_component", Table::Type::text},
                                                {"value", Table::Type::real}});
  // A results folder that contains only attributions has no analysis tables.
  if (attributed && !fs::exists(options_.results + "/summary.json")) return;
  columns_ = collect_report_head_data(AnalysisResults(options_.results)).json;
  columns_.erase("profile");
  columns_.erase("scatter");
}

void ViewerSession::add_run(const std::string& name, std::shared_ptr<const Model> model) {
  const auto& config = model->config();
  require_uniform_head_shapes(config, "viewer");
  if (runs_.empty()) {
    for (const auto& [layer, head] : options_.heads)
      if (layer < 0 || layer >= config.n_layers || head < 0 || head >= config.n_heads)
        reject("heads {}.{}: the model has layers 0 to {} and heads 0 to {}", layer, head,
               config.n_layers - 1, config.n_heads - 1);
    texts_ = token_texts(model->folder(), options_.ids);
  } else {
    const auto shape = [](const ModelConfig& of) {
      return fmt::format("{} layers, {} query heads, {} key heads, d_head {}", of.n_layers,
                         of.n_heads, of.n_kv_heads, of.d_head);
    };
    if (const auto first = shape(runs_.front().store->config()); first != shape(config))
      reject("{}: has {}, expected the shape of the first checkpoint: {}", name, shape(config),
             first);
  }
  const auto cache = std::int64_t{kCachedHeads} *
                     head_attention_bytes(token_count(), config.d_head) /
                     std::max(1, options_.runs);
  const auto plan = plan_query_key_storage(config, model->device(), model->dtype(), token_count(),
                                           run_memory_ - cache);
  if (options_.on_plan) options_.on_plan(fmt::format("{}: {}", name, describe_storage_plan(plan)));
  runs_.push_back({display_label(name), std::make_unique<QueryKeyStore>(
                                            std::move(model), options_.ids, plan, options_.quiet)});
}

QueryKeyStore& ViewerSession::query_key_store(const HeadOfRun& head) {
  if (head.run >= runs_.size())
    reject("run {}: there are runs 0 to {}", head.run, runs_.size() - 1);
  auto& store = *runs_[head.run].store;
  if (!store.has_layer(head.layer))
    reject("layer {}: no such layer with attention over the text", head.layer);
  if (head.head < 0 || head.head >= store.config().n_heads)
    reject("head {}: layers have heads 0 to {}", head.head, store.config().n_heads - 1);
  return store;
}

Json ViewerSession::layers_json() const {
  const auto& store = *runs_.front().store;
  const auto& config = store.config();
  Json layers = Json::array();
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    Json wavelengths = Json::array();  // in tokens
    if (const auto* rope = config.rope(layer))
      for (const float inverse : rope_frequencies(*rope, token_count()).inverse)
        wavelengths.push_back(2.0 * std::numbers::pi / inverse);
    const auto window = static_cast<std::int32_t>(config.layers[as_index(layer)].window);
    const bool recurrent = !config.layers[as_index(layer)].attends();
    layers.push_back(
        {{"attends", store.has_layer(layer)},
         {"attention",
          recurrent ? "none" : attention_name(window > 0 ? std::optional(window) : std::nullopt)},
         {"wavelengths", wavelengths}});
  }
  return layers;
}

Json ViewerSession::session_info_json() const {
  const auto& config = runs_.front().store->config();
  Json heads = Json::array();
  for (const auto& [layer, head] : options_.heads) heads.push_back({layer, head});
  Json captured = Json::array();
  for (const auto& [head, positions] : options_.captured)
    captured.push_back({{"layer", head.layer}, {"head", head.head}, {"positions", positions}});
  return {{"version", version_string()},
          {"title", options_.title},
          {"runs", to_vector(runs_, &ViewerRun::name)},
          {"layers", layers_json()},
          {"heads", config.n_heads},
          {"key_heads", config.n_kv_heads},
          {"tokens", texts_},
          {"tile", kTileCells},
          {"statistics", HeadStatistics::kNames},
          {"statistics_queries", std::min(kStatisticsQueries, token_count())},
          {"columns", columns_},
          {"captured", captured},
          {"attribution", attribution_.rows() > 0},
          {"start", {{"heads", heads}, {"query", options_.query}}}};
}

AttentionRow ViewerSession::attention_row(const HeadOfRun& head, std::int64_t query) {
  auto& queries_and_keys = query_key_store(head);
  if (query < 0 || query >= token_count())
    reject("query {}: the text has positions 0 to {}", query, token_count() - 1);
  return HeadAttention(queries_and_keys, head.layer, head.head).row(query);
}

std::string ViewerSession::serialize_row(const HeadOfRun& head, std::int64_t query) {
  const auto found = attention_row(head, query);
  const std::vector<double> numbers = {static_cast<double>(found.first_key),
                                       static_cast<double>(found.pattern.size()),
                                       found.log_sum_exp,
                                       found.entropy,
                                       found.first_token,
                                       found.distance,
                                       static_cast<double>(found.mean_by_frequency.size()),
                                       0.0};
  return concatenate_bytes(numbers, found.scores, found.pattern, found.attended_by_frequency,
                           found.mean_by_frequency);
}

std::string ViewerSession::serialize_statistics(std::size_t run, std::int64_t layer) {
  auto& queries_and_keys = query_key_store({run, layer, 0});
  std::vector<float> values;
  for (std::int64_t head = 0; head < queries_and_keys.config().n_heads; ++head) {
    const auto found = HeadAttention(queries_and_keys, layer, head).statistics(kStatisticsQueries);
    values.insert(values.end(), std::begin(found.values), std::end(found.values));
  }
  return concatenate_bytes(values);
}

HeadAttention& ViewerSession::head_attention(const HeadOfRun& head) {
  auto& queries_and_keys = query_key_store(head);
  if (auto* found = cache_.find(head)) return *found;
  cache_.evict_until_below(kCachedHeads);
  return cache_.add(head, HeadAttention(queries_and_keys, head.layer, head.head));
}

std::string ViewerSession::serialize_tile(const HeadOfRun& head, int level, std::int64_t row,
                                          std::int64_t column, ReduceOp value) {
  if (level < 0 || level > 40 || std::min(row, column) < 0 || std::max(row, column) > token_count())
    reject("tile {}/{}/{}: outside the matrix", level, row, column);
  const auto tile = head_attention(head).tile(level, row, column, value);
  return concatenate_bytes(std::vector<float>{tile.exact ? 1.0f : 0.0f}, tile.cells);
}

Json ViewerSession::attributions_json(std::int64_t layer, std::int64_t head,
                                      std::int64_t query) const {
  Json rows = Json::array();
  if (attribution_.rows() == 0) return rows;
  const auto& columns = attribution_.columns();  // in the order of read_results()
  for (std::size_t i = 0; i < as_index(attribution_.rows()); ++i)
    if (columns[0].integers[i] == layer && columns[1].integers[i] == head &&
        columns[2].integers[i] == query)
      rows.push_back({columns[3].integers[i], columns[4].reals[i], columns[5].texts[i],
                      columns[6].texts[i], columns[7].reals[i]});
  return rows;
}

struct Viewer::State : ViewerSession {
  using ViewerSession::ViewerSession;

  std::unique_ptr<ViewerServer> server = {};  // destroyed before the session
};

Viewer::Viewer(ViewerOptions options)
    : state_(translate_exceptions([&] { return std::make_unique<State>(std::move(options)); })) {}
Viewer::~Viewer() = default;
Viewer::Viewer(Viewer&&) noexcept = default;
Viewer& Viewer::operator=(Viewer&&) noexcept = default;

void Viewer::add_run(const std::string& name, std::shared_ptr<const Model> model) {
  translate_exceptions([&] { state_->add_run(name, std::move(model)); });
}

std::string Viewer::serve(const ViewerServerOptions& options) {
  return translate_exceptions([&] {
    state_->server.reset();  // frees its port
    state_->server = start_viewer_server(*state_, options);
    return state_->server->url;
  });
}

void Viewer::stop() {
  translate_exceptions([&] { state_->server.reset(); });
}

std::string Viewer::export_page(const ViewerExportOptions& options) {
  return translate_exceptions([&] { return PageExport(*state_, options).build_page(); });
}

std::uint64_t Viewer::write_page(const std::string& path, const ViewerExportOptions& options) {
  return translate_exceptions([&] {
    const auto page = PageExport(*state_, options).build_page();
    write_file(path, page);
    return std::uint64_t{page.size()};
  });
}

}  // namespace qkscope
