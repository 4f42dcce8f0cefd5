#include "capture/stats_format/stats_file.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "error_message.h"
#include "planted_statistics.h"
#include "qkscope/tables.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void write_planted(const std::string& folder, const PlantedStatistics& planted) {
  ListedDocuments documents(planted.documents);
  fs::create_directories(folder);
  write_statistics(folder, planted.statistics, documents);
}

std::string bytes_of(const std::string& path) {
  return std::string(MappedFile(path).text());
}

std::string complaint_of(const std::string& folder) {
  return bad_input_message([&] { read_statistics(folder); });
}

TEST(StatsFile, RewritingReadStatisticsGivesTheSameBytesInEveryFile) {
  const TemporaryFolder folder;
  write_planted(folder.file("a"), planted_statistics());
  const Statistics read = read_statistics(folder.file("a"));
  const auto documents = open_document_source(folder.file("a"), read);
  fs::create_directories(folder.file("b"));
  write_statistics(folder.file("b"), read, *documents);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.file("a"))) {
    if (!entry.is_regular_file()) continue;
    const auto name = fs::relative(entry.path(), folder.file("a")).string();
    EXPECT_EQ(bytes_of(folder.file("a/" + name)), bytes_of(folder.file("b/" + name))) << name;
    ++files;
  }
  EXPECT_EQ(files, 8);  // without examples.parquet, which only a run writes
}

TEST(StatsFile, ReadsBackSettingsAndMetadata) {
  const TemporaryFolder folder;
  const auto planted = planted_statistics();
  write_planted(folder.file("a"), planted);
  const Statistics read = read_statistics(folder.file("a"));
  const Statistics& s = planted.statistics;
  EXPECT_EQ(read.metadata, s.metadata);
  EXPECT_EQ(read.configuration, s.configuration);
  EXPECT_EQ(read.ropes, s.ropes);
  EXPECT_EQ(read.lengths, s.lengths);
  EXPECT_EQ(read.settings.kl.front().name, "fp8");
  EXPECT_EQ(read.settings.keep.front().last, 16);
  EXPECT_EQ(read.settings.columns, s.settings.columns);
  EXPECT_EQ(read.retrieval.size(), 2u);
  EXPECT_FALSE(read.retrieval[1].counts);
  const auto* queries = read.find(VectorKind::query, VectorStage::pre, 2);
  ASSERT_NE(queries, nullptr);
  EXPECT_EQ(queries->body.pair_abs,
            s.moments.at({VectorKind::query, VectorStage::pre})[2].body.pair_abs);
  EXPECT_EQ(read.find(VectorKind::query, VectorStage::post, 1)->body.pairs, 0);
  EXPECT_EQ(read.find(VectorKind::value, VectorStage::post, 1), nullptr);
}

TEST(StatsFile, ChannelTableEqualsMomentsOfTheRows) {
  const TemporaryFolder folder;
  const auto planted = planted_statistics();
  write_planted(folder.file("a"), planted);
  const Table table = read_parquet_table(folder.file("a/channels.parquet"));
  // 3 layers, 3 row sets, 8 channels: q in two stages with 4 heads, k in two and v in one with 2.
  EXPECT_EQ(table.rows(), 3 * 3 * 8 * (2 * 4 + 2 * 2 + 2));
  const auto text = [&](const char* name, std::size_t row) { return table.find(name)->texts[row]; };
  const auto integer = [&](const char* name, std::size_t row) {
    return table.find(name)->integers[row];
  };
  int checked = 0;
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row) {
    if (integer("layer", row) != 2 || text("kind", row) != "k" || text("stage", row) != "post" ||
        text("set", row) != "all" || integer("head", row) != 1 || integer("channel", row) != 5)
      continue;
    const auto rows = planted.head_rows(VectorKind::key, VectorStage::post, 2, 1, "all");
    const auto n = static_cast<double>(rows.size());
    double mean = 0;
    double m2 = 0;
    double m3 = 0;
    double m4 = 0;
    double largest = 0;
    for (const auto& x : rows) mean += x[5] / n;
    for (const auto& x : rows) {
      const double d = x[5] - mean;
      m2 += d * d / n;
      m3 += d * d * d / n;
      m4 += d * d * d * d / n;
      largest = std::max(largest, std::fabs(x[5]));
    }
    EXPECT_NEAR(table.find("mean")->reals[row], mean, 1e-12);
    EXPECT_NEAR(table.find("std")->reals[row], std::sqrt(m2 * n / (n - 1)), 1e-12);
    EXPECT_NEAR(table.find("skew")->reals[row], m3 / std::pow(m2, 1.5), 1e-11);
    EXPECT_NEAR(table.find("excess_kurtosis")->reals[row], m4 / (m2 * m2) - 3, 1e-11);
    EXPECT_EQ(table.find("absmax")->reals[row], largest);
    EXPECT_EQ(integer("n", row), 62);
    ++checked;
  }
  EXPECT_EQ(checked, 1);
}

