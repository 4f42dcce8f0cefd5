#include <gmock/gmock.h>

#include "error_message.h"
#include "input/checkpoint/checkpoint.h"

namespace qkscope {
namespace {

using testing::HasSubstr;

std::string index_refusal(const std::string& text) {
  return bad_input_message([&] { parse_weight_index(text, "index.json"); });
}

std::string into(const std::string& shard) {
  return R"({"weight_map":{"w":")" + shard + "\"}}";
}

TEST(WeightIndex, MapsTensorsToShards) {
  const auto index = parse_weight_index(
      R"({"metadata":{"total_size":8},"weight_map":{"b":"2.safetensors","a":"x/1.safetensors"}})",
      "index.json");
  EXPECT_EQ(index,
            (std::map<std::string, std::string>{{"a", "x/1.safetensors"}, {"b", "2.safetensors"}}));
}

TEST(WeightIndex, EachInconsistencyHasItsOwnError) {
  EXPECT_THAT(index_refusal("{"), HasSubstr("index.json: not valid JSON"));
  EXPECT_THAT(index_refusal("[]"), HasSubstr("found no weight_map"));
  EXPECT_THAT(index_refusal("{}"), HasSubstr("found no weight_map"));
  EXPECT_THAT(index_refusal(R"({"weight_map":[]})"),
              HasSubstr("weight_map: found array, expected a map"));
  EXPECT_THAT(index_refusal(R"({"weight_map":{}})"), HasSubstr("weight_map is empty"));
  EXPECT_THAT(index_refusal(R"({"weight_map":{"w":1}})"),
              HasSubstr("weight_map \"w\": found number, expected the name of a shard file"));
  EXPECT_THAT(index_refusal(R"({"weight_map":{"w":"a","w":"b"}})"),
              HasSubstr("the key \"w\" appears twice"));
}

TEST(WeightIndex, ShardsOutsideTheFolderAreRejected) {
  for (const std::string shard :
       {"../x.safetensors", "/x.safetensors", "a/../../x", "..", "", "a/", "x\\u0000y"})
    EXPECT_THAT(index_refusal(into(shard)),
                HasSubstr("expected a file inside the checkpoint's folder"))
        << shard;
}

}  // namespace
}  // namespace qkscope
