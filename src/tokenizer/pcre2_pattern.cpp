// Any other expression runs on PCRE2, compiled to machine code where it can be, under limits that
// turn an expression that would run for ever into an error.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/error.h"
#include "tokenizer/pattern.h"
#include "tokenizer/utf8.h"

namespace qkscope {
namespace {

constexpr std::uint32_t kMatchLimit = 10'000'000;   // steps of one match
constexpr std::uint32_t kHeapLimit = 64 * 1024;     // KiB for backtracking
constexpr std::size_t kJitStack = 8 * 1024 * 1024;  // bytes

std::string message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// What one thread needs to run matches.
struct Workspace {
  explicit Workspace(const pcre2_code* code)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 * 1024, kJitStack, nullptr)) {
    if (!data || !context || !stack) failure("PCRE2: out of memory");
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimit);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
  Owned<pcre2_match_data> data;
  Owned<pcre2_match_context> context;
  Owned<pcre2_jit_stack> stack;
};

class Pcre2Pattern : public Pattern {
 public:
  Pcre2Pattern(const std::string& expression, std::string where) : where_(std::move(where)) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                              nullptr));
    if (!code_) {
      bad_input("{}: cannot use the pattern '{}': {} (at character {})", where_, expression,
                message(error), at);
    }
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without it the interpreter runs
  }

  void find(std::string_view text, std::vector<Match>& out) const override {
    const Workspace work(code_.get());
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(work.data.get());
    std::size_t last_end = 0;
    bool any = false;
    const auto push = [&](std::size_t begin, std::size_t end, bool matched) {
      out.push_back(
          {{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)}, matched});
    };
    for (std::size_t from = 0; from <= text.size() && search(text, from, work);) {
      const std::size_t begin = bounds[0], end = bounds[1];
      if (begin == end && any && last_end == end) {  // an empty match right after a match is none
        from = end + (end < text.size() ? utf8::length(text[end]) : 1);
        continue;
      }
      if (last_end < begin) push(last_end, begin, false);
      push(begin, end, true);
      from = last_end = end;
      any = true;
    }
    if (last_end < text.size()) push(last_end, text.size(), false);
  }

 private:
  bool search(std::string_view text, std::size_t from, const Workspace& work) const {
    const int found =
        pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                    PCRE2_NO_UTF_CHECK, work.data.get(), work.context.get());
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      bad_input("{}: the pattern gave up at byte {} of a text: {}", where_, from, message(found));
    }
    return true;
  }

  std::string where_;
  Owned<pcre2_code> code_;
};

}  // namespace

PatternPointer make_pcre2_pattern(const std::string& expression, const std::string& where) {
  return std::make_unique<Pcre2Pattern>(expression, where);
}

}  // namespace qkscope
