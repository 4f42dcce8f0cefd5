// Buckets whose layout the capture says, and those whose layout is guessed from the rows.
#include <string>

#include <gtest/gtest.h>

#include "capture/format/metadata.h"
#include "qkscope/analysis.h"
#include "qkscope/captures.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

// One query head with a window of 40 tokens over eight buckets of 32.
class Buckets : public ::testing::Test {
 protected:
  Buckets() {
    PlantedCaptureOptions options;
    options.data_root = root();
    options.layers = options.query_heads = options.key_heads = 1;
    options.nope_every = options.active_planes = 0;
    options.sliding_window = 40;
    options.head.dim = 4;
    options.head.examples = 6;
    options.head.context = 256;
    options.head.bucket_size = 32;
    options.head.rows_per_bucket = 8;
    write_planted_capture(options);
  }

  std::string root() const { return folder_.file("capture"); }
  // Of the only head, when its file says this about the sampler.
  HeadReport report(const Metadata& sampler) const {
    const auto path = head_file_path(root(), {0, 0, HeadKind::query});
    HeadFile file = read_head_file(path);
    for (const char* key : {metadata::kSampler, metadata::kBaseRate, metadata::kMinBucketSize})
      file.metadata.erase(key);
    for (const auto& [key, value] : sampler) file.metadata[key] = value;
    write_head_file(path, file.rows, file.metadata);
    AnalyzeOptions options;
    options.data_root = root();
    options.pca = options.rotation = false;
    options.quiet = true;
    return analyze_capture(options).heads.at(0);
  }

  TemporaryFolder folder_;
};

TEST_F(Buckets, AreTheSameSaidOrGuessed) {
  const auto guessed = report({});
  const auto said = report({{"sampler", "uniform"}, {"base_rate", "8"}, {"min_bucket_size", "32"}});
  ASSERT_TRUE(guessed.plasticity && said.plasticity);
  ASSERT_EQ(guessed.plasticity->table.size(), 13u);  // 7 neighbours, 6 one bucket further
  ASSERT_EQ(said.plasticity->table.size(), guessed.plasticity->table.size());
  for (std::size_t i = 0; i < said.plasticity->table.size(); ++i)
    EXPECT_EQ(said.plasticity->table[i].mean.ap, guessed.plasticity->table[i].mean.ap);
}

TEST_F(Buckets, AreSampledByTheSeedOfTheAnalysis) {
  const auto ap = [&](std::uint64_t seed) {
    AnalyzeOptions options;
    options.data_root = root();
    options.pca = options.rotation = false;
    options.plasticity_options.max_pairs = 20;
    options.seed = seed;
    options.quiet = true;
    return analyze_capture(options).heads.at(0).plasticity->ap_overall;
  };
  EXPECT_EQ(ap(1), ap(1));
  EXPECT_NE(ap(1), ap(2));
}

TEST_F(Buckets, DecideWhichKeysAWindowReaches) {
  // Buckets of 16: a window of 40 tokens reaches three of them.
  const auto smaller = report({{"sampler", "all"}, {"base_rate", "8"}, {"min_bucket_size", "16"}});
  ASSERT_TRUE(smaller.plasticity);
  EXPECT_EQ(smaller.plasticity->table.size(), 7u + 6u + 5u);
}

TEST_F(Buckets, ThatMakeNoSenseAreBadInput) {
  for (const auto& sampler :
       {Metadata{{"sampler", "uniform"}, {"base_rate", "8"}, {"min_bucket_size", "0"}},
        Metadata{{"sampler", "uniform"}, {"base_rate", "8"}, {"min_bucket_size", "12x"}},
        Metadata{{"sampler", "odd"}, {"base_rate", "8"}, {"min_bucket_size", "12"}}}) {
    const auto bad = report(sampler);
    EXPECT_FALSE(bad.plasticity);
    EXPECT_NE(bad.error.find("expected"), std::string::npos) << bad.error;
  }
}

}  // namespace
}  // namespace qkscope
