// Times the tokenizer on one text: loading, encoding, encoding with truncation. Prints one JSON
// object; bench/tokenizer_bench.py compares it with the Hugging Face library.
#include <chrono>
#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/core/thread_pool.h"
#include "base/io/mapped_file.h"
#include "qkscope/tokenizer.h"

namespace {

using qkscope::Tokenizer;

struct Rate {
  double seconds;  // per call
  std::size_t ids;
};

// Calls `encode` repeatedly for `seconds` and returns the fastest call.
template <typename Encode>
Rate best_of(double seconds, Encode encode) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto start = Clock::now();
  Rate best{1e9, 0};
  do {
    const auto begin = Clock::now();
    best.ids = encode();
    best.seconds = std::min(best.seconds, since(begin));
  } while (since(start) < seconds);
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Times the tokenizer"};
  std::string tokenizer_path, text_path;
  std::int64_t cut = 4096;
  int threads = 1;
  double seconds = 2;
  app.add_option("--tokenizer", tokenizer_path)->required();
  app.add_option("--text", text_path)->required();
  app.add_option("--cut", cut, "ids of the truncated encoding");
  app.add_option("--threads", threads, "0: one per core");
  app.add_option("--seconds", seconds, "for each measurement");
  CLI11_PARSE(app, argc, argv);
  qkscope::set_thread_count(threads);
  const qkscope::MappedFile file(text_path);
  const std::string text(file.text());
  const Rate load = best_of(seconds, [&] {
    return static_cast<std::size_t>(Tokenizer::load(tokenizer_path).vocab_size());
  });
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path);
  const Rate first = best_of(0, [&] { return tokenizer.encode(text).ids.size(); });
  const Rate whole = best_of(seconds, [&] { return tokenizer.encode(text).ids.size(); });
  const Rate shortened = best_of(seconds, [&] {
    return tokenizer.encode(text, {true, cut}).ids.size();
  });
  fmt::print(
      "{{\"bytes\": {}, \"ids\": {}, \"load_s\": {:.6f}, \"first_s\": {:.6f}, \"whole_s\": {:.6f}, "
      "\"cut_s\": {:.9f}, \"cut_ids\": {}}}\n",
      text.size(), whole.ids, load.seconds, first.seconds, whole.seconds, shortened.seconds,
      shortened.ids);
  return 0;
}