TEST(StatsFile, AttentionTableHasARowOverAllBuckets) {
  const TemporaryFolder folder;
  const auto planted = planted_statistics();
  write_planted(folder.file("a"), planted);
  const Table table = read_parquet_table_with_gaps(folder.file("a/attention.parquet"));
  EXPECT_EQ(table.rows(), 3 * 4 * (1 + 4));
  EXPECT_EQ(table.find("bucket")->integers[0], Table::kNoInteger);
  EXPECT_EQ(table.find("rows")->integers[0], 62);
  const auto& a = planted.statistics.attention;
  double sum = 0;
  for (std::size_t b = 0; b < 4; ++b) sum += a.sum[b * a.columns.size()];
  EXPECT_DOUBLE_EQ(table.find("sink_0")->reals[0], sum / 62);
  EXPECT_TRUE(
      std::isnan(table.find("induction_head")->reals[1]));  // defined for whole documents only
  EXPECT_FALSE(std::isnan(table.find("induction_head")->reals[0]));
  EXPECT_EQ(table.find("prev_first"), nullptr);
  const Table distance = read_parquet_table_with_gaps(folder.file("a/distance.parquet"));
  EXPECT_EQ(distance.rows(), 3 * 4 * 5 * kDistances);
  EXPECT_EQ(distance.find("distance_high")->integers[3], 8);
}

TEST(StatsFile, NamesTheDamagedFile) {
  const TemporaryFolder folder;
  const auto path = folder.file("a");
  EXPECT_THAT(complaint_of(path), HasSubstr("stats_state.json"));
  write_planted(path, planted_statistics());
  fs::resize_file(path + "/distance.parquet", 10);
  EXPECT_THAT(complaint_of(path), HasSubstr("distance.parquet: has 10 bytes"));
  fs::remove(path + "/distance.parquet");
  EXPECT_THAT(complaint_of(path), HasSubstr("distance.parquet: is missing"));
}

TEST(StatsFile, RefusesSumsThatContradictTheDocumentLengths) {
  const TemporaryFolder folder;
  auto planted = planted_statistics();
  planted.statistics.positions[1].n += 1;
  write_accumulated_sums(folder.file("s.safetensors"), planted.statistics);
  EXPECT_THAT(bad_input_message([&] { read_accumulated_sums(folder.file("s.safetensors")); }),
              HasSubstr("positions.body.n is 51, but its documents have 50 such tokens"));
}

TEST(StatsFile, WritesAndReadsWithoutMomentsOrAttention) {
  const TemporaryFolder folder;
  auto moments_only = planted_statistics();
  moments_only.statistics.attention = {};
  moments_only.statistics.settings.near_keys = moments_only.statistics.settings.all_keys = false;
  moments_only.documents.clear();
  write_planted(folder.file("a"), moments_only);
  EXPECT_TRUE(read_statistics(folder.file("a")).attention.empty());
  EXPECT_FALSE(fs::exists(folder.file("a/attention.parquet")));
  auto attention_only = planted_statistics();
  attention_only.statistics.moments.clear();
  attention_only.statistics.moment_layers.clear();
  write_planted(folder.file("b"), attention_only);
  EXPECT_TRUE(read_statistics(folder.file("b")).moments.empty());
  EXPECT_FALSE(fs::exists(folder.file("b/channels.parquet")));
}

}  // namespace
}  // namespace qkscope
