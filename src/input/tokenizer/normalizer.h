// The `normalizer` of a tokenizer.json.
#pragma once

#include <memory>
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

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(AlignedText& text, SectionEnds ends) const = 0;
  virtual CutSpace cut_space() const { return CutSpace::as_space; }
  // Returns true if a section may also be cut between an ideograph and punctuation.
  virtual bool allows_cut_after_ideograph() const { return false; }
};

using NormalizerPointer = std::unique_ptr<const Normalizer>;

// Returns null for JSON null. Error messages start with `where`.
NormalizerPointer make_normalizer(const Json& spec, const std::string& where);

}  // namespace qkscope
