// Merges statistics of many shards with few open files.
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/core/error.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/folders_in_memory.h"
#include "capture/format/segment.h"
#include "capture/stats_run/stats_pass.h"
#include "capture/stats_run/stats_run.h"
#include "planted_parts.h"
#include "planted_statistics.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

constexpr std::int64_t kDocuments = 400;
constexpr std::int64_t kSegmentSize = 2;  // documents

// Writes a complete part as a run does; documents repeat the planted ones under new keys.
void write_part(const DataRoot& root, const PlantedStatistics& planted, const Shard& shard,
                std::int64_t documents) {
  const auto lock = root.lock(shard);
  auto journal = root.open_part(planted_manifest({.layers = 1}), shard);
  StatsRunState state{planted.statistics, {}};
  state.statistics.lengths.clear();
  state.statistics.retrieval.clear();
  for (auto row = shard.index; row < documents;) {
    JournalEntry entry{.segment = segment_name(journal.entries().size())};
    const auto path = journal.segment_path(std::filesystem::path(entry.segment).stem().string());
    SegmentWriter segment(journal.segment_path(entry.segment), journal.manifest().groups.size());
    std::vector<DocumentRecord> records;
    for (; row < documents && entry.examples < kSegmentSize; row += shard.count) {
      DocumentRecord document{row, planted.documents[static_cast<std::size_t>(row) % 3]};
      document.attention.example_key = row;
      const auto tokens = static_cast<std::int32_t>(document.attention.tokens);
      segment.add_example(
          {.row = row, .key = row, .source_id = fmt::format("text-{}", row), .tokens = tokens});
      records.push_back(std::move(document));
      ++entry.examples;
      entry.tokens += tokens;
    }
    save_stats_state(path + ".state", state);
    save_document_records(path + ".docs", records);
    entry.checksum = segment.commit();
    journal.append_entry(entry);
  }
  journal.mark_complete();
}

// Limits open files to fewer than the number of shards during its lifetime.
class FewOpenFiles {
 public:
  FewOpenFiles() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    auto few = before_;
    few.rlim_cur = 64;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewOpenFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewOpenFiles(const FewOpenFiles&) = delete;
  FewOpenFiles& operator=(const FewOpenFiles&) = delete;

 private:
  struct rlimit before_ {};
};

TEST(StatsMerge, TwoHundredShardsWith64OpenFilesHaveTheDocumentsOfOneRun) {
  const FoldersInMemory memory;
  const TemporaryFolder folder;
  const auto planted = planted_statistics();
  for (const std::int64_t count : {1, 200}) {
    const DataRoot root(folder.file(std::to_string(count)), kStatisticsRun);
    for (std::int64_t i = 0; i < count; ++i) write_part(root, planted, {i, count}, kDocuments);
    const FewOpenFiles few;
    const auto result = merge_stats_shards(root.path());
    EXPECT_EQ(result.examples, kDocuments);
  }
  for (const auto* name : {"attention_documents.parquet", "examples.parquet"})
    EXPECT_TRUE(MappedFile(folder.file("1/") + name).text() ==
                MappedFile(folder.file("200/") + name).text())
        << name;
}

TEST(StatsMerge, MergesWhenTheFirstShardHasNoDocuments) {
  const TemporaryFolder folder;
  const auto planted = planted_statistics();
  const DataRoot root(folder.file("out"), kStatisticsRun);
  write_part(root, planted, {0, 3}, 0);
  for (std::int64_t i = 1; i < 3; ++i) write_part(root, planted, {i, 3}, 3);
  EXPECT_EQ(merge_stats_shards(root.path()).examples, 2);
  EXPECT_TRUE(root.is_finished());
}

TEST(StatsMerge, RefusesADamagedDocumentFile) {
  const TemporaryFolder folder;
  const auto planted = planted_statistics();
  const auto path = folder.file("a.docs");
  save_document_records(path, {{4, planted.documents[0]}, {6, planted.documents[1]}});
  DocumentRecordReader file(path);
  EXPECT_EQ(file.row_of_next_document(), 4);
  EXPECT_EQ(file.read_next_attention().values, planted.documents[0].values);
  EXPECT_EQ(file.row_of_next_document(), 6);
  EXPECT_EQ(file.read_next_attention().key_sums, planted.documents[1].key_sums);
  EXPECT_TRUE(file.at_end());
  auto damaged = std::string(MappedFile(path).text());
  damaged[damaged.size() / 2] ^= 1;
  write_file(path, damaged);
  EXPECT_THROW(DocumentRecordReader{path}, Error);
}

}  // namespace
}  // namespace qkscope
