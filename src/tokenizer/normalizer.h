// The `normalizer` of a tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "io/json_fwd.h"
#include "tokenizer/aligned_text.h"

namespace qkscope {

// Which ends of the text are ends of a section. A long section may be handed over in several
// pieces; what a normalizer does at an end is then done only where there is one.
struct SectionEnds {
  bool begins = true;
  bool ends = true;
};

// What comes of a section that is cut before a U+0020 after a character that is not white space:
// the normalized pieces may put together be the normalized section, the second beginning with the
// space still (as_space) or with U+2581 in its place (as_mark). Or that is not certain.
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
