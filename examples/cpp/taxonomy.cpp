// Prints the class of every head of a capture, its correlations with position, and the class
// counts.
//   taxonomy DATA_ROOT
#include <cstdio>
#include <map>
#include <string>

#include <qkscope/analysis.h>
#include <qkscope/error.h>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: taxonomy DATA_ROOT\n");
    return 2;
  }
  qkscope::AnalyzeOptions options;
  options.data_root = argv[1];
  options.rotation = false;
  options.plasticity = false;
  const auto run = qkscope::analyze_capture(options);

  std::map<std::string, int> classes;
  std::printf("layer  head  class                   r_q     r_k\n");
  for (const auto& head : run.heads) {
    if (!head.pca) {
      std::printf("%5d  %4d  %s\n", head.query.layer, head.query.head, head.error.c_str());
      continue;
    }
    const double r_q = head.pca->components.front().q.r;
    const double r_k = head.pca->components.front().k.r;
    const auto name = qkscope::to_string(qkscope::classify(r_q, r_k, options.taxonomy));
    ++classes[name];
    std::printf("%5d  %4d  %-20s  %6.3f  %6.3f\n", head.query.layer, head.query.head, name.c_str(),
                r_q, r_k);
  }
  for (const auto& [name, count] : classes) std::printf("%4d %s\n", count, name.c_str());
} catch (const qkscope::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return error.exit_code();
}
