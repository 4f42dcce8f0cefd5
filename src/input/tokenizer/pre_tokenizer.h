// The `pre_tokenizer` of a tokenizer.json: splits a section into words for the model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/io/json_fwd.h"
#include "input/tokenizer/aligned_text.h"
#include "input/tokenizer/normalizer.h"
#include "input/tokenizer/pattern.h"

namespace qkscope {

// A section of text and its current pieces: non-empty ranges of the text.
struct Pieces {
  AlignedText text;
  std::vector<Span> ranges;
  bool begins = true;  // the text is the start of its section
};

// Behaviour of a stage at a cut before a space (see CutSpace).
enum class AtCut {
  breaks,     // always places a piece boundary at the cut
  local,      // treats both sides independently but may leave them in one piece
  uncertain,  // unknown: no cut is allowed
};

class PreTokenizerStage {
 public:
  virtual ~PreTokenizerStage() = default;
  virtual void apply(Pieces& pieces) const = 0;
  virtual AtCut at_cut(CutSpace space) const = 0;
  // Returns true if the stage always separates an ideograph from following punctuation.
  virtual bool breaks_after_ideograph() const { return false; }
  // Returns true if the stage must know which piece starts the document, even after normalization.
  virtual bool needs_alignment() const { return false; }
};

// How delimiters (the matches of the pattern) are treated.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct SplitOptions {
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;        // gaps between matches are the delimiters
  bool by_character = false;  // the pattern matches single characters only
};

// Returns a stage that splits every piece at the matches of the pattern (split_stage.cpp).
std::unique_ptr<const PreTokenizerStage> make_split_stage(Pattern pattern, SplitOptions options);

// Splits every piece and replaces `pieces.ranges`.
void split_pieces(const Pattern& pattern, const SplitOptions& options, Pieces& pieces);

class PreTokenizer {
 public:
  PreTokenizer() = default;
  PreTokenizer(const Json& spec, const std::string& where);  // null: one piece

  void apply(Pieces& pieces) const {
    for (const auto& stage : stages_) stage->apply(pieces);
  }
  // Returns true if the last stage is ByteLevel. Words are then raw bytes; BpeModel applies the
  // byte-level alphabet.
  bool gives_bytes() const { return gives_bytes_; }
  bool needs_alignment() const;
  AtCut at_cut(CutSpace space) const;
  bool breaks_after_ideograph() const {
    return !stages_.empty() && stages_.front()->breaks_after_ideograph();
  }

 private:
  std::vector<std::unique_ptr<const PreTokenizerStage>> stages_;
  bool gives_bytes_ = false;
};

}  // namespace qkscope
