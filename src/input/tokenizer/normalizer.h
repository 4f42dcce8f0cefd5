// The `normalizer` of a tokenizer.json.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/io/json_fwd.h"
#include "input/tokenizer/aligned_text.h"

namespace qkscope {

// Tells a normalizer which ends of the text are true ends of a section. Long sections are processed
// in pieces, and Strip or Prepend must act only at a true end.
struct SectionEnds {
  bool begins = true;
  bool ends = true;
};

// Effect of normalization on a cut before a space (U+0020) that follows a non-space character.
// as_space: normalizing the two pieces separately gives the same text, and the second piece starts
// with a space. as_mark: the same, but the space becomes U+2581. uncertain: no cut is allowed.
enum class CutSpace { as_space, as_mark, uncertain };

struct Normalizer {
  std::function<void(AlignedText& text, SectionEnds ends)> apply;
  CutSpace cut_space = CutSpace::as_space;
  // True if a section may also be cut between an ideograph and punctuation.
  bool allows_cut_after_ideograph = false;
};

// Returns nullopt for JSON null. Error messages start with `where`.
std::optional<Normalizer> make_normalizer(const Json& spec, const std::string& where);

}  // namespace qkscope
