// Implements encode_chunks() of qkscope/texts.h.
#include <algorithm>

#include "base/core/error.h"
#include "input/texts/dataset_files.h"
#include "qkscope/texts.h"

namespace qkscope {

void check_chunk_options(const ChunkOptions& chunk) {
  const auto& [size, overlap, min_length] = chunk;
  const bool whole_texts = size == 0 && overlap == 0 && min_length == 1;
  if (!whole_texts &&
      (size < 1 || overlap < 0 || overlap >= size || min_length < 1 || min_length > size))
    bad_input(
        "chunks of {} tokens with an overlap of {} and a least length of {}: expected a size above "
        "0, an overlap below the size, and a least length from 1 to the size",
        size, overlap, min_length);
}

TextChunks encode_chunks(const Tokenizer& tokenizer, std::string_view text,
                         const ChunkOptions& chunk, const Tokenizer::EncodeOptions& options) {
  return translate_exceptions([&] {
    check_chunk_options(chunk);
    const bool special = options.add_special_tokens;
    const auto added = special ? std::ssize(tokenizer.encode("").ids) : 0;
    const auto before = special ? std::ssize(tokenizer.prefix_ids()) : 0;
    const auto width = chunk.size - added;  // tokens of text in a chunk
    if (width <= chunk.overlap)
      bad_input(
          "chunks of {} tokens with an overlap of {}: the tokenizer adds {} special tokens to "
          "each; "
          "expected chunks of at least {} tokens",
          chunk.size, chunk.overlap, added, added + chunk.overlap + 1);
    const auto [ids, truncated, offsets] = tokenizer.encode(text, options);
    const auto end = std::ssize(ids) - (added - before);
    // Offsets of a token may exclude white space around it, so the text is cut at ends of tokens.
    const auto cut_at = [&, &offsets = offsets](std::int64_t token) {
      return token == before ? 0
             : token == end  ? INT64_MAX
                             : offsets[static_cast<std::size_t>(token) - 1].end;
    };
    TextChunks result{.tokens = std::ssize(ids)};
    for (auto begin = before;; begin += width - chunk.overlap) {
      const auto stop = std::min(begin + width, end);
      result.dropped = stop - begin + added < chunk.min_length;
      if (!result.dropped) {
        auto& window = result.chunks.emplace_back().ids;
        window.assign(ids.begin(), ids.begin() + before);
        window.insert(window.end(), ids.begin() + begin, ids.begin() + stop);
        window.insert(window.end(), ids.begin() + end, ids.end());
        if (options.offsets) result.ranges.push_back({cut_at(begin), cut_at(stop)});
      }
      if (stop == end) return result;
    }
  });
}

}  // namespace qkscope
