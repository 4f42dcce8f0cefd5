// Implements write_long_texts() of qkscope/texts.h.
#include <algorithm>
#include <vector>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "base/core/utf8.h"
#include "input/texts/record_reader.h"
#include "input/texts/text_writer.h"
#include "qkscope/experimental/log.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"

namespace qkscope {
namespace {

constexpr std::size_t kBlockBytes = 32 << 20;  // bytes of text held in memory at a time

// Returns the substring of characters [begin, end).
std::string_view characters(std::string_view text, std::int64_t begin, std::int64_t end) {
  const auto skip = [&](std::size_t at, std::int64_t count) {
    for (; count > 0 && at < text.size(); --count) at += utf8::length(text[at]);
    return std::min(at, text.size());
  };
  const auto first = skip(0, begin);
  return text.substr(first, skip(first, end - begin) - first);
}

// A text after truncation, with its number of tokens.
struct TruncatedText {
  std::string text;
  std::int64_t tokens = 0;
  bool cut = false;
};

TruncatedText truncate(const Tokenizer& tokenizer, const LongTextOptions& options,
                       std::string text) {
  const auto found = tokenizer.encode(text, {.add_special_tokens = options.special_tokens,
                                             .max_length = options.max_tokens,
                                             .offsets = options.max_tokens > 0});
  if (!found.truncated) return {std::move(text), std::ssize(found.ids), false};
  // Special tokens have empty offsets; the tokenizer may truncate on either side.
  std::int64_t begin = INT64_MAX;
  std::int64_t end = 0;
  for (const auto& offset : found.offsets) {
    if (offset.begin == offset.end) continue;
    begin = std::min(begin, offset.begin);
    end = std::max(end, offset.end);
  }
  std::string part(characters(text, std::min(begin, end), end));
  const auto again = tokenizer.encode(part, {.add_special_tokens = options.special_tokens});
  return {std::move(part), std::ssize(again.ids), true};
}

// Integer ids stay integers, because the sampling seed of any other id is its hash.
std::variant<std::int64_t, std::string> id_of(const Document& document) {
  const auto id = ExampleId::from_digits(document.source_id);
  if (id.integer == document.example_key) return *id.integer;
  return document.source_id;
}

void check_options(const LongTextOptions& options) {
  if (options.min_tokens < 1)
    bad_input("a least number of {} tokens: expected 1 or more", options.min_tokens);
  if (options.max_tokens > 0 && options.max_tokens < options.min_tokens)
    bad_input("texts of at least {} tokens, cut to {}: expected a cut that leaves enough",
              options.min_tokens, options.max_tokens);
}

std::vector<Document> next_block(Corpus& corpus) {
  std::vector<Document> block;
  std::size_t held = 0;
  for (Document document; held < kBlockBytes && corpus.next(document);) {
    held += document.text.size();
    block.push_back(std::move(document));
  }
  return block;
}

}  // namespace

LongTextResult write_long_texts(Corpus& corpus, const Tokenizer& tokenizer,
                                const LongTextOptions& options) {
  return translate_exceptions([&] {
    check_options(options);
    const auto writer = open_text_writer(options.out, options.id_column);
    Progress progress({.what = "reading", .unit = "texts", .quiet = options.quiet});
    LongTextResult result;
    const auto enough = [&] { return options.keep > 0 && result.kept == options.keep; };
    while (!enough()) {
      auto block = next_block(corpus);
      if (block.empty()) break;
      std::vector<TruncatedText> texts(block.size());
      parallel_for(std::ssize(block), [&](std::int64_t i) {
        const auto at = static_cast<std::size_t>(i);
        texts[at] = truncate(tokenizer, options, std::move(block[at].text));
      });
      for (std::size_t i = 0; i < block.size() && !enough(); ++i) {
        ++result.read;
        auto& text = texts[i];
        // A truncated text was long enough, even if re-encoding it gives fewer tokens.
        if (!text.cut && text.tokens < options.min_tokens) {
          ++result.too_short;
          result.longest = std::max(result.longest, text.tokens);
          continue;
        }
        ++result.kept;
        result.cut += text.cut;
        result.tokens += text.tokens;
        writer->add({id_of(block[i]), std::move(text.text), text.tokens});
      }
      progress.update(result.read);
      if (options.stop != nullptr && options.stop->load()) return result;
    }
    progress.finish();
    if (result.kept == 0)
      bad_input("none of {} texts has {} tokens; the longest has {}", result.read,
                options.min_tokens, result.longest);
    writer->finish();
    result.finished = true;
    return result;
  });
}

}  // namespace qkscope
