// Implements encode_chunks() and write_long_texts() from qkscope/texts.h.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <arrow/api.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/arrow_error.h"
#include "base/io/json.h"
#include "base/io/output_file.h"
#include "base/tables/parquet_stream.h"
#include "input/texts/dataset_files.h"
#include "qkscope/experimental/log.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"

namespace qkscope {
namespace {

struct TextRow {
  std::variant<std::int64_t, std::string> id;
  std::string text;
  std::int64_t tokens = 0;
};

// Writes a text dataset row by row, as JSON Lines or Parquet. Without finish(), no file remains.
class TextDatasetWriter {
 public:
  TextDatasetWriter(const std::string& path, const std::string& id_column)
      : path_(path), id_column_(id_column) {
    if (id_column == "text" || id_column == "tokens")
      reject("{}: the ids cannot be in a column named '{}' too", path, id_column);
    const bool is_parquet = path.ends_with(".parquet");
    if (!is_parquet && !path.ends_with(".jsonl"))
      reject("{}: not a name for a dataset; expected one that ends in .parquet or .jsonl", path);
    lines_.emplace(path);  // throws if the path cannot be written
    if (is_parquet) lines_.reset();
  }

  void add_row(TextRow row) {
    if (lines_) return write_line(std::move(row));
    const bool integer = std::holds_alternative<std::int64_t>(row.id);
    if (has_integer_ids_.value_or(integer) != integer)
      reject(
          "{}: some ids are integers and some are not, which a Parquet column cannot hold; write "
          "a .jsonl file",
          path_);
    has_integer_ids_ = integer;
    bytes_ += row.text.size();
    rows_.push_back(std::move(row));
    if (bytes_ >= kRowGroupBytes) write_row_group();
  }

  // Renames the complete file to its final name.
  void finish() {
    if (lines_) return lines_->commit();
    if (!rows_.empty()) write_row_group();
    parquet_->finish();
  }

 private:
  static constexpr std::size_t kRowGroupBytes = 32 << 20;

  void write_line(TextRow row) {
    Json line = {{"text", std::move(row.text)}, {"tokens", row.tokens}};
    std::visit([&](auto& id) { line[id_column_] = std::move(id); }, row.id);
    lines_->write(line.dump() + "\n");
  }

  void write_row_group() {
    const auto check = [&](const arrow::Status& status) {
      check_arrow_status(status, "writing " + path_, ErrorKind::failure);
    };
    arrow::Int64Builder integer_ids, tokens;
    arrow::StringBuilder text_ids;
    arrow::LargeStringBuilder texts;
    for (const auto& row : rows_) {
      check(*has_integer_ids_ ? integer_ids.Append(std::get<std::int64_t>(row.id))
                              : text_ids.Append(std::get<std::string>(row.id)));
      check(texts.Append(row.text));
      check(tokens.Append(row.tokens));
    }
    arrow::ArrayVector columns(3);
    check(*has_integer_ids_ ? integer_ids.Finish(&columns[0]) : text_ids.Finish(&columns[0]));
    check(texts.Finish(&columns[1]));
    check(tokens.Finish(&columns[2]));
    const auto schema = arrow::schema({arrow::field(id_column_, columns[0]->type()),
                                       arrow::field("text", arrow::large_utf8()),
                                       arrow::field("tokens", arrow::int64())});
    if (!parquet_) parquet_.emplace(path_, *schema, true);
    parquet_->append(*arrow::Table::Make(schema, columns));
    rows_.clear();
    bytes_ = 0;
  }

