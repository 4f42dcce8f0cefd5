// Compares captures with transformers and qk-sniffer (tools/make_capture_reference.py).
#include "capture_fixture.h"
#include "paths.h"
#include "python.h"

namespace qkscope {
namespace {

struct ReferenceCase {
  std::string name;
  std::string checkpoint;  // in tests/golden
};

class CaptureReference : public testing::TestWithParam<ReferenceCase> {};

TEST_P(CaptureReference, MatchesTheReferenceRowsExactlyAndVectorsClosely) {
  const TemporaryFolder folder;
  const std::string reference = source_path("tests/capture/run/reference/");
  const auto outcome = run_program(fmt::format(
      "sniff-qk --config '{0}{1}.yaml' --set model.name='{2}/tests/golden/{3}' "
      "--set tokenizer.name='{0}tokenizer.json' --set dataset.path='{0}texts.jsonl' "
      "--device cpu --set inference.batch_size=4 --set output.data_root='{4}' --quiet",
      reference, GetParam().name, source_path(), GetParam().checkpoint, folder.file("out")));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(run_python("tests/capture/run/compare_reference.py",
                       {reference + GetParam().name + ".safetensors", folder.file("out")}),
            0);
}

INSTANTIATE_TEST_SUITE_P(Cases, CaptureReference,
                         testing::Values(ReferenceCase{"windows", "qwen3_windows"},
                                         ReferenceCase{"nope", "smollm3_list"},
                                         ReferenceCase{"pre_rope", "qwen3_windows"},
                                         ReferenceCase{"cross", "mllama_text"},
                                         ReferenceCase{"keys", "llama_gqa"}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace qkscope
