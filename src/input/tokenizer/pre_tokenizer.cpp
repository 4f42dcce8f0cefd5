#include "input/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/core/error.h"
#include "base/core/utf8.h"
#include "base/io/json.h"
#include "input/tokenizer/byte_alphabet.h"
#include "input/tokenizer/json_spec.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

// Rewrites every piece with `change(rewrite, piece)`, which must consume the whole piece.
template <typename Change>
void rewrite_pieces(Pieces& pieces, Change change) {
  AlignedText::Rewrite rewrite(pieces.text);
  std::uint32_t written = 0;
  for (Span& piece : pieces.ranges) {
    rewrite.drop(piece.begin - rewrite.position());
    change(rewrite, piece);
    piece = {written, static_cast<std::uint32_t>(rewrite.written())};
    written = piece.end;
  }
  rewrite.finish();
}

// Inserts `prefix` before the first character of the piece.
void put_before(AlignedText::Rewrite& rewrite, char32_t prefix) {
  const auto [first, size] = utf8::decode(rewrite.old().data() + rewrite.position());
  rewrite.put(prefix, size);
  rewrite.put(first, 0);
}

class Metaspace : public PreTokenizerStage {
 public:
  enum class Prepend { never, first, always };

  Metaspace(char32_t mark, Prepend prepend, bool split)
      : mark_(mark),
        prepend_(prepend),
        split_(split),
        pattern_(make_string_pattern(utf8::encode_code_point(mark))) {}

  void apply(Pieces& pieces) const override {
    rewrite_pieces(pieces, [&](AlignedText::Rewrite& rewrite, Span piece) {
      if (wants_mark(pieces, piece)) put_before(rewrite, mark_);
      while (rewrite.position() < piece.end) replace_space(rewrite, piece.end);
    });
    if (split_) split_pieces(pattern_, {SplitBehavior::merged_with_next}, pieces);
  }

  AtCut at_cut(CutSpace space) const override {
    if (space == CutSpace::as_mark && mark_ != unicode::kSpaceMark) return AtCut::uncertain;
    return split_ ? AtCut::breaks : AtCut::local;
  }
  bool needs_alignment() const override { return prepend_ == Prepend::first; }

 private:
  bool wants_mark(const Pieces& pieces, Span piece) const {
    if (prepend_ == Prepend::never || (piece.begin == 0 && !pieces.begins)) return false;
    if (prepend_ == Prepend::first && !pieces.text.starts_document(piece.begin)) return false;
    const char32_t first = utf8::decode(pieces.text.text().data() + piece.begin).code;
    return first != U' ' && first != mark_;
  }

  // Copies the text up to the next space and replaces that space by the mark.
  void replace_space(AlignedText::Rewrite& rewrite, std::size_t end) const {
    const std::size_t at = rewrite.position();
    const std::size_t space = rewrite.old().substr(0, end).find(' ', at);
    if (space == std::string_view::npos) return rewrite.keep(end - at);
    rewrite.keep(space - at);
    rewrite.put(mark_, 1);
  }

  char32_t mark_;
  Prepend prepend_;
  bool split_;
  Pattern pattern_;
};

class ByteLevel : public PreTokenizerStage {
 public:
  // `map`: replace every byte by its character in the byte-level alphabet, for later stages.
  ByteLevel(const JsonSpec& spec, bool map)
      : prefix_space_(spec.flag("add_prefix_space")),
        map_(map),
        split_(spec.flag("use_regex", true)
                   ? make_split_stage(*make_family_pattern(kGpt2Expression), {})
                   : nullptr) {}

  void apply(Pieces& pieces) const override {
    if (prefix_space_) add_spaces(pieces);
    if (split_) split_->apply(pieces);
    if (map_) map_bytes(pieces);
  }
  AtCut at_cut(CutSpace space) const override {
    return split_ ? split_->at_cut(space) : AtCut::local;
  }
  bool breaks_after_ideograph() const override {
    return split_ && split_->breaks_after_ideograph();
  }

 private:
  static bool wants_space(const Pieces& pieces, Span piece) {
    return pieces.text.text()[piece.begin] != ' ' && (piece.begin > 0 || pieces.begins);
  }

  static void add_spaces(Pieces& pieces) {
    const bool any = std::any_of(pieces.ranges.begin(), pieces.ranges.end(),
                                 [&](Span piece) { return wants_space(pieces, piece); });
    if (!any) return;
    rewrite_pieces(pieces, [&](AlignedText::Rewrite& rewrite, Span piece) {
      if (wants_space(pieces, piece)) put_before(rewrite, U' ');
      rewrite.keep(piece.end - rewrite.position());
    });
  }

