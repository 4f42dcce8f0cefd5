#include "capture/writer/capture_part.h"

#include <utility>
#include <vector>

namespace qkscope {

CapturePart::CapturePart(const WriterPlan& plan, PartRun run)
    : quiet_(run.quiet), session_(add_assembly_steps(std::move(run))) {
  if (!session_.is_open()) return;
  auto& journal = session_.journal();
  assembler_ = std::make_unique<CaptureAssembler>(session_.root(), std::vector{journal});
  writer_ = std::make_unique<CapturePartWriter>(
      plan, journal, [this](const JournalEntry& entry) { assembler_->announce_segment(entry); });
}

CapturePart::~CapturePart() {
  writer_.reset();     // waits for the segment that is being closed
  assembler_.reset();  // deletes unfinished files while the data root is locked
}

PartRun CapturePart::add_assembly_steps(PartRun run) {
  run.assemble = [this](const DataRoot& root, std::vector<Journal> parts) {
    const auto assembler = assembler_ ? std::move(assembler_)
                                      : std::make_unique<CaptureAssembler>(root, std::move(parts));
    assembler->finish(quiet_);
  };
  return run;
}

void CapturePart::close(bool all) {
  writer_->flush();
  if (all) session_.journal().mark_complete();
}

PartRunResult CapturePart::finish() {
  writer_.reset();
  if (session_.is_open()) assembler_.reset();  // the part is incomplete
  return session_.finish();
}

}  // namespace qkscope
