#include "input/checkpoint/checkpoint.h"

#include <filesystem>
#include <type_traits>

#include <gmock/gmock.h>

#include "base/io/json.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "input/checkpoint/safetensors_bytes.h"
#include "qkscope/model.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

static_assert(!std::is_copy_constructible_v<Checkpoint>);
static_assert(std::is_nothrow_move_constructible_v<Checkpoint>);

// Temporary checkpoint folder with a config.json; each test adds weights.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() { write("config.json", R"({"model_type": "llama"})"); }

  void write(const std::string& file, const std::string& content) const {
    write_file(folder_.file(file), content);
  }

  // Creates tensors of one float with the given value.
  void write_weights(const std::string& file,
                     const std::vector<std::pair<std::string, float>>& values,
                     const std::map<std::string, std::string>& metadata = {}) const {
    std::vector<Tensor> tensors;
    std::vector<NamedTensor> named;
    for (const auto& [name, value] : values) {
      tensors.emplace_back(Shape({1}));
      tensors.back().data<float>()[0] = value;
      named.push_back({name, tensors.back()});
    }
    write_safetensors(folder_.file(file), named, metadata);
  }

  Checkpoint open() const { return Checkpoint::open(folder_.path()); }

  std::string open_error() const {
    auto message = bad_input_message([&] { open(); });
    EXPECT_THAT(message, HasSubstr(folder_.path()));
    return message;
  }

  TemporaryFolder folder_;
};

float value(const Checkpoint& checkpoint, const std::string& name) {
  return checkpoint.tensor(name).data<float>()[0];
}

TEST_F(CheckpointTest, OpensASingleFile) {
  write_weights("model.safetensors", {{"b", 2}, {"a", 1}});
  write_weights("consolidated.safetensors", {{"native", 3}});
  auto opened = open();
  const Checkpoint checkpoint = std::move(opened);
  EXPECT_EQ(checkpoint.folder(), folder_.path());
  EXPECT_EQ(checkpoint.config()["model_type"], "llama");
  EXPECT_THAT(checkpoint.tensor_names(), ElementsAre("a", "b"));
  EXPECT_EQ(checkpoint.size_bytes(), 8u);
  EXPECT_EQ(value(checkpoint, "a"), 1);
  EXPECT_EQ(value(checkpoint, "b"), 2);
  EXPECT_EQ(checkpoint.tensor_info("a").stored_dtype, "F32");
  EXPECT_EQ(checkpoint.tensor_info("a").shape, std::vector<std::int64_t>{1});
  EXPECT_EQ(checkpoint.tensor_info("a").file, "model.safetensors");
  EXPECT_FALSE(checkpoint.has_tensor("native"));
}

