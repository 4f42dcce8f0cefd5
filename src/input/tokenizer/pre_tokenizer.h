// The `pre_tokenizer` of a tokenizer.json: cuts a section into the words the model works on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/io/json_fwd.h"
#include "input/tokenizer/aligned_text.h"
#include "input/tokenizer/normalizer.h"
#include "input/tokenizer/pattern.h"

namespace qkscope {

// A section of text and the pieces it is cut into so far: ranges of the text, none empty.
struct Pieces {
  AlignedText text;
  std::vector<Span> ranges;
  bool begins = true;  // the text is the beginning of its section, not a later part of it
};

// What a stage does at a cut before a space (see CutSpace).
enum class AtCut {
  breaks,     // it always puts a piece boundary there
  local,      // it treats both sides as if the other were not there, but may leave them in a piece
  uncertain,  // neither is known
};

class PreTokenizerStage {
 public:
  virtual ~PreTokenizerStage() = default;
  virtual void apply(Pieces& pieces) const = 0;
  virtual AtCut at_cut(CutSpace space) const = 0;
  // Whether it always puts a boundary between an ideograph and punctuation.
  virtual bool breaks_after_ideograph() const { return false; }
  // Whether it must know which piece starts the document, even after normalization.
  virtual bool needs_alignment() const { return false; }
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  PreTokenizer(const Json& spec, const std::string& where);  // null: one piece

  void apply(Pieces& pieces) const {
    for (const auto& stage : stages_) stage->apply(pieces);
  }
  // The last stage is ByteLevel: words are bytes, not characters. The mapping to the alphabet is
  // left to whoever reads the vocabulary.
  bool gives_bytes() const { return gives_bytes_; }
  bool needs_alignment() const;
  AtCut at_cut(CutSpace space) const;
  bool breaks_after_ideograph() const;

 private:
  std::vector<std::unique_ptr<const PreTokenizerStage>> stages_;
  bool gives_bytes_ = false;
};

}  // namespace qkscope
