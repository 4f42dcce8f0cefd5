// Captures and statistics of a model that another engine runs: transformers, vLLM, a training loop.
//
// The engine passes q and k, exactly as they enter the dot product, to an observer; sampling,
// parts, journal, resuming and final files are those of a native capture. There are two ways:
//
//   // The library reads the texts and calls the engine.
//   auto plan = qkscope::make_plan(config, {}, engine);
//   qkscope::run_capture(plan);
//
//   // The caller supplies the documents.
//   qkscope::CaptureWriter writer(plan);
//   for (const auto& document : documents) writer.add(document, run_pass);
//   writer.finish();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qkscope/capture.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/statistics.h"
#include "qkscope/tokenizer.h"
#include "qkscope/version.h"

namespace qkscope {

// RoPE parameters of one layer, which are written to the metadata of its head files.
struct LayerRope {
  std::string description = "none";  // JSON object {"type", "theta", "dim", ...}; "none": NoPE
  std::vector<float> inv_freq = {};  // (dim / 2) radians per position; empty: unknown
  std::int64_t dim = 0;              // rotated dimensions of a head
};

// Description of a model that an external engine runs.
struct EngineModel {
  // family, n_layers, n_heads, n_kv_heads, d_head, embedding_rows, max_positions and layers
  // (window, score_scale; cross_attention marks a layer without self-attention) must be set; for
  // statistics also attention_scale, attention_softcap and names.sinks (not empty: the model has
  // sinks).
  ModelConfig config;
  std::vector<LayerRope> ropes;  // (layers)
  std::int64_t d_value = 0;      // width of v
  std::string engine;            // name and version, e.g. "transformers 5.1.0"
  std::string identity = "{}";  // JSON object; a run is resumed only by an engine with an equal one
  Device device = {};
  DType dtype = DType::f32;  // of the computation
  // Whether two threads may call ExternalEngine::run() at the same time, so that a GPU can compute
  // a batch while the rows of the previous batch are being stored.
  bool concurrent_runs = false;
};

// Runs the forward pass of a batch and passes the tensors of wanted hook points to
// Observer::observe(): rot_q and rot_k (q and k as they enter the dot product) for captures, also v
// for statistics. A tensor is float32 on the host and holds the rows and heads of
// Observer::selection(). Hook points come in any order.
using RunPass = std::function<void(const Batch& batch, Observer& observer)>;

// A model that runs outside this library.
class QKSCOPE_API ExternalEngine {
 public:
  virtual ~ExternalEngine() = default;
  virtual const EngineModel& model() const = 0;
  virtual void run(const Batch& batch, Observer& observer) = 0;  // see RunPass
  // Tokenizes a text; called if this library cannot read the configured tokenizer. Throws a
  // bad-input error by default.
  virtual Tokenizer::Encoding encode(const std::string& text, std::int64_t max_length);
};

// Return plans whose forward passes run on `engine`; the checkpoint model.name is not loaded.
QKSCOPE_API CapturePlan make_plan(const CaptureConfig& config, const ComputeOptions& compute,
                                  std::shared_ptr<ExternalEngine> engine);
QKSCOPE_API StatsPlan make_stats_plan(const StatsConfig& config, const ComputeOptions& compute,
                                      std::shared_ptr<ExternalEngine> engine);

// Creates the engine for a configuration that contains `engine: NAME`.
using EngineFactory = std::function<std::shared_ptr<ExternalEngine>(const CaptureConfig& config,
                                                                    const ComputeOptions& compute)>;
// Registers an engine under the NAME that configurations select with `engine: NAME`. An engine that
// was registered under the same name is replaced.
QKSCOPE_API void register_engine(const std::string& name, EngineFactory factory);

// ---- Documents of the caller ----

// Value of dataset.path for a capture or statistics writer, whose caller supplies the documents.
inline constexpr char kDocumentsOfCaller[] = "-";

struct WriterDocument {
  std::vector<std::int32_t> ids;
  std::string id = {};                          // unique; "": the number of the document
  std::optional<std::int64_t> number = {};      // integer id, instead of `id`
  std::vector<std::string> token_strings = {};  // (ids), if capture.capture_token_strings is set
};

// Writes a capture, document by document. An interrupted writer resumes if the same documents are
// passed again in the same order: add() skips documents that are stored. Not thread-safe.
class QKSCOPE_API CaptureWriter {
 public:
  // Locks config.output.data_root. CaptureOptions::stop and on_batch are not used.
  explicit CaptureWriter(const CapturePlan& plan, const CaptureOptions& options = {});
  ~CaptureWriter();  // keeps the stored documents; the next writer resumes
  CaptureWriter(CaptureWriter&&) noexcept;
  CaptureWriter& operator=(CaptureWriter&&) noexcept;

  bool is_open() const;            // false: the capture was finished before
  std::int64_t stored() const;     // documents that earlier writers stored
  std::int64_t documents() const;  // passed so far
  // Returns true if the model has to run on the next document; skips a document that is already
  // stored and returns false. Throws a bad-input error if the document differs from the stored one
  // with the same number, or if its id was passed before.
  bool wants(const WriterDocument& document);
  // Calls `run` with the document and stores its sampled rows, unless they are stored already. Like
  // a native capture, throws a bad-input error for NaN or infinity; also throws if `run` omits a
  // required hook point.
  void add(const WriterDocument& document, const RunPass& run);
  // Stores all documents so far on disk.
  void flush();
  // Writes the final files; a shard only completes its part, and merge_capture() writes the files.
  CaptureResult finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Writes statistics, document by document, like CaptureWriter. The `run` callback of add() must
// pass rot_q, rot_k and v of all rows and heads.
class QKSCOPE_API StatsWriter {
 public:
  explicit StatsWriter(const StatsPlan& plan, const StatsOptions& options = {});
  ~StatsWriter();
  StatsWriter(StatsWriter&&) noexcept;
  StatsWriter& operator=(StatsWriter&&) noexcept;

  bool is_open() const;
  std::int64_t stored() const;
  std::int64_t documents() const;
  bool wants(const WriterDocument& document);
  void add(const WriterDocument& document, const RunPass& run);
  void flush();
  StatsResult finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
