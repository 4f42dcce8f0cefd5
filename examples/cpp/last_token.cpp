// Prints the largest attention weight of the last token in every layer.
//   last_token MODEL TEXT
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <qkscope/error.h>
#include <qkscope/forward.h>
#include <qkscope/model.h>
#include <qkscope/tokenizer.h>

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: last_token MODEL TEXT\n");
    return 2;
  }
  const auto model = qkscope::Model::load(argv[1]);
  const auto tokenizer = qkscope::Tokenizer::load(model.folder());
  const auto ids = tokenizer.encode(argv[2]).ids;
  qkscope::Batch batch;
  batch.add(ids);

  // Computes one row of each pattern instead of the full square.
  const std::vector<std::string> hooks{"blocks.*.attn.hook_pattern"};
  qkscope::Collector patterns(qkscope::match_hooks(model.config(), hooks), {batch.rows() - 1});
  model.run(batch, patterns);

  std::printf("layer  head  position  token            attention\n");
  for (const auto& [point, pattern] : patterns.kept()) {  // (n_heads, 1, keys)
    const float* first = pattern.data<float>();
    const auto largest = std::max_element(first, first + pattern.size()) - first;
    const auto head = largest / pattern.dim(2);
    const auto key = largest % pattern.dim(2);
    const auto token = tokenizer.token_string(ids[static_cast<std::size_t>(key)]);
    std::printf("%5ld  %4ld  %8ld  %-16s %9.3f\n", static_cast<long>(point.layer),
                static_cast<long>(head), static_cast<long>(key), token.c_str(),
                static_cast<double>(first[largest]));
  }
} catch (const qkscope::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return error.exit_code();
}
