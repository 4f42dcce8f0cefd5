// qkscope dataset: reports the text lengths of a dataset, or writes its long texts, whole or as
// chunks, to a new dataset.
#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/json.h"
#include "cli/numbers.h"
#include "cli/run_options.h"
#include "cli/stop_signal.h"
#include "qkscope/experimental/log.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/text.h"
#include "qkscope/experimental/threads.h"
#include "qkscope/hub.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"

namespace qkscope::cli {
namespace {

struct DatasetArguments {
  CommonOptions common;
  CorpusOptions corpus;
  std::string name, id_column, shard, tokenizer;
  std::string errors = "strict";
  LongTextOptions long_texts;
  bool no_special = false, json = false;
};

// Text lengths of a dataset: bytes per document, and tokens per document or chunk.
struct TextLengths {
  std::vector<std::int64_t> bytes, tokens;
  std::int64_t truncated = 0;
  std::int64_t dropped_chunks = 0;
  bool in_chunks = false;
};

// Tokenizes a text and splits it into chunks; without --chunk, into a single chunk.
TextChunks encode_text(const Tokenizer& tokenizer, std::string_view text,
                       const LongTextOptions& options) {
  const Tokenizer::EncodeOptions encoding{options.special_tokens, options.max_tokens};
  if (options.chunk.size > 0) return encode_chunks(tokenizer, text, options.chunk, encoding);
  TextChunks whole;
  whole.chunks.push_back(tokenizer.encode(text, encoding));
  return whole;
}

// Measures the lengths of all texts, block by block, so that memory holds only one block.
TextLengths measure_lengths(Corpus& corpus, const Tokenizer* tokenizer,
                            const DatasetArguments& options) {
  constexpr std::size_t kBlockBytes = 32 << 20;
  Progress progress({.what = "reading", .unit = "documents", .quiet = options.common.quiet});
  TextLengths lengths;
  lengths.in_chunks = options.long_texts.chunk.size > 0;
  for (bool more = true; more;) {
    std::vector<std::string> texts;
    std::size_t held = 0;
    for (Document document; held < kBlockBytes && (more = corpus.next(document));) {
      held += document.text.size();
      lengths.bytes.push_back(std::ssize(document.text));
      texts.push_back(std::move(document.text));
    }
    if (tokenizer != nullptr) {
      std::vector<TextChunks> encoded(texts.size());
      parallel_for(std::ssize(texts), [&](std::int64_t i) {
        const auto at = static_cast<std::size_t>(i);
        encoded[at] = encode_text(*tokenizer, texts[at], options.long_texts);
      });
      for (const auto& text : encoded) {
        lengths.dropped_chunks += text.dropped;
        for (const auto& chunk : text.chunks) {
          lengths.tokens.push_back(std::ssize(chunk.ids));
          lengths.truncated += chunk.truncated;
        }
      }
    }
    progress.update(std::ssize(lengths.bytes));
  }
  progress.finish();
  return lengths;
}

struct LengthSummary {
  std::int64_t total = 0, least = 0, median = 0, most = 0;
};

LengthSummary summarize(std::vector<std::int64_t> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  LengthSummary summary{0, values.front(), values[values.size() / 2], values.back()};
  for (const std::int64_t value : values) summary.total += value;
  return summary;
}

struct LengthBin {
  std::int64_t from, to, count;  // from <= length < to
};

// Histogram bins from the shortest to the longest document; each bound is twice the previous one.
std::vector<LengthBin> length_histogram(const std::vector<std::int64_t>& lengths) {
  std::vector<LengthBin> bins;
  if (lengths.empty()) return bins;
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  std::int64_t from = 1;
  while (2 * from <= *least) from *= 2;
  if (*least == 0) from = 0;
  for (; from <= *most; from = std::max<std::int64_t>(2 * from, 1)) {
    const std::int64_t to = std::max<std::int64_t>(2 * from, 1);
    bins.push_back({from, to, std::count_if(lengths.begin(), lengths.end(), [&](std::int64_t n) {
                      return from <= n && n < to;
                    })});
  }
  return bins;
}

Json to_json(const LengthSummary& summary) {
  return {{"total", summary.total},
          {"min", summary.least},
          {"median", summary.median},
          {"max", summary.most}};
}

void print_json(const Corpus& corpus, const TextLengths& lengths) {
  const auto& counts = corpus.counts();
  Json out{{"files", corpus.files()},           {"rows", counts.rows},
           {"documents", counts.documents},     {"null_texts", counts.null_texts},
           {"empty_texts", counts.empty_texts}, {"bytes", to_json(summarize(lengths.bytes))}};
  for (const auto& [name, type] : corpus.columns()) {
    out["columns"].push_back({{"name", name}, {"type", type}});
  }
  if (lengths.in_chunks) {
    out["chunks"] = lengths.tokens.size();
    out["dropped_chunks"] = lengths.dropped_chunks;
  }
  if (!lengths.tokens.empty()) {
    out["tokens"] = to_json(summarize(lengths.tokens));
    out["tokens"]["truncated"] = lengths.truncated;
    for (const auto& [from, to, count] : length_histogram(lengths.tokens)) {
      out["tokens"]["histogram"].push_back({{"from", from}, {"to", to}, {"count", count}});
    }
  }
  fmt::print("{}\n", dump_json(out));
}

void print_summary(const char* what, const LengthSummary& summary) {
  fmt::print("{:<11}{} in all; shortest {}, median {}, longest {}\n", what,
             format_number(summary.total), format_number(summary.least),
             format_number(summary.median), format_number(summary.most));
}

void print_tokens(const TextLengths& lengths) {
  print_summary("tokens", summarize(lengths.tokens));
  if (lengths.truncated > 0)
    fmt::print("{:<11}{}\n", "truncated", format_number(lengths.truncated));
  const std::vector<LengthBin> bins = length_histogram(lengths.tokens);
  std::int64_t most = 1;
  for (const LengthBin& bin : bins) most = std::max(most, bin.count);
  fmt::print("\n{:>21}  {}\n", "tokens", lengths.in_chunks ? "chunks" : "documents");
  for (const auto& [from, to, documents] : bins) {
    constexpr std::int64_t kWidth = 40;
    const std::int64_t bar =
        documents == 0 ? 0 : std::max<std::int64_t>(1, documents * kWidth / most);
    std::string blocks;
    for (std::int64_t i = 0; i < bar; ++i) blocks += "█";
    fmt::print("{:>10} {:>10}  {:<9} {}\n", format_number(from), format_number(to - 1),
               format_number(documents), blocks);
  }
}

void print_text(const Corpus& corpus, const TextLengths& lengths) {
  const auto& counts = corpus.counts();
  fmt::print(
      "{:<11}{}{}\n", "files", corpus.files().front(),
      corpus.files().size() == 1 ? "" : fmt::format(" and {} more", corpus.files().size() - 1));
  std::string columns;
  for (const auto& [name, type] : corpus.columns()) {
    columns += fmt::format("{}{} ({})", columns.empty() ? "" : ", ", name, type);
  }
  fmt::print("{:<11}{}\n", "columns", printable(columns));
  fmt::print("{:<11}{}\n", "rows", format_number(counts.rows));
  fmt::print("{:<11}{} ({} null and {} empty texts skipped)\n", "documents",
             format_number(counts.documents), format_number(counts.null_texts),
             format_number(counts.empty_texts));
  print_summary("bytes", summarize(lengths.bytes));
  if (lengths.in_chunks)
    fmt::print("{:<11}{}, {} shorter dropped\n", "chunks",
               format_number(std::ssize(lengths.tokens)), format_number(lengths.dropped_chunks));
  if (!lengths.tokens.empty()) print_tokens(lengths);
}

std::string format_part(std::int64_t part, std::int64_t all) {
  return fmt::format("{} of {}", format_number(part), format_number(all));
}

// Implements qkscope dataset --out: writes a dataset of the texts that are long enough.
void write_dataset(Corpus& corpus, const Tokenizer& tokenizer, DatasetArguments& options) {
  auto& wanted = options.long_texts;
  wanted.id_column = options.corpus.id_column.value_or(wanted.id_column);
  wanted.quiet = options.common.quiet;
  wanted.stop = &watch_stop_signals();
  const LongTextResult made = write_long_texts(corpus, tokenizer, wanted);
  if (!made.finished) {
    fmt::print("stopped; nothing was written\n");
    return end_by_stop_signal();
  }
  const auto& counts = corpus.counts();
  if (options.json) {
    const Json out{{"out", wanted.out},
                   {"read", made.read},
                   {"kept", made.kept},
                   {"cut", made.cut},
                   {"too_short", made.too_short},
                   {"rows", made.rows},
                   {"dropped_chunks", made.dropped_chunks},
                   {"null_texts", counts.null_texts},
                   {"empty_texts", counts.empty_texts},
                   {"tokens", made.tokens}};
    fmt::print("{}\n", dump_json(out));
    return;
  }
  fmt::print("{:<11}{} texts, {} tokens, in {}\n", "kept", format_part(made.kept, made.read),
             format_number(made.tokens), wanted.out);
  if (wanted.chunk.size > 0)
    fmt::print("{:<11}{}, {} with fewer than {} tokens dropped\n", "chunks",
               format_number(made.rows), format_number(made.dropped_chunks),
               format_number(wanted.chunk.min_length));
  if (made.cut > 0) fmt::print("{:<11}{}\n", "cut", format_number(made.cut));
  fmt::print(
      "{:<11}{} with fewer than {} tokens, the longest with {}; {} null and {} empty texts\n",
      "left out", format_number(made.too_short), format_number(wanted.min_tokens),
      format_number(made.longest), format_number(counts.null_texts),
      format_number(counts.empty_texts));
}

void check_tokenizer_given(const DatasetArguments& options) {
  const auto& wanted = options.long_texts;
  if (!options.tokenizer.empty() || (wanted.out.empty() && wanted.chunk.size == 0)) return;
  reject("{}: --tokenizer is missing: the tokens of whose model are counted?",
         wanted.out.empty() ? "--chunk" : "--out");
}

void run(DatasetArguments& options) {
  check_tokenizer_given(options);
  if (!options.name.empty()) options.corpus.name = options.name;
  if (!options.id_column.empty()) options.corpus.id_column = options.id_column;
  options.corpus.replace_invalid = options.errors == "replace";
  options.long_texts.special_tokens = !options.no_special;
  if (!options.shard.empty()) {
    const auto shard = parse_shard(options.shard);
    options.corpus.shard_index = shard.index;
    options.corpus.shard_count = shard.count;
  }
  const FetchOptions fetch{.quiet = options.common.quiet};
  const FetchOptions small{.weights = false, .quiet = options.common.quiet};
  std::optional<Tokenizer> tokenizer;
  if (!options.tokenizer.empty())
    tokenizer = Tokenizer::load(fetch_tokenizer(fetch_input(options.tokenizer, small), fetch));
  options.corpus.path =
      fetch_dataset(fetch_input(options.corpus.path, fetch), options.corpus.name.value_or(""),
                    options.corpus.split, fetch);
  const auto corpus = open_corpus(options.corpus);
  if (!options.long_texts.out.empty()) return write_dataset(*corpus, *tokenizer, options);
  const TextLengths lengths = measure_lengths(*corpus, tokenizer ? &*tokenizer : nullptr, options);
  if (options.json) {
    print_json(*corpus, lengths);
  } else {
    print_text(*corpus, lengths);
  }
}

}  // namespace

void add_dataset(CLI::App& app) {
  auto [command, options] = add_command<DatasetArguments>(
      app, "dataset", "Show the text lengths of a dataset, or write its long texts (--out)", run);
  CorpusOptions& corpus = options->corpus;
  command
      ->add_option(
          "path", corpus.path,
          "A .parquet, .jsonl, .json, .csv or .txt file, a folder of them, or a dataset id of "
          "the Hugging Face Hub")
      ->required();
  command->add_option("--name", options->name,
                      "Configuration of the dataset: one of its folders (default: none)");
  command->add_option("--split", corpus.split, "Split of the dataset")->capture_default_str();
  command->add_option("--text-column", corpus.text_column, "Column of the texts")
      ->capture_default_str();
  command->add_option("--id-column", options->id_column,
                      "Column that identifies an example (default: the row number)");
  command->add_option("--limit", corpus.max_samples, "Only the first N rows (default: all)")
      ->check(positive());
  command->add_option("--shard", options->shard,
                      "Only every N-th row, from number I (0 to N-1) (default: all)");
  command->add_option(
      "--tokenizer", options->tokenizer,
      "Count tokens with this tokenizer.json or GGUF file, or the one of this folder or model "
      "id (default: count bytes only)");
  command->add_flag("--no-special", options->no_special, "Count no special tokens");
  choices(command->add_option("--errors", options->errors,
                              "Bytes that are not UTF-8: an error (strict), or U+FFFD (replace)"),
          {"strict", "replace"})
      ->capture_default_str();
  start_section(*command, "Output");
  auto& made = options->long_texts;
  auto* out = command
                  ->add_option("--out", made.out,
                               "Write the texts that are long enough to this .parquet or .jsonl "
                               "file (default: print the lengths)")
                  ->type_name("FILE");
  command
      ->add_option("--min-tokens", made.min_tokens,
                   "With --out: leave out texts with fewer tokens (default: 1)")
      ->check(positive())
      ->needs(out);
  auto* max_tokens = command
                         ->add_option("--max-tokens", made.max_tokens,
                                      "Cut longer texts to N tokens (default: keep them whole)")
                         ->check(positive());
  auto* chunk =
      command
          ->add_option("--chunk", made.chunk.size,
                       "Cut texts into chunks of N tokens, special tokens included; with --out, "
                       "one row each with the id ID#0, ID#1, ... (default: keep them whole)")
          ->check(positive())
          ->excludes(max_tokens);
  command
      ->add_option("--overlap", made.chunk.overlap,
                   "With --chunk: tokens of text that a chunk repeats from the chunk before "
                   "(default: 0)")
      ->check(not_negative())
      ->needs(chunk);
  command
      ->add_option("--min-length", made.chunk.min_length,
                   "With --chunk: drop a last chunk with fewer tokens (default: 1)")
      ->check(positive())
      ->needs(chunk);
  command->add_option("--keep", made.keep, "With --out: stop after N texts (default: all)")
      ->check(positive())
      ->needs(out);
  command->add_flag("--json", options->json, "Print one JSON object");
}

}  // namespace qkscope::cli