  static void map_bytes(Pieces& pieces) {
    rewrite_pieces(pieces, [](AlignedText::Rewrite& rewrite, Span piece) {
      while (rewrite.position() < piece.end) {
        const char* at = rewrite.old().data() + rewrite.position();
        const std::uint32_t size = utf8::length(*at);
        for (std::uint32_t i = 0; i < size; ++i)
          rewrite.put(byte_to_character(at[i]), i == 0 ? size : 0);
      }
    });
  }

  bool prefix_space_;
  bool map_;
  std::unique_ptr<const PreTokenizerStage> split_;
};

using Stage = std::unique_ptr<const PreTokenizerStage>;

SplitBehavior parse_behavior(const JsonSpec& spec, const std::string& name) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  spec.fail(fmt::format("has the unknown behavior \"{}\"", name));
}

Stage make_metaspace(const JsonSpec& spec) {
  spec.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const std::string mark = spec.text("replacement");
  if (utf8::count_characters(mark) != 1) spec.fail("\"replacement\" must be one character");
  const std::string scheme = spec.text("prepend_scheme", "always");
  using Scheme = Metaspace::Prepend;
  const auto prepend = scheme == "never"   ? Scheme::never
                       : scheme == "first" ? Scheme::first
                                           : Scheme::always;
  if (prepend == Scheme::always && scheme != "always")
    spec.fail(fmt::format("has the unknown prepend_scheme \"{}\"", scheme));
  if (!spec.flag("add_prefix_space", true) && prepend != Scheme::never)
    spec.fail("says add_prefix_space false and a prepend_scheme other than \"never\"");
  return std::make_unique<Metaspace>(utf8::decode(mark.data()).code, prepend,
                                     spec.flag("split", true));
}

Stage make_stage(const JsonSpec& spec, bool last) {
  const std::string& type = spec.type();
  if (type == "Split") {
    spec.allow({"pattern", "behavior", "invert"});
    return make_split_stage(spec.pattern(),
                            {parse_behavior(spec, spec.text("behavior")), spec.flag("invert")});
  }
  if (type == "Metaspace") return make_metaspace(spec);
  if (type == "ByteLevel") {
    spec.allow({"add_prefix_space", "trim_offsets", "use_regex"});
    return std::make_unique<ByteLevel>(spec, !last);
  }
  if (type == "Digits") {
    spec.allow({"individual_digits"});
    const auto behavior =
        spec.flag("individual_digits") ? SplitBehavior::isolated : SplitBehavior::contiguous;
    return make_split_stage(make_property_pattern(unicode::kDigit), {behavior, false, true});
  }
  if (type == "Punctuation") {
    spec.allow({"behavior"});
    const auto behavior = parse_behavior(spec, spec.text("behavior", "Isolated"));
    return make_split_stage(make_property_pattern(unicode::kPunctuation), {behavior, false, true});
  }
  if (type == "Whitespace") {
    spec.allow({});
    return make_split_stage(make_words_pattern(), {SplitBehavior::removed, true});
  }
  if (type == "WhitespaceSplit") {
    spec.allow({});
    return make_split_stage(make_property_pattern(unicode::kSpace), {SplitBehavior::removed});
  }
  spec.unknown_type();
}

// Flattens nested sequences into one list.
void flatten(const Json& json, const std::string& where, std::vector<const Json*>& out) {
  const JsonSpec spec(json, "pre_tokenizer", where);
  if (spec.type() != "Sequence") return out.push_back(&json);
  spec.allow({"pretokenizers"});
  for (const Json& part : spec.list("pretokenizers")) flatten(part, where, out);
}

}  // namespace

PreTokenizer::PreTokenizer(const Json& json, const std::string& where) {
  if (json.is_null()) return;
  std::vector<const Json*> specs;
  flatten(json, where, specs);
  for (const Json* part : specs) {
    const JsonSpec spec(*part, "pre_tokenizer", where);
    const bool last = part == specs.back();
    gives_bytes_ = last && spec.type() == "ByteLevel";
    stages_.push_back(make_stage(spec, last));
  }
}

bool PreTokenizer::needs_alignment() const {
  return std::any_of(stages_.begin(), stages_.end(),
                     [](const auto& stage) { return stage->needs_alignment(); });
}

AtCut PreTokenizer::at_cut(CutSpace space) const {
  for (const auto& stage : stages_) {
    const AtCut one = stage->at_cut(space);
    if (one != AtCut::local) return one;
  }
  return AtCut::local;
}

}  // namespace qkscope
