// A capture run from the first document to the published files, and what is left of it after a
// crash.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "capture/capture_plan.h"
#include "capture/example_source.h"

namespace qkscope {

struct CaptureProgress {
  std::int64_t examples = 0;  // done, those of earlier runs counted in
  std::int64_t total = 0;     // 0: not known
  std::int64_t rows = 0;      // over all heads
  std::int64_t tokens = 0;
};

struct CaptureOptions {
  Shard shard;
  bool overwrite = false;                   // removes what the folder holds; else continues it
  bool quiet = false;                       // no progress
  const std::atomic<bool>* stop = nullptr;  // when it becomes true the run ends after its batch
  std::function<void(const CaptureProgress&)> on_batch = {};  // called after every batch
};

struct CaptureResult {
  enum class Outcome {
    finished,          // the files are there
    already_finished,  // they were there before
    part_finished,     // this shard is done; a merge makes the files
    interrupted,       // stopped; the same command continues
  };
  Outcome outcome = Outcome::finished;
  std::int64_t examples = 0;
  std::int64_t rows = 0;  // over all heads
  std::int64_t tokens = 0;
  double seconds = 0.0;           // of this call, and of those:
  double load_seconds = 0.0;      // until the model was ready
  double forward_seconds = 0.0;   // in the forward pass
  double input_seconds = 0.0;     // waiting for texts to be read and tokenized
  double assembly_seconds = 0.0;  // making the final files
};

std::string_view outcome_name(CaptureResult::Outcome outcome);  // "part finished"

// One object: outcome, examples, rows, tokens and seconds.
Json to_json(const CaptureResult& result);

CaptureResult run_capture(const CapturePlan& plan, const CaptureOptions& options);

// Makes the final files of a capture in shards once every shard is complete; says which are not.
CaptureResult merge_capture(const std::string& data_root, bool quiet);

}  // namespace qkscope
