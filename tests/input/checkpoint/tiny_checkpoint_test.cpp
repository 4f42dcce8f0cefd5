// tools/make_tiny_checkpoint.py writes a checkpoint like a published one.
#include <gtest/gtest.h>

#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "input/checkpoint/checkpoint.h"
#include "python.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

constexpr const char* kScript = "tools/make_tiny_checkpoint.py";

std::string content(const std::string& path) {
  return std::string(MappedFile(path).text());
}

TEST(TinyCheckpoint, CanBeOpenedAsACheckpoint) {
  const TemporaryFolder folder;
  const auto out = folder.file("tiny");
  ASSERT_EQ(run_python(kScript, {"--out", out, "--layers", "5"}), 0);
  const auto checkpoint = Checkpoint::open(out);
  EXPECT_EQ(checkpoint.config()["model_type"], "smollm3");
  EXPECT_EQ(checkpoint.config()["no_rope_layers"], (Json{1, 1, 1, 0, 1}));
  EXPECT_EQ(checkpoint.tensor_names().size(), 5u * 9 + 2);
  EXPECT_EQ(checkpoint.tensor_info("model.layers.4.self_attn.k_proj.weight").shape,
            (std::vector<std::int64_t>{32, 64}));
  EXPECT_EQ(checkpoint.tensor_info("model.norm.weight").stored_dtype, "BF16");
  EXPECT_EQ(load_json(out + "/tokenizer.json")["model"]["vocab"].size(), 256u);
}

TEST(TinyCheckpoint, WeightsDependOnlyOnTheSeed) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_python(kScript, {"--out", folder.file("a"), "--layers", "1"}), 0);
  ASSERT_EQ(run_python(kScript, {"--out", folder.file("b"), "--layers", "1"}), 0);
  ASSERT_EQ(run_python(kScript, {"--out", folder.file("c"), "--layers", "1", "--seed", "1"}), 0);
  const auto weights = [&](const char* name) {
    return content(folder.file(name) + "/model.safetensors");
  };
  EXPECT_EQ(weights("a"), weights("b"));
  EXPECT_NE(weights("a"), weights("c"));
}

TEST(TinyCheckpoint, RejectsAFolderThatIsNotEmpty) {
  const TemporaryFolder folder;
  write_file(folder.file("precious"), "");
  EXPECT_NE(run_python(kScript, {"--out", folder.path()}), 0);
  EXPECT_EQ(run_python(kScript, {"--out", folder.path(), "--force", "--layers", "1"}), 0);
}

TEST(TinyCheckpoint, ItsTokenizerIsByteLevel) {
  const TemporaryFolder folder;
  const auto out = folder.file("tiny");
  ASSERT_EQ(run_python(kScript, {"--out", out, "--layers", "1"}), 0);
  EXPECT_EQ(run_python("tests/input/checkpoint/tiny_tokenizer.py", {out}), 0);
}

}  // namespace
}  // namespace qkscope
