// Encodes text to ids without special tokens or truncation by running normalizer, pre-tokenizer and
// model in order. Also finds positions where a text can be cut so that the parts encode
// independently.
#pragma once

#include <cstdint>
#include <optional>
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
    std::optional<Normalizer> normalizer;
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
    std::vector<Span> sources;         // byte ranges in the document; only if requested
    std::vector<std::string> strings;  // token strings; only together with sources
  };

  // Appends the tokens of document[piece]. The piece must start and end at a cut or at an end of
  // the document. Throws bad input if the piece is not valid UTF-8.
  void encode(std::string_view document, Span piece, bool with_sources, Workspace& work,
              Tokens& tokens) const;

  // Returns the first cut at or after `from`, or the size of the document if there is none.
  std::size_t next_cut(std::string_view document, std::size_t from) const;
  // Returns the last cut at or before `from`, or 0 if there is none.
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
  // Appends an added token. `string` is its text in the document or after normalization.
  static void add_token(const Job& job, std::int32_t id, Span source, std::string_view string);
  void encode_section(const Job& job, Span section, SectionEnds ends) const;
  void encode_normalized(const Job& job, const AlignedText& text, Span range, bool begins) const;
  void encode_word(const Job& job, Span word) const;
  bool is_cut(std::string_view document, std::size_t at) const;
  bool is_space_cut(std::string_view document, std::size_t at) const;

  Parts parts_;
  bool keeps_alignment_ = false;  // track alignment even if sources are not requested
  CutSpace cut_space_ = CutSpace::uncertain;
  bool cut_by_model_ = false;  // a cut also requires BpeModel::never_joins()
  bool cut_after_ideograph_ = false;
};

}  // namespace qkscope
