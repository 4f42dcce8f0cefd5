// From text to ids, without special tokens around them and without a limit: the parts of a
// tokenizer.json in the order in which they work. Also knows where a text can be cut so that its
// pieces encode on their own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "input/tokenizer/added_tokens.h"
#include "input/tokenizer/bpe_model.h"
#include "input/tokenizer/normalizer.h"
#include "input/tokenizer/pre_tokenizer.h"

namespace qkscope {

class Encoder {
 public:
  struct Parts {
    NormalizerPointer normalizer;  // may be null
    PreTokenizer pre_tokenizer;
    AddedTokens added_tokens;
    BpeModel model;
  };
  explicit Encoder(Parts parts);

  struct Workspace {
    BpeModel::Workspace model;
    std::vector<AddedTokens::Section> sections, inner_sections;
    std::vector<Symbol> symbols;
    Pieces pieces;
  };

  struct Tokens {
    std::vector<std::int32_t> ids;
    std::vector<Span> sources;         // bytes of the document; only when asked for
    std::vector<std::string> strings;  // with sources
  };

  // Appends the tokens of document[piece]. The piece must begin and end at cuts or at the ends of
  // the document. Throws bad input when it is not UTF-8.
  void encode(std::string_view document, Span piece, bool with_sources, Workspace& work,
              Tokens& tokens) const;

  // The first place to cut at or after `from`; the document's end when there is none.
  std::size_t next_cut(std::string_view document, std::size_t from) const;
  // The last place to cut at or before `from`; 0 when there is none.
  std::size_t previous_cut(std::string_view document, std::size_t from) const;

  const AddedTokens& added_tokens() const { return parts_.added_tokens; }
  const Vocabulary& vocabulary() const { return parts_.model.vocabulary(); }

 private:
  struct Job {
    std::string_view document;
    bool with_sources;
    Workspace& work;
    Tokens& tokens;
  };
  void encode_section(const Job& job, Span section, SectionEnds ends) const;
  void encode_normalized(const Job& job, const AlignedText& text, Span range, bool begins) const;
  void encode_word(const Job& job, Span word) const;
  bool is_cut(std::string_view document, std::size_t at) const;
  bool is_space_cut(std::string_view document, std::size_t at) const;

  Parts parts_;
  bool keeps_alignment_ = false;  // also when sources are not asked for
  CutSpace cut_space_ = CutSpace::uncertain;
  bool cut_by_model_ = false;  // the model must say whether it joins across the cut
  bool cut_after_ideograph_ = false;
};

}  // namespace qkscope
