// Test fixture for statistics of the tiny checkpoint over random documents.
#pragma once

#include "capture/run/capture_fixture.h"

namespace qkscope {

class CollectFixture : public CaptureFixture {
 protected:
  // Appends `more`, for example a section stats, to the configuration.
  void write_stats_config(const std::string& more) {
    write_text(file("run.yaml"), fmt::format("dataset:\n  path: {}\n  id_column: id\n"
                                             "model:\n  name: {}\n  dtype: float32\n"
                                             "  device_map: cpu\n"
                                             "tokenizer:\n  max_length: 100\n{}",
                                             file("docs.jsonl"), tiny_checkpoint(), more));
  }
  void SetUp() override {
    write_documents(file("docs.jsonl"), 40, 30);
    write_stats_config("stats:\n  groups: [A, C]\n  buckets: 4\n");
  }

  std::string stats_command(const std::string& root, const std::string& options = "") const {
    return fmt::format("qkscope stats --config {} --set output.data_root={} --quiet {}",
                       file("run.yaml"), file(root), options);
  }
  Outcome stats(const std::string& root, const std::string& options = "") const {
    return run_program(stats_command(root, options));
  }

  // Exports the statistics of a folder and returns the options that make a run use the exports.
  std::string exported_to_next(const std::string& root) const {
    for (const auto* name : {"fp8-kv", "q-filters"}) {
      const auto exported = run_program(
          fmt::format("qkscope export {} --to {} --out {}", file(root), name, file(name)));
      EXPECT_EQ(exported.status, 0) << exported.err;
    }
    return fmt::format(
        "--set stats.keep=[qfilter_50] --set stats.fp8_scales={} --set stats.q_filters={}",
        file("fp8-kv"), file("q-filters"));
  }
};

}  // namespace qkscope
