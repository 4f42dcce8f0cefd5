#include "input/tokenizer/tokenizer_components.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <memory>

#include <pcre2.h>

#include "base/core/error.h"
#include "base/core/lazy_init.h"
#include "base/core/text.h"
#include "input/tokenizer/unicode.h"

// Expressions are JIT-compiled if possible and run under limits, so that catastrophic backtracking
// becomes an error. PCRE2 uses a different Unicode version and a different \w than the Hugging Face
// library, so common character classes are replaced by the tables in unicode/.
namespace qkscope {
namespace {

constexpr std::uint32_t kMatchLimit = 10'000'000;   // steps per match
constexpr std::uint32_t kHeapLimit = 64 * 1024;     // KiB for backtracking
constexpr std::size_t kJitStack = 8 * 1024 * 1024;  // bytes

std::string pcre2_error_text(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct Pcre2Deleter {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Pcre2Deleter>;

// PCRE2 match state of a thread, shared by all patterns.
struct Pcre2MatchState {
  Pcre2MatchState()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 * 1024, kJitStack, nullptr)) {
    if (!data || !context || !stack) throw_failure("PCRE2: out of memory");
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimit);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
  static Pcre2MatchState& of_this_thread() {
    thread_local Pcre2MatchState workspace;
    return workspace;
  }

  // Searches from position `from`. Returns a negative PCRE2 error code if there is no match.
  int match(const pcre2_code* code, std::string_view text, std::size_t from) const {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK, data.get(), context.get());
  }
  std::size_t match_begin() const { return pcre2_get_ovector_pointer(data.get())[0]; }
  std::size_t match_end() const { return pcre2_get_ovector_pointer(data.get())[1]; }

  Owned<pcre2_match_data> data;
  Owned<pcre2_match_context> context;
  Owned<pcre2_jit_stack> stack;
};

// Compiles an expression. Error messages quote `shown`, the original expression.
Owned<pcre2_code> compile_pcre2(const std::string& expression, const std::string& shown,
                                const std::string& where) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Owned<pcre2_code> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr));
  if (!code) reject("{}: cannot use the pattern '{}': {}", where, shown, pcre2_error_text(error));
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // on failure, PCRE2 interprets the expression
  return code;
}

// Returns the body of a regex character class: `basis` (such as \p{L}), plus the characters that
// have this Unicode property in our tables but not in PCRE2's older tables.
std::string add_missing_characters_to_class(const std::string& basis, std::uint16_t flag) {
  const auto code = compile_pcre2("[" + basis + "]", basis, "qkscope");
  const Pcre2MatchState& work = Pcre2MatchState::of_this_thread();
  std::string inside = basis;
  constexpr char32_t kEnd = 0x110000;
  const auto lacks = [&](char32_t c) {
    if ((c >= 0xD800 && c < 0xE000) || !unicode::has_character_property(c, flag)) return false;
    return work.match(code.get(), utf8::encode_code_point(c), 0) < 0;
  };
  for (char32_t c = 0; c < kEnd; ++c) {
    if (!lacks(c)) continue;
    const char32_t first = c;
    while (c + 1 < kEnd && lacks(c + 1)) ++c;
    inside += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<std::uint32_t>(first),
                          static_cast<std::uint32_t>(c));
  }
  return inside;
}

struct CharacterClassEscape {
  std::string_view positive, negative;  // spelling in an expression
  std::string inside;
};

const std::vector<CharacterClassEscape>& extended_character_classes() {
  return lazy_init_lock_free([] {
    return std::vector<CharacterClassEscape>{
        {"\\w", "\\W",
         add_missing_characters_to_class("\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}", unicode::kRegexWord)},
        {"\\s", "\\S",
         add_missing_characters_to_class("\\x{9}-\\x{D}\\x{85}\\p{Z}", unicode::kSpace)},
        {"\\p{L}", "\\P{L}", add_missing_characters_to_class("\\p{L}", unicode::kLetter)},
        {"\\p{N}", "\\P{N}", add_missing_characters_to_class("\\p{N}", unicode::kNumber)},
    };
  });
}

// Replaces \w, \s, \p{L}, \p{N} and, outside [...], their negations with
// extended_character_classes().
std::string expand_character_classes(std::string_view expression) {
  std::string out;
  bool in_class = false;
  for (std::size_t at = 0; at < expression.size();) {
    const std::string_view rest = expression.substr(at);
    std::size_t used = rest[0] == '\\' ? std::min<std::size_t>(2, rest.size()) : 1;
    std::string put(rest.substr(0, used));
    for (const CharacterClassEscape& known : extended_character_classes()) {
      if (rest.starts_with(known.positive)) {
        put = in_class ? known.inside : "[" + known.inside + "]";
        used = known.positive.size();
      } else if (!in_class && rest.starts_with(known.negative)) {
        put = "[^" + known.inside + "]";
        used = known.negative.size();
      }
    }
    if (rest[0] == '[') in_class = true;
    if (rest[0] == ']') in_class = false;
    out += put;
    at += used;
  }
  return out;
}

// Appends all matches of a regex and the gaps between them. Error messages start with `where`.
void find_matches(const pcre2_code* code, std::string_view text, const std::string& where,
                  std::vector<MatchOrGap>& out) {
  const Pcre2MatchState& work = Pcre2MatchState::of_this_thread();
  std::size_t last_end = 0;
  bool any = false;
  const auto push = [&](std::size_t begin, std::size_t end, bool matched) {
    out.push_back({{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)}, matched});
  };
  for (std::size_t from = 0; from <= text.size();) {
    const int found = work.match(code, text, from);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      reject("{}: the pattern gave up at byte {} of a text: {}", where, from,
             pcre2_error_text(found));
    const std::size_t begin = work.match_begin(), end = work.match_end();
    if (begin == end && any && last_end == end) {  // an empty match directly after another match
      from = end + (end < text.size() ? utf8::character_size(text[end]) : 1);
      continue;
    }
    if (last_end < begin) push(last_end, begin, false);
    push(begin, end, true);
    from = last_end = end;
    any = true;
  }
  if (last_end < text.size()) push(last_end, text.size(), false);
}

}  // namespace

SearchPattern make_pcre2_pattern(const std::string& expression, const std::string& where) {
  constexpr std::size_t kLongest = 16 << 10;  // bytes; every \w expands to several hundred bytes
  if (expression.size() > kLongest)
    reject("{}: a pattern of {} bytes; at most {} are read", where, expression.size(), kLongest);
  const std::shared_ptr<const pcre2_code> code =
      compile_pcre2(expand_character_classes(expression), expression, where);
  return {.find = [=](std::string_view text, std::vector<MatchOrGap>& matches) {
    find_matches(code.get(), text, where, matches);
  }};
}

}  // namespace qkscope
