// Normalizer, pre-tokenizer, post-processor and decoder of a tokenizer.json, the text type that
// they rewrite, their search patterns, and two JSON readers: a streaming reader for large lists and
// typed access to small objects.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/io/json_fwd.h"
#include "qkscope/tokenizer.h"

namespace qkscope {

struct ByteRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  bool operator==(const ByteRange&) const = default;
};

// A range of text that either matched the pattern or lies between two matches.
struct MatchOrGap {
  ByteRange range;
  bool matched;
};

// A pattern that the Split and Replace components search for.
struct SearchPattern {
  // Appends matches and the gaps between them in order; together they cover `text`. Positions are
  // relative to the start of `text`.
  std::function<void(std::string_view text, std::vector<MatchOrGap>& matches)> find;
  // True if no match spans a non-space character and a following U+0020: text may be cut there.
  bool breaks_before_space = false;
  // True if no match can ever span an ideograph followed by punctuation.
  bool breaks_after_ideograph = false;
};

// Pre-tokenizer split expressions of known model families.
inline constexpr const char* kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Pre-tokenizer split regex of Llama 3, SmolLM3 and GLM 4.
inline constexpr const char* kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kQwen2Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kTekkenExpression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Returns a hand-written matcher if the expression belongs to a known model family, else nullopt.
std::optional<SearchPattern> make_builtin_pattern(std::string_view expression);
// Compiles any expression with PCRE2. Throws a bad-input error in builds without PCRE2
// (pcre2_absent.cpp). Error messages start with `where`.
SearchPattern make_pcre2_pattern(const std::string& expression, const std::string& where);
// Uses make_builtin_pattern() if possible, else make_pcre2_pattern().
SearchPattern make_regex_pattern(const std::string& expression, const std::string& where);

SearchPattern make_string_pattern(std::string literal);
// Matches single characters that have any of the property flags in unicode.h.
SearchPattern make_unicode_class_pattern(std::uint16_t flags);
// Matches the regular expression \w+|[^\w\s]+ of the Whitespace pre-tokenizer.
SearchPattern make_word_or_punctuation_pattern();

// ---- Normalizer: rewrites the text

// Text in a tokenizer pipeline with the source position of every byte in the document. Starts as a
// view of the document and becomes a copy on the first change. Source positions cost time and
// memory and are tracked only on request (`aligned`).
class SourceMappedText {
 public:
  SourceMappedText() = default;
  // `text` starts at byte `offset` of the document. The document must outlive this object.
  SourceMappedText(std::string_view text, std::uint32_t offset, bool aligned);

  SourceMappedText(const SourceMappedText&) = delete;
  SourceMappedText& operator=(const SourceMappedText&) = delete;

  // Makes this text a view of a part of another text.
  void assign_subview(const SourceMappedText& whole, ByteRange range);

  std::string_view text() const { return text_; }
  bool empty() const { return text_.empty(); }

  // Returns the document bytes that produced text()[range]. Source positions must be tracked.
  ByteRange source_of(ByteRange range) const {
    return {spans_[range.begin].begin, spans_[range.end - 1].end};
  }

  // Returns true if byte `at` is the first byte of the document. If source positions are not
  // tracked, the result is only valid while the text is unmodified.
  bool is_document_start(std::uint32_t at) const {
    return aligned_ ? spans_[at].begin == 0 : offset_ + at == 0;
  }

  // Rewrites a text from front to back. Throws a bad-input error if the text grows more than
  // 64-fold, because chained normalizers could otherwise exhaust memory.
  class TextRewriter {
   public:
    explicit TextRewriter(SourceMappedText& target);
    void copy_unchanged(std::size_t size);
    // Replaces the next `consumed` bytes with one character, which gets the source position of the
    // first consumed byte, or of the previous byte if `consumed` is 0.
    void replace_by_character(char32_t code, std::size_t consumed);
    // Calls replace_by_character() for each character of `text`; only the first consumes bytes.
    void replace_by_text(std::string_view text, std::size_t consumed);
    void drop_bytes(std::size_t size) { at_ += size; }
    std::size_t position() const { return at_; }                // read position in the old text
    std::size_t bytes_written() const { return text_.size(); }  // size of the new text in bytes
    std::string_view original_text() const { return target_.text_; }
    void finish();

