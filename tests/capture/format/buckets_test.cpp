// Position buckets and the sampler metadata of head files.
#include "capture/format/buckets.h"

#include <gtest/gtest.h>

#include "base/core/error.h"
#include "capture/format/metadata.h"

namespace qkscope {
namespace {

SamplerOptions sampler(SamplerType type, std::int64_t min_bucket_size) {
  return {.type = type, .base_rate = 0.5, .min_bucket_size = min_bucket_size, .max_rows = {}};
}

TEST(Buckets, UniformBucketIsPositionDividedBySize) {
  for (const auto type : {SamplerType::uniform, SamplerType::all}) {
    const auto options = sampler(type, 10);
    EXPECT_EQ(bucket_of(options, 9), 0);
    EXPECT_EQ(bucket_of(options, 10), 1);
    EXPECT_EQ(positions_of_bucket(options, 3), (PositionRange{30, 40}));
    EXPECT_EQ(positions_of_bucket(options, -1), PositionRange{});
  }
}

TEST(Buckets, LogBucketsStartAtTheMinimalSize) {
  const auto options = sampler(SamplerType::log_uniform, 100);  // the lowest bucket is 7
  EXPECT_EQ(bucket_of(options, 0), 7);
  EXPECT_EQ(bucket_of(options, 254), 7);
  EXPECT_EQ(bucket_of(options, 255), 8);
  EXPECT_EQ(positions_of_bucket(options, 6), PositionRange{});
  EXPECT_EQ(positions_of_bucket(options, 7), (PositionRange{0, 255}));
  EXPECT_EQ(positions_of_bucket(options, 8), (PositionRange{255, 511}));
}

// Float32 rounds the logarithm up just below large powers of two, and the ranges reflect that.
TEST(Buckets, PositionRangeContainsExactlyThePositionsOfTheBucket) {
  const auto options = sampler(SamplerType::log_uniform, 1);
  std::int64_t next = 0;
  for (std::int32_t bucket = 0; bucket < 31; ++bucket) {
    const auto range = positions_of_bucket(options, bucket);
    EXPECT_EQ(range.begin, next);
    EXPECT_EQ(bucket_of(options, range.begin), bucket);
    EXPECT_EQ(bucket_of(options, range.end - 1), bucket);
    EXPECT_EQ(bucket_of(options, range.end), bucket + 1);
    next = range.end;
  }
  EXPECT_LT(next, (std::int64_t{1} << 31) - 1);
}

TEST(Buckets, RefusesSizeZero) {
  EXPECT_THROW(bucket_of(sampler(SamplerType::uniform, 0), 5), Error);
  EXPECT_THROW(positions_of_bucket(sampler(SamplerType::log_uniform, -1), 5), Error);
  EXPECT_THROW(bucket_of(sampler(SamplerType::uniform, 4), -1), Error);
}

TEST(SamplerMetadata, ReadsBackWhatWasWritten) {
  for (const auto type : {SamplerType::log_uniform, SamplerType::uniform, SamplerType::all}) {
    Metadata metadata;
    add_sampler_metadata(metadata,
                         {.type = type, .base_rate = 0.1, .min_bucket_size = 8192, .max_rows = {}});
    EXPECT_EQ(metadata.at("sampler"), sampler_type_name(type));
    EXPECT_EQ(metadata.at("base_rate"), "0.1");
    EXPECT_EQ(metadata.at("min_bucket_size"), "8192");
    const auto read = sampler_options(metadata, "f");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->type, type);
    EXPECT_EQ(read->base_rate, 0.1);
    EXPECT_EQ(read->min_bucket_size, 8192);
  }
}

TEST(SamplerMetadata, IsMissingInFilesOfOtherPrograms) {
  EXPECT_FALSE(sampler_options({}, "f"));
  EXPECT_FALSE(sampler_options({{metadata::kMinBucketSize, "128"}}, "f"));
}

TEST(SamplerMetadata, RefusesInvalidValues) {
  const auto read = [](const char* type, const char* rate, const char* size) {
    return sampler_options(
        {{metadata::kSampler, type}, {metadata::kBaseRate, rate}, {metadata::kMinBucketSize, size}},
        "f");
  };
  EXPECT_TRUE(read("uniform", "1", "128"));
  EXPECT_THROW(read("random", "1", "128"), Error);
  EXPECT_THROW(read("uniform", "0", "128"), Error);
  EXPECT_THROW(read("uniform", "fast", "128"), Error);
  EXPECT_THROW(read("uniform", "1", "0"), Error);
  EXPECT_THROW(read("uniform", "1", "1.5"), Error);
}

}  // namespace
}  // namespace qkscope
