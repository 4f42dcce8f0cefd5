// Writes one part (shard) of a capture, from locking the data root to publishing the files. Used by
// native captures, captures through external engines, and CaptureWriter.
#pragma once

#include <memory>

#include "capture/writer/assemble.h"
#include "capture/writer/part_run.h"
#include "capture/writer/part_writer.h"

namespace qkscope {

class CapturePart {
 public:
  // Locks and opens the part. The plan must outlive this object. run.assemble is ignored.
  CapturePart(const WriterPlan& plan, PartRun run);
  ~CapturePart();

  // Whether examples are still missing. All following methods except finish() require an open part.
  bool is_open() const { return writer_ != nullptr; }
  const Journal& journal() { return session_.journal(); }
  CapturePartWriter& writer() { return *writer_; }
  // Starts writing final files while the caller computes (CaptureAssembler).
  void start_background_assembly() { assembler_->start_background_assembly(); }
  // Flushes all rows to disk and, if `all` examples were added, marks the part complete.
  void close(bool all);

  // If the part is complete and the run has no shards, assembles and publishes the final files.
  PartRunResult finish();

 private:
  PartRun add_assembly_steps(PartRun run);

  bool quiet_;
  std::unique_ptr<CaptureAssembler> assembler_ = nullptr;  // of the open part
  PartSession session_;
  std::unique_ptr<CapturePartWriter> writer_;
};

}  // namespace qkscope