  std::string path_, id_column_;
  std::optional<OutputFile> lines_;  // for JSON Lines only
  std::optional<AtomicParquetFile> parquet_;
  std::optional<bool> has_integer_ids_;  // set by the first row
  std::vector<TextRow> rows_;            // of the next row group
  std::size_t bytes_ = 0;                // of the texts in rows_
};

constexpr std::size_t kBlockBytes = 32 << 20;  // bytes of text held in memory at a time

// Returns the substring of characters [begin, end).
std::string_view slice_characters(std::string_view text, std::int64_t begin, std::int64_t end) {
  const auto skip = [&](std::size_t at, std::int64_t count) {
    for (; count > 0 && at < text.size(); --count) at += utf8::character_size(text[at]);
    return std::min(at, text.size());
  };
  const auto first = skip(0, begin);
  return text.substr(first, skip(first, end - begin) - first);
}

// Output rows for one input text.
struct OutputRows {
  std::vector<TextRow> rows;  // one row, or one per chunk; ids are not set
  std::int64_t tokens = 0;    // of the text, after truncation if `cut`
  bool cut = false;
  bool dropped_chunk = false;
};

// Makes an output row from a part of a text. Counts the tokens that a capture of the row will have.
TextRow make_text_row(const Tokenizer& tokenizer, const LongTextOptions& options,
                      std::string_view part) {
  const auto encoding = tokenizer.encode(part, {.add_special_tokens = options.special_tokens});
  return {{}, std::string(part), std::ssize(encoding.ids)};
}

OutputRows cut_text_into_chunks(const Tokenizer& tokenizer, const LongTextOptions& options,
                                std::string_view text) {
  const auto found = encode_chunks(tokenizer, text, options.chunk,
                                   {.add_special_tokens = options.special_tokens, .offsets = true});
  OutputRows made{.rows = {}, .tokens = found.tokens, .dropped_chunk = found.dropped};
  std::int64_t at = 0;  // character at which the rest of the text begins
  for (const auto& [begin, end] : found.ranges) {
    text.remove_prefix(slice_characters(text, 0, begin - at).size());
    at = begin;
    made.rows.push_back(make_text_row(tokenizer, options, slice_characters(text, 0, end - begin)));
  }
  return made;
}

OutputRows truncate_long_text(const Tokenizer& tokenizer, const LongTextOptions& options,
                              std::string text) {
  const auto found = tokenizer.encode(text, {.add_special_tokens = options.special_tokens,
                                             .max_length = options.max_tokens,
                                             .offsets = options.max_tokens > 0});
  const auto tokens = std::ssize(found.ids);
  if (!found.truncated) return {.rows = {{{}, std::move(text), tokens}}, .tokens = tokens};
  // Special tokens have empty offsets. The tokenizer may truncate on either side.
  std::int64_t begin = INT64_MAX;
  std::int64_t end = 0;
  for (const auto& offset : found.offsets) {
    if (offset.begin == offset.end) continue;
    begin = std::min(begin, offset.begin);
    end = std::max(end, offset.end);
  }
  const auto part = slice_characters(text, std::min(begin, end), end);
  return {.rows = {make_text_row(tokenizer, options, part)}, .tokens = tokens, .cut = true};
}

// Integer ids must stay integers, because an id converted to text has a different sampling seed.
std::variant<std::int64_t, std::string> original_example_id(const Document& document) {
  const auto id = ExampleId::from_digits(document.source_id);
  if (id.integer == document.example_key) return *id.integer;
  return document.source_id;
}

void check_long_text_options(const LongTextOptions& options) {
  if (options.min_tokens < 1)
    reject("a least number of {} tokens: expected 1 or more", options.min_tokens);
  check_chunk_options(options.chunk);
  if (options.chunk.size > 0 && options.max_tokens > 0)
    reject("chunks of {} tokens, and texts cut to {}: expected one of the two", options.chunk.size,
           options.max_tokens);
  if (options.max_tokens > 0 && options.max_tokens < options.min_tokens)
    reject("texts of at least {} tokens, cut to {}: expected a cut that leaves enough",
           options.min_tokens, options.max_tokens);
}

std::vector<Document> read_document_block(Corpus& corpus) {
  std::vector<Document> block;
  std::size_t held = 0;
  for (Document document; held < kBlockBytes && corpus.next(document);) {
    held += document.text.size();
    block.push_back(std::move(document));
  }
  return block;
}

}  // namespace

void check_chunk_options(const ChunkOptions& chunk) {
  const auto& [size, overlap, min_length] = chunk;
  const bool whole_texts = size == 0 && overlap == 0 && min_length == 1;
  if (!whole_texts &&
      (size < 1 || overlap < 0 || overlap >= size || min_length < 1 || min_length > size))
    reject(
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
      reject(
          "chunks of {} tokens with an overlap of {}: the tokenizer adds {} special tokens to "
          "each; expected chunks of at least {} tokens",
          chunk.size, chunk.overlap, added, added + chunk.overlap + 1);
    const auto [ids, truncated, offsets] = tokenizer.encode(text, options);
    const auto end = std::ssize(ids) - (added - before);
    // Offsets may exclude white space around a token, so cut the text at the ends of tokens.
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

LongTextResult write_long_texts(Corpus& corpus, const Tokenizer& tokenizer,
                                const LongTextOptions& options) {
  return translate_exceptions([&] {
    check_long_text_options(options);
    TextDatasetWriter writer(options.out, options.id_column);
    Progress progress({.what = "reading", .unit = "texts", .quiet = options.quiet});
    LongTextResult result;
    const auto enough = [&] { return options.keep > 0 && result.kept == options.keep; };
    while (!enough()) {
      auto block = read_document_block(corpus);
      if (block.empty()) break;
      std::vector<OutputRows> texts(block.size());
      parallel_for(std::ssize(block), [&](std::int64_t i) {
        const auto at = static_cast<std::size_t>(i);
        auto& text = block[at].text;
        texts[at] = options.chunk.size > 0
                        ? cut_text_into_chunks(tokenizer, options, text)
                        : truncate_long_text(tokenizer, options, std::move(text));
      });
      for (std::size_t i = 0; i < block.size() && !enough(); ++i) {
        ++result.read;
        auto& text = texts[i];
        result.dropped_chunks += text.dropped_chunk;
        if (text.tokens < options.min_tokens || text.rows.empty()) {
          ++result.too_short;
          result.longest = std::max(result.longest, text.tokens);
          continue;
        }
        ++result.kept;
        result.cut += text.cut;
        for (std::size_t r = 0; r < text.rows.size(); ++r, ++result.rows) {
          auto& row = text.rows[r];
          row.id = options.chunk.size > 0 ? chunk_id(block[i].source_id, r)
                                          : original_example_id(block[i]);
          result.tokens += row.tokens;
          writer.add_row(std::move(row));
        }
      }
      progress.update(result.read);
      if (options.stop != nullptr && options.stop->load()) return result;
    }
    progress.finish();
    if (result.kept == 0)
      reject("none of {} texts has {} tokens; the longest has {}", result.read,
             std::max(options.min_tokens, options.chunk.min_length), result.longest);
    writer.finish();
    result.finished = true;
    return result;
  });
}

}  // namespace qkscope