   private:
    void check_size_limit() const;

    SourceMappedText& target_;
    std::string text_;
    std::vector<ByteRange> spans_;
    std::size_t at_ = 0;
  };

 private:
  std::string_view text_;
  std::string storage_;
  std::vector<ByteRange> spans_;  // per byte: the source character in the document
  std::uint32_t offset_ = 0;
  std::size_t most_ = 0;  // size limit in bytes after rewriting
  bool aligned_ = false;
};

// Tells a normalizer whether its text begins and ends where a section does. Long sections are
// processed in pieces, and Strip or Prepend must act only at the boundaries of the section.
struct SectionBoundaryFlags {
  bool begins = true;
  bool ends = true;
};

// Effect of normalization on a cut before a space (U+0020) that follows a non-space character.
// as_space: normalizing the two pieces separately gives the same text, and the second piece starts
// with a space. as_mark: the same, but the space becomes U+2581. uncertain: no cut is allowed.
enum class SpaceRepresentation { as_space, as_mark, uncertain };

struct Normalizer {
  std::function<void(SourceMappedText& text, SectionBoundaryFlags ends)> apply;
  SpaceRepresentation space_form = SpaceRepresentation::as_space;
  // True if a section may also be cut between an ideograph and the punctuation that follows it.
  bool allows_cut_after_ideograph = false;
};

// Returns the normalizer, or nullopt if `spec` is JSON null. Error messages start with `where`.
std::optional<Normalizer> make_normalizer(const Json& spec, const std::string& where);

// ---- Pre-tokenizer: splits a section into words for the model

// A section of text and its current pieces, which are non-empty ranges of the text.
struct PretokenizedSection {
  SourceMappedText text;
  std::vector<ByteRange> ranges;
  bool begins = true;  // the text is the start of its section
};

// How a pre-tokenizer stage treats a cut before a space; cut parts are tokenized separately.
enum class TextCutEffect {
  breaks,     // always places a piece boundary at the cut
  local,      // treats both sides independently but may leave them in one piece
  uncertain,  // unknown: no cut is allowed
};

// A pre-tokenizer, or one stage of it.
struct PreTokenizer {
  std::function<void(PretokenizedSection& pieces)> apply;
  TextCutEffect at_space = TextCutEffect::local;  // for SpaceRepresentation::as_space
  TextCutEffect at_mark = TextCutEffect::local;   // for SpaceRepresentation::as_mark
  // True if an ideograph is always separated from the punctuation that follows it.
  bool breaks_after_ideograph = false;
  // True if a piece at the start of the document is treated differently (prepend_scheme first).
  bool needs_document_start = false;
  // True if the last stage is ByteLevel. Words are then raw bytes; BpeModel applies the byte-level
  // alphabet.
  bool is_byte_level = false;
};

// If `spec` is JSON null, the pre-tokenizer splits nothing. Error messages start with `where`.
PreTokenizer make_pre_tokenizer(const Json& spec, const std::string& where);

// ---- Post-processor: adds special tokens and trims offsets

class TokenizerComponentSpec;

// Offsets count bytes of the document when encoding, but characters in the post-processor.
struct EncodedTokens {
  std::vector<std::int32_t> ids;
  std::vector<TokenOffset> offsets;  // one per id if requested, else empty
  std::vector<std::string> strings;  // like offsets; needed for trimming
};

class PostProcessor {
 public:
  PostProcessor() = default;
  PostProcessor(const Json& spec, const std::string& where) { add_processor_steps(spec, where); }