TEST_F(CheckpointTest, OpensShards) {
  write_weights("m-1.safetensors", {{"a", 1}, {"not in the index", 9}});
  write_weights("m-2.safetensors", {{"b", 2}});
  write("model.safetensors.index.json",
        R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  const auto checkpoint = open();
  EXPECT_THAT(checkpoint.tensor_names(), ElementsAre("a", "b"));
  EXPECT_EQ(value(checkpoint, "b"), 2);
  EXPECT_EQ(checkpoint.tensor_info("b").file, "m-2.safetensors");
  EXPECT_EQ(checkpoint.size_bytes(), 8u);
}

TEST_F(CheckpointTest, ASingleFileIsPreferredOverShards) {
  write_weights("model.safetensors", {{"a", 1}});
  write("model.safetensors.index.json", "broken");
  EXPECT_THAT(open().tensor_names(), ElementsAre("a"));
}

TEST_F(CheckpointTest, MetadataAliasesCountAsTensors) {
  write_weights("m-1.safetensors", {{"a", 1}},
                {{"format", "pt"}, {"tied", "b"}, {"a", "b"}, {"chained", "tied"}, {"off", "no"}});
  write_weights("m-2.safetensors", {{"b", 2}});
  write("model.safetensors.index.json",
        R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  const auto checkpoint = open();
  EXPECT_THAT(checkpoint.tensor_names(), ElementsAre("a", "b", "tied"));
  EXPECT_TRUE(checkpoint.has_tensor("tied"));
  EXPECT_EQ(value(checkpoint, "tied"), 2);
  EXPECT_EQ(checkpoint.tensor("tied").bytes(), checkpoint.tensor("b").bytes());
  EXPECT_EQ(checkpoint.tensor_info("tied").file, "m-2.safetensors");
  EXPECT_EQ(checkpoint.tensor_info("tied").name, "tied");
  EXPECT_EQ(value(checkpoint, "a"), 1);  // an alias does not hide a tensor
  EXPECT_EQ(checkpoint.size_bytes(), 8u);
}

TEST_F(CheckpointTest, AMissingTensorSuggestsTheClosestName) {
  write_weights("model.safetensors", {{"model.norm.weight", 1}, {"lm_head.weight", 1}});
  const auto checkpoint = open();
  EXPECT_THAT(bad_input_message([&] { checkpoint.tensor_info("model.norms.weight"); }),
              AllOf(HasSubstr("no tensor \"model.norms.weight\" among the 2"),
                    HasSubstr("nearest name is \"model.norm.weight\"")));
  EXPECT_THAT(bad_input_message([&] { checkpoint.tensor("q"); }), HasSubstr("no tensor \"q\""));
}

TEST_F(CheckpointTest, UnknownDtypesAreListedAndRejectedOnAccess) {
  write("model.safetensors",
        safetensors_bytes(R"({"w":{"dtype":"F8_E5M2","shape":[3],"data_offsets":[0,3]}})", 3));
  const auto checkpoint = open();
  EXPECT_THAT(checkpoint.tensor_names(), ElementsAre("w"));
  EXPECT_EQ(checkpoint.tensor_info("w").stored_dtype, "F8_E5M2");
  EXPECT_THAT(bad_input_message([&] { checkpoint.tensor("w"); }),
              HasSubstr("stored as \"F8_E5M2\", which is not supported"));
}

TEST_F(CheckpointTest, MissingShardsAreNamed) {
  write_weights("m-1.safetensors", {{"a", 1}});
  write("model.safetensors.index.json",
        R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  EXPECT_THAT(open_error(), HasSubstr("1 of 2 shards named in model.safetensors.index.json are "
                                      "missing: m-2.safetensors; download them"));
}

TEST_F(CheckpointTest, AShardThatLacksItsTensorIsNamed) {
  write_weights("m-1.safetensors", {{"a", 1}});
  write("model.safetensors.index.json",
        R"({"weight_map": {"a": "m-1.safetensors", "b": "m-1.safetensors"}})");
  EXPECT_THAT(open_error(), HasSubstr("model.safetensors.index.json puts tensor \"b\" into "
                                      "m-1.safetensors, which does not hold it"));
}

TEST_F(CheckpointTest, MissingWeightsListTheFolderContent) {
  write("README.md", "");
  write_weights("consolidated.safetensors", {{"native", 3}});
  EXPECT_THAT(open_error(), AllOf(HasSubstr("no weights: expected model.safetensors or"),
                                  HasSubstr("holds README.md, config.json, consolidated.")));
  for (int i = 0; i < 20; ++i) write("other" + std::to_string(i), "");
  EXPECT_THAT(open_error(), HasSubstr(" and 11 more"));
}

TEST_F(CheckpointTest, LegacyPicklesAreRejectedWithAdvice) {
  write("pytorch_model.bin", "\x80\x02\x8a\x0al\xfc");
  EXPECT_THAT(open_error(), AllOf(HasSubstr("pytorch_model.bin: not a zip file"),
                                  HasSubstr("convert it to safetensors where it is trusted")));
}

TEST_F(CheckpointTest, SafetensorsArePreferredOverTorchFiles) {
  write("pytorch_model.bin", "anything");
  write_weights("model.safetensors", {{"a", 3}});
  EXPECT_EQ(Checkpoint::open(folder_.path()).tensor_info("a").file, "model.safetensors");
}

TEST_F(CheckpointTest, MissingFoldersAndInvalidConfigsAreReported) {
  EXPECT_THAT(bad_input_message([&] { Checkpoint::open(folder_.file("absent")); }),
              HasSubstr("absent: no such folder"));
  EXPECT_THAT(bad_input_message([&] { Checkpoint::open(folder_.file("config.json")); }),
              HasSubstr("config.json: not a folder"));
  write("config.json", "{\"a\": }");
  EXPECT_THAT(open_error(), HasSubstr("config.json: not valid JSON at line 1"));
  write("config.json", "[]");
  EXPECT_THAT(open_error(), HasSubstr("config.json: found a JSON array, expected a map"));
  std::filesystem::remove(folder_.file("config.json"));
  EXPECT_THAT(open_error(), HasSubstr("no config.json in this folder"));
}

TEST_F(CheckpointTest, IndexedTensorNamesNeedNoWeights) {
  EXPECT_EQ(read_shard_index(folder_.path()).index, "");
  write("model.safetensors.index.json", R"({"weight_map": {"b": "1", "a": "2"}})");
  EXPECT_THAT(read_shard_index(folder_.path()).names, ElementsAre("a", "b"));
}

TEST(MergeOverrides, ObjectsMergeAndOtherValuesAreReplaced) {
  const Json config = {{"rope", {{"type", "yarn"}, {"factor", 2}}}, {"list", {1, 2}}, {"n", 1}};
  const Json overrides = {{"rope", {{"factor", 4}}}, {"list", {3}}, {"n", {{"x", nullptr}}}};
  EXPECT_EQ(
      merge_overrides(config, overrides),
      (Json{{"rope", {{"type", "yarn"}, {"factor", 4}}}, {"list", {3}}, {"n", {{"x", nullptr}}}}));
  EXPECT_EQ(merge_overrides(config, Json::object()), config);
  EXPECT_EQ(merge_overrides({{"a", 1}}, {{"a", nullptr}}), (Json{{"a", nullptr}}));
}

TEST(WeightFiles, AreNoneWhereAShardIsMissing) {
  const TemporaryFolder folder;
  EXPECT_TRUE(weight_files(folder.path()).empty());
  write_file(folder.file("model.safetensors.index.json"),
             R"({"weight_map": {"a": "1.safetensors"}})");
  EXPECT_TRUE(weight_files(folder.path()).empty());
  write_file(folder.file("1.safetensors"), "");
  EXPECT_EQ(weight_files(folder.path()).size(), 2u);
}

TEST(MergeOverrides, ReplacesWhatIsNoMap) {
  const Json config = {{"a", {{"b", 1}}}, {"c", 2}};
  EXPECT_EQ(merge_overrides(config, {{"a", {{"d", 3}}}}),
            Json({{"a", {{"b", 1}, {"d", 3}}}, {"c", 2}}));
  EXPECT_EQ(merge_overrides(config, {{"a", 4}})["a"], 4);
}

}  // namespace
}  // namespace qkscope
