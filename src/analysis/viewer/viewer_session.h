// Data of the viewer: responses to requests from its page, and the data of an exported page.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/figures/results.h"
#include "analysis/viewer/head_attention.h"
#include "base/io/json.h"
#include "qkscope/experimental/viewer.h"
#include "qkscope/tables.h"

namespace qkscope {

// Not thread-safe: the server serializes requests. Functions throw a bad-input error for a head,
// query or tile that does not exist. Binary responses are little-endian.
class ViewerSession {
 public:
  explicit ViewerSession(ViewerOptions options);
  void add_run(const std::string& name, std::shared_ptr<const Model> model);

  const ViewerOptions& options() const { return options_; }
  std::int64_t token_count() const { return std::ssize(options_.ids); }
  std::size_t run_count() const { return runs_.size(); }

  // Returns a JSON object with token texts, runs, layers, and columns from the results folder.
  Json session_info_json() const;
  AttentionRow attention_row(const HeadOfRun& head, std::int64_t query);
  // Serializes an attention row: eight float64 numbers (first key, number of keys, log-sum-exp,
  // entropy, attention on token 0, mean distance, number of rotary pairs, 0), then float32 arrays:
  // scores and pattern (keys), attention-weighted and mean score of each frequency (pairs).
  std::string serialize_row(const HeadOfRun& head, std::int64_t query);
  // Returns float32 values (n_heads, statistics); HeadStatistics::kNames lists the columns.
  std::string serialize_statistics(std::size_t run, std::int64_t layer);
  // Returns float32 values: a flag (1: exact, 0: preview), then cells (kTileCells, kTileCells).
  std::string serialize_tile(const HeadOfRun& head, int level, std::int64_t row,
                             std::int64_t column, ReduceOp value);
  HeadAttention& head_attention(const HeadOfRun& head);
  // Returns a JSON list of [key, score, q_component, k_component, value] from attribution.csv.
  Json attributions_json(std::int64_t layer, std::int64_t head, std::int64_t query) const;

 private:
  struct ViewerRun {
    std::string name;
    std::unique_ptr<QueryKeyStore> store;
  };

  QueryKeyStore& query_key_store(const HeadOfRun& head);
  Json layers_json() const;
  void read_results();

  ViewerOptions options_;
  std::int64_t run_memory_ = 0;
  std::vector<std::string> texts_;  // (rows) text of each token
  std::vector<ViewerRun> runs_;
  LruCache<HeadOfRun, HeadAttention> cache_;  // heads with tiles
  Json columns_;       // heads of the results folder as the report packs them, or null
  Table attribution_;  // attribution.csv, or empty
};

// Serves the page and the session's data over HTTP while the object exists, one request at a time.
struct ViewerServer {
  virtual ~ViewerServer() = default;
  std::string url;  // with the random token
};
// `session` must outlive the server. Throws a bad-input error if the address cannot be used.
std::unique_ptr<ViewerServer> start_viewer_server(ViewerSession& session,
                                                  const ViewerServerOptions& options);

// Files of the viewer's page, some joined with files of the HTML report. Embedded by CMake.
namespace embedded {
extern const char viewer_html[];         // page of the server, which loads script and style
extern const char viewer_export_html[];  // page with {{style}}, {{body}}, {{data}} and {{script}}
extern const char viewer_body[];         // {{body}} of both pages
extern const char viewer_css[];
extern const char viewer_script[];
}  // namespace embedded

}  // namespace qkscope
