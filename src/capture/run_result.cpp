#include "capture/capture_run.h"

namespace qkscope {

std::string_view outcome_name(CaptureResult::Outcome outcome) {
  using Outcome = CaptureResult::Outcome;
  switch (outcome) {
    case Outcome::finished:
      return "finished";
    case Outcome::already_finished:
      return "already finished";
    case Outcome::part_finished:
      return "part finished";
    case Outcome::interrupted:
      break;
  }
  return "interrupted";
}

Json to_json(const CaptureResult& result) {
  return {{"outcome", outcome_name(result.outcome)},
          {"examples", result.examples},
          {"tokens", result.tokens},
          {"rows", result.rows},
          {"seconds", result.seconds},
          {"load_seconds", result.load_seconds},
          {"forward_seconds", result.forward_seconds},
          {"input_seconds", result.input_seconds},
          {"assembly_seconds", result.assembly_seconds}};
}

}  // namespace qkscope
