// A capture has the same rows on every CPU target with fused multiply-add.
#include <bit>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/io/checksum.h"
#include "cpu_targets.h"
#include "paths.h"
#include "qkscope/capture.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

// Hashes the columns of all heads instead of the files, whose bytes depend on the version of Arrow.
constexpr const char* kDemoHash = "f8461abe19366efc";

class SameBytes : public EachCpuTarget {};

CaptureConfig demo_config(const std::string& data_root) {
  CaptureConfig config;
  config.dataset.path = source_path("share/demo/corpus.jsonl");
  config.dataset.id_column = "id";
  config.dataset.max_samples = 3;
  config.model.name = source_path("share/demo/checkpoints/S3-4720");
  config.model.dtype = DType::f32;
  config.model.device_map = "cpu";
  config.tokenizer.name = config.model.name;
  config.tokenizer.max_length = 700;  // longer than two blocks of keys in attention
  config.inference.batch_size = 4;
  config.capture.sampler = {
      .type = SamplerType::uniform, .base_rate = 4.0, .min_bucket_size = 16, .max_rows = {}};
  config.output.data_root = data_root;
  return config;
}

template <typename Number>
void append(std::string& bytes, const std::vector<Number>& column) {
  static_assert(std::endian::native == std::endian::little);
  const auto raw = std::as_bytes(std::span(column));
  bytes.append(reinterpret_cast<const char*>(raw.data()), raw.size());
}

std::string hash_of_columns(const std::string& data_root) {
  std::string bytes;
  const auto index = index_capture(data_root);
  for (const auto* heads : {&index.queries, &index.keys})
    for (const auto& head : *heads) {
      const auto rows = read_head_file(head_file_path(data_root, head)).rows;
      append(bytes, rows.bucket);
      append(bytes, rows.example_id);
      append(bytes, rows.position);
      append(bytes, rows.vectors);
    }
  return fmt::format("{:016x}", blake2b_64(bytes));
}

TEST_P(SameBytes, CaptureOfTheDemoModelHasTheExpectedHash) {
  const TemporaryFolder folder;
  run_capture(make_plan(demo_config(folder.file("data"))), {});
  EXPECT_EQ(hash_of_columns(folder.file("data")), kDemoHash);
}

std::vector<std::string> targets_that_fuse() {
  auto targets = cpu_targets();
  std::erase_if(targets, [](const auto& name) { return !cpu_target_has_fma(name); });
  return targets;
}

INSTANTIATE_TEST_SUITE_P(Cpu, SameBytes, testing::ValuesIn(targets_that_fuse()),
                         [](const auto& target) { return target.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SameBytes);  // the machine may support no target

}  // namespace
}  // namespace qkscope