  // Returns a post-processor that adds `first` before and `last` after the ids; -1 adds no token.
  static PostProcessor make_bos_eos_processor(std::int32_t first, std::int32_t last);

  std::int64_t added_special_token_count() const;

  void apply(EncodedTokens& tokens, bool add_special) const;

 private:
  // An element of a post-processor template: a placeholder for the token ids, or special tokens.
  struct TemplatePiece {
    bool is_sequence;
    std::vector<std::int32_t> ids;
    std::string string;  // of each id
  };
  struct PostProcessorStep {
    bool trim = false;
    bool prefix_space = false;          // a single added leading space is not trimmed
    std::vector<TemplatePiece> pieces;  // empty: ids stay unchanged
  };
  void add_processor_steps(const Json& spec, const std::string& where);
  static std::vector<TemplatePiece> read_template(const TokenizerComponentSpec& spec);

  std::vector<PostProcessorStep> steps_;
};

using Decoder = std::function<std::string(std::vector<std::string> tokens)>;

// If `spec` is JSON null, the decoder joins tokens with spaces. Error messages start with `where`.
Decoder make_decoder(const Json& spec, const std::string& where);

// Streaming JSON reader. Does not build a tree, because a tokenizer.json contains hundreds of
// thousands of short strings.
class JsonCursor {
 public:
  // `text` must be valid UTF-8 and outlive the cursor. Error messages start with `where`.
  JsonCursor(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  // enter_container() opens an object or list; next_member() returns false after its last member.
  void enter_container(char open);
  bool next_member(char close);
  std::string_view read_key();

  // Returns the first character of the next value: { [ " t f n, a digit or a minus sign.
  char peek();
  // Returns the string value. The view is valid until the next string is read.
  std::string_view read_string();
  std::int64_t read_integer();
  // Skips one value of any kind and returns its text.
  std::string_view read_raw_value();
  // Throws a bad-input error if the remaining text contains anything but white space.
  void expect_end();

  std::size_t position() const { return at_; }
  void seek(std::size_t position) { at_ = position; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void skip_white_space();
  void expect_character(char c);
  std::string_view read_escaped_string(std::size_t begin);
  void read_escape();
  char32_t read_hex4();

  std::string_view text_;
  std::string where_;
  std::size_t at_ = 0;
  bool first_ = false;  // no member of the innermost object or list was read yet
  std::string buffer_;  // unescaped string
};

// One component ("normalizer", "decoder", ...) of a tokenizer.json. Error messages name it.
class TokenizerComponentSpec {
 public:
  // `part` is the key of the component in the file, for error messages.
  TokenizerComponentSpec(const Json& json, std::string part, std::string where);

  // Returns whether the component has this type. If it has, throws a bad-input error for any key
  // that is neither "type" nor in `keys`, because an unknown key could change the ids.
  bool has_type(std::string_view type, std::initializer_list<std::string_view> keys = {}) const;
  bool is_byte_level() const {
    return has_type("ByteLevel", {"add_prefix_space", "trim_offsets", "use_regex"});
  }
  bool is_metaspace() const {
    return has_type("Metaspace",
                    {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  }

  bool flag(const std::string& key, std::optional<bool> fallback = std::nullopt) const;
  std::string text(const std::string& key,
                   std::optional<std::string> fallback = std::nullopt) const;
  std::string character(const std::string& key) const;  // text of exactly one character
  std::int64_t integer(const std::string& key) const;
  const Json& list(const std::string& key) const;
  const Json& value(const std::string& key) const;
  // Reads "pattern": {"String": ...} or {"Regex": ...}. Stores a string pattern in `literal`.
  SearchPattern read_pattern(std::string* literal = nullptr) const;

  [[noreturn]] void fail_unknown_type() const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  const Json& json_;
  std::string part_;
  std::string where_;
  std::string type_;
};

}  // namespace qkscope
