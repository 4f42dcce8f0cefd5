// The `normalizer` of a tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "base/io/json_fwd.h"
#include "input/tokenizer/aligned_text.h"

namespace qkscope {

// Which ends of the text are ends of a section. A long section may be handed over in several
// pieces; what a normalizer does at an end is then done only where there is one.
struct SectionEnds {
  bool begins = true;
  bool ends = true;
};

// What happens where a section is cut before a U+0020 that follows a character that is not white
// space. as_space and as_mark: the normalized pieces together are the normalized section, and the
// second begins with the space, or with U+2581 in its place. uncertain: neither is known.
enum class CutSpace { as_space, as_mark, uncertain };

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(AlignedText& text, SectionEnds ends) const = 0;
  virtual CutSpace cut_space() const { return CutSpace::as_space; }
  // Whether the section may also be cut between an ideograph and punctuation.
  virtual bool allows_cut_after_ideograph() const { return false; }
};

using NormalizerPointer = std::unique_ptr<const Normalizer>;

// Null for JSON null. `where` names the file in messages.
NormalizerPointer make_normalizer(const Json& spec, const std::string& where);

}  // namespace qkscope
