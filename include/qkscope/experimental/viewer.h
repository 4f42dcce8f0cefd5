// The viewer: a page that shows the attention of a model over one text, served on this machine or
// exported as one HTML file.
//
//   qkscope::Viewer viewer({.ids = ids});
//   viewer.add_run("model", std::make_shared<qkscope::Model>(qkscope::Model::load("folder")));
//   std::string url = viewer.serve({});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "qkscope/model.h"
#include "qkscope/version.h"

namespace qkscope {

// A query head.
struct ViewerHead {
  std::int64_t layer = 0;
  std::int64_t head = 0;

  bool operator==(const ViewerHead&) const = default;
};

// A query head of a capture.
struct CapturedHead {
  ViewerHead head = {};
  std::vector<std::int64_t> positions = {};  // captured from this text; empty: not known
};

struct ViewerOptions {
  std::vector<std::int32_t> ids = {};  // token ids of the text
  std::string title = {};              // name of the text on the page
  std::string results = {};  // folder of `qkscope analyze`, whose columns colour the map of heads,
                             // and of attribution.csv; "": none
  std::vector<CapturedHead> captured = {};  // marked in the map of heads and in the text
  std::vector<ViewerHead> heads = {};  // heads that the page shows first; empty: head 0 of layer 0
  std::int64_t query = -1;             // query that the page shows first; -1: the last token
  std::int64_t memory = 0;  // host bytes for all runs; 0: three quarters of the free memory
  int runs = 1;             // number of runs that will be added; they share `memory`
  bool quiet = false;       // no progress
  // Called before the forward pass of each run with a sentence that states which vectors are kept
  // and how much memory they take.
  std::function<void(const std::string&)> on_plan = {};
};

struct ViewerServerOptions {
  std::string host = "127.0.0.1";  // address to listen on
  int port = 0;                    // 0: any free port
  // Value of the CSP directive frame-ancestors: the pages that may embed the viewer.
  std::string frame_ancestors = "'none'";
};

struct ViewerExportOptions {
  std::vector<std::int64_t> queries = {};  // queries with stored rows; empty: evenly spaced ones
  std::int64_t budget = 30'000'000;        // largest size of the page in bytes
};

class QKSCOPE_API Viewer {
 public:
  // Throws a bad-input error for an empty text or an unreadable results folder.
  explicit Viewer(ViewerOptions options);
  ~Viewer();
  Viewer(Viewer&&) noexcept;
  Viewer& operator=(Viewer&&) noexcept;

  // Runs a model over the text and keeps its queries and keys. Further runs are other checkpoints
  // of the same model: layers, heads and vocabulary must agree. The viewer keeps the model, to
  // recompute layers on request, only if the queries and keys do not fit into memory.
  void add_run(const std::string& name, std::shared_ptr<const Model> model);

  // Starts the server on a background thread and returns the address of the page, which contains a
  // random token. Throws a bad-input error if the program was built without a server.
  std::string serve(const ViewerServerOptions& options);
  // Stops the server; no effect if it is not running.
  void stop();

  // Returns the page as one HTML file with the heads of ViewerOptions::heads and as many rows as
  // fit into the budget. Throws a bad-input error if not even the text fits.
  std::string export_page(const ViewerExportOptions& options);
  // Atomically writes the page that export_page() returns. Returns the file size in bytes.
  std::uint64_t write_page(const std::string& path, const ViewerExportOptions& options);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
