#include "analysis/viewer/viewer_session.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "analysis/figures/results.h"
#include "analysis/report/report.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/tables/csv.h"
#include "engine/model/model_config.h"
#include "qkscope/captures.h"
#include "qkscope/tokenizer.h"
#include "qkscope/version.h"

namespace qkscope {
namespace {

constexpr std::size_t kCachedHeads = 4;          // heads side by side on the page
constexpr std::int64_t kStatisticsQueries = 64;  // sampled queries of the statistics of a head

// Returns three quarters of the memory that is available without swapping.
std::int64_t default_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:"))
      return std::stoll(line.substr(line.find_first_of("0123456789"))) * 1024 / 4 * 3;
  failure("/proc/meminfo: found no line MemAvailable; give the memory to use with --memory");
}

// Returns the text of each token, or "<id>" if there is no tokenizer.
std::vector<std::string> token_texts(const std::string& folder, std::span<const std::int32_t> ids) {
  if (!has_tokenizer(folder))
    return project(ids, [](std::int32_t id) { return fmt::format("<{}>", id); });
  const auto tokenizer = Tokenizer::load(folder);
  return project(ids, [&](const std::int32_t& id) { return tokenizer.decode({&id, 1}); });
}

template <typename T>
void append(std::string& bytes, const std::vector<T>& values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

void check_same_shape(const ModelConfig& first, const ModelConfig& other, const std::string& name) {
  const auto shape = [](const ModelConfig& config) {
    return fmt::format("{} layers, {} query heads, {} key heads, d_head {}", config.n_layers,
                       config.n_heads, config.n_kv_heads, config.d_head);
  };
  if (shape(first) != shape(other))
    bad_input("{}: has {}, expected the shape of the first checkpoint: {}", name, shape(other),
              shape(first));
}

}  // namespace

ViewerSession::ViewerSession(ViewerOptions options) : options_(std::move(options)) {
  if (options_.ids.empty()) bad_input("viewer: the text has no tokens");
  if (options_.query >= rows())
    bad_input("query {}: the text has positions 0 to {}", options_.query, rows() - 1);
  if (options_.query < 0) options_.query = rows() - 1;
  if (options_.heads.empty()) options_.heads.push_back({});
  const auto memory = options_.memory > 0 ? options_.memory : default_memory();
  run_memory_ = memory / std::max(1, options_.runs);
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
  require_equal_heads(config, "viewer");
  if (runs_.empty()) {
    for (const auto& [layer, head] : options_.heads)
      if (layer < 0 || layer >= config.n_layers || head < 0 || head >= config.n_heads)
        bad_input("heads {}.{}: the model has layers 0 to {} and heads 0 to {}", layer, head,
                  config.n_layers - 1, config.n_heads - 1);
    texts_ = token_texts(model->folder(), options_.ids);
  } else {
    check_same_shape(runs_.front().store->config(), config, name);
  }
  const auto cache = static_cast<std::int64_t>(kCachedHeads) *
                     head_attention_bytes(rows(), config.d_head) / std::max(1, options_.runs);
  const auto plan =
      plan_query_keys(config, model->device(), model->dtype(), rows(), run_memory_ - cache);
  if (options_.on_plan) options_.on_plan(fmt::format("{}: {}", name, describe_plan(plan)));
  runs_.push_back({display_label(name), std::make_unique<QueryKeyStore>(
                                            std::move(model), options_.ids, plan, options_.quiet)});
}

QueryKeyStore& ViewerSession::store(const RunHead& head) {
  if (head.run >= runs_.size())
    bad_input("run {}: there are runs 0 to {}", head.run, runs_.size() - 1);
  auto& store = *runs_[head.run].store;
  if (!store.has_layer(head.layer))
    bad_input("layer {}: no such layer with attention over the text", head.layer);
  if (head.head < 0 || head.head >= store.config().n_heads)
    bad_input("head {}: layers have heads 0 to {}", head.head, store.config().n_heads - 1);
  return store;
}

Json ViewerSession::layers_json() const {
  const auto& store = *runs_.front().store;
  const auto& config = store.config();
  Json layers = Json::array();
  for (std::int64_t layer = 0; layer < config.n_layers; ++layer) {
    Json wavelengths = Json::array();  // tokens
    if (const auto* rope = config.rope(layer))
      for (const float inverse : rope_frequencies(*rope, rows()).inverse)
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

Json ViewerSession::info() const {
  const auto& config = runs_.front().store->config();
  Json heads = Json::array();
  for (const auto& [layer, head] : options_.heads) heads.push_back({layer, head});
  Json captured = Json::array();
  for (const auto& [head, positions] : options_.captured)
    captured.push_back({{"layer", head.layer}, {"head", head.head}, {"positions", positions}});
  return {{"version", version_string()},
          {"title", options_.title},
          {"runs", project(runs_, &Run::name)},
          {"layers", layers_json()},
          {"heads", config.n_heads},
          {"key_heads", config.n_kv_heads},
          {"tokens", texts_},
          {"tile", kTileCells},
          {"statistics", HeadStatistics::kNames},
          {"statistics_queries", std::min(kStatisticsQueries, rows())},
          {"columns", columns_},
          {"captured", captured},
          {"attribution", attribution_.rows() > 0},
          {"start", {{"heads", heads}, {"query", options_.query}}}};
}

AttentionRow ViewerSession::row(const RunHead& head, std::int64_t query) {
  auto& queries_and_keys = store(head);
  if (query < 0 || query >= rows())
    bad_input("query {}: the text has positions 0 to {}", query, rows() - 1);
  return HeadAttention(queries_and_keys, head.layer, head.head).row(query);
}

std::string ViewerSession::row_bytes(const RunHead& head, std::int64_t query) {
  const auto found = row(head, query);
  std::string bytes;
  append(bytes, std::vector<double>{static_cast<double>(found.first_key),
                                    static_cast<double>(found.pattern.size()), found.log_sum_exp,
                                    found.entropy, found.first_token, found.distance,
                                    static_cast<double>(found.mean_by_frequency.size()), 0.0});
  for (const auto* values :
       {&found.scores, &found.pattern, &found.attended_by_frequency, &found.mean_by_frequency})
    append(bytes, *values);
  return bytes;
}

std::string ViewerSession::statistics_bytes(std::size_t run, std::int64_t layer) {
  auto& queries_and_keys = store({run, layer, 0});
  std::vector<float> values;
  for (std::int64_t head = 0; head < queries_and_keys.config().n_heads; ++head) {
    const auto found = HeadAttention(queries_and_keys, layer, head).statistics(kStatisticsQueries);
    values.insert(values.end(), std::begin(found.values), std::end(found.values));
  }
  std::string bytes;
  append(bytes, values);
  return bytes;
}

HeadAttention& ViewerSession::attention(const RunHead& head) {
  auto& queries_and_keys = store(head);
  if (auto* found = cache_.find(head)) return *found;
  cache_.make_room(kCachedHeads);
  return cache_.add(head, HeadAttention(queries_and_keys, head.layer, head.head));
}

std::string ViewerSession::tile_bytes(const RunHead& head, int level, std::int64_t row,
                                      std::int64_t column, CellValue value) {
  if (level < 0 || level > 40 || row < 0 || column < 0 || row > rows() || column > rows())
    bad_input("tile {}/{}/{}: outside the matrix", level, row, column);
  const auto tile = attention(head).tile(level, row, column, value);
  std::string bytes;
  append(bytes, std::vector<float>{tile.exact ? 1.0f : 0.0f});
  append(bytes, tile.cells);
  return bytes;
}

Json ViewerSession::attribution(std::int64_t layer, std::int64_t head, std::int64_t query) const {
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

}  // namespace qkscope
