// Replaces libFuzzer in builds without it: replays a corpus, then seeded mutations.
//   fuzz_NAME CORPUS_FOLDER MUTATIONS    run everything
//   fuzz_NAME FILE                       run one input, such as a saved crash
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "mutate.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace qkscope {
namespace {

// Saves the input of an uncaught exception before the process ends.
void run_input(const std::string& input, const std::string& name) {
  try {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  } catch (const std::exception& error) {
    write_file("fuzz-crash", input);
    throw_failure("{}: the target threw: {}; the input is in ./fuzz-crash", name, error.what());
  }
}

std::vector<std::string> load_corpus(const std::string& folder) {
  std::vector<std::string> corpus;
  for (const auto& name : entry_names(folder))
    corpus.emplace_back(MappedFile(fmt::format("{}/{}", folder, name)).text());
  if (corpus.empty()) reject("{}: the corpus is empty", folder);
  return corpus;
}

void run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 1)
    return run_input(std::string(MappedFile(arguments[0]).text()), arguments[0]);
  if (arguments.size() != 2) reject("expected CORPUS_FOLDER MUTATIONS, or FILE");
  const auto corpus = load_corpus(arguments[0]);
  const auto mutations = parse_integer(arguments[1], "MUTATIONS");
  for (const auto& input : corpus) run_input(input, arguments[0]);
  for (std::int64_t seed = 0; seed < mutations; ++seed)
    run_input(mutate(corpus, static_cast<std::uint64_t>(seed)), fmt::format("mutation {}", seed));
  fmt::print("{} inputs of the corpus and {} mutations passed\n", corpus.size(), mutations);
}

}  // namespace
}  // namespace qkscope

int main(int argc, char** argv) {
  try {
    qkscope::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
