// Dataset card: throws an Error, or selects only files that exist.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "expect.h"
#include "input/texts/dataset_files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::string> kPaths = {
      "README.md",         "train.jsonl",   "test.jsonl",  "data/train-00000-of-00002.parquet",
      "data/test.parquet", "a/b/c/d/e.csv", "a/train.csv", "long/a.jsonl",
      "long/deep/b.jsonl", "short/c.jsonl", "x.txt",       "data/long/train-0.json"};
  const std::string card(reinterpret_cast<const char*>(data), size);
  for (const auto* split : {"train", "test"}) {
    for (const auto* name : {"", "long"}) {
      qkscope::CorpusOptions options;
      options.split = split;
      if (*name != '\0') options.name = name;
      try {
        const auto files = qkscope::choose_dataset_files(kPaths, card, options, "fuzz");
        FUZZ_EXPECT(!files.empty());
        for (const auto& file : files)
          FUZZ_EXPECT(std::find(kPaths.begin(), kPaths.end(), file) != kPaths.end());
      } catch (const qkscope::Error& error) {
        FUZZ_EXPECT(error.kind() == qkscope::ErrorKind::bad_input);
      }
    }
  }
  return 0;
}
