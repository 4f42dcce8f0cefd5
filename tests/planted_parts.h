// Writes parts of a capture with random vectors, without a model, through the same segments and
// journal as a run. The rows of a document do not depend on its shard.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/core/clock.h"
#include "capture/format/data_root.h"
#include "capture/format/metadata.h"
#include "capture/format/segment.h"
#include "capture/format/stored_run.h"

namespace qkscope {

struct PlantedParts {
  std::int64_t documents = 200;
  std::int64_t rows = 16;  // per document and head
  std::int64_t layers = 36;
  std::int64_t query_heads = 8;  // per layer
  std::int64_t key_heads = 4;
  std::int64_t head_dim = 128;
  std::int64_t segment_size = 64;  // documents
  std::int64_t row_group_size = 4096;
  bool uneven = false;       // vary the rows per document, including none, and add token strings
  std::int64_t pool = 1024;  // distinct rows per head
};

inline Manifest planted_manifest(const PlantedParts& parts) {
  Manifest manifest;
  manifest.identity = Json::object();
  manifest.config_hash = "0";
  manifest.head_dim = parts.head_dim;
  manifest.row_group_size = parts.row_group_size;
  manifest.token_strings = parts.uneven;
  manifest.sampler = {
      .type = SamplerType::uniform, .base_rate = 1.0, .min_bucket_size = 256, .max_rows = {}};
  manifest.model_metadata = Json::object();
  for (const auto* key : {metadata::kModel, metadata::kRevision, metadata::kStage, metadata::kDtype,
                          metadata::kDevice, metadata::kVersion})
    manifest.metadata[key] = "made up";
  for (std::int64_t layer = 0; layer < parts.layers; ++layer)
    for (const auto kind : {HeadKind::query, HeadKind::key}) {
      HeadGroup group;
      group.layer = layer;
      group.kind = kind;
      const auto heads = kind == HeadKind::query ? parts.query_heads : parts.key_heads;
      for (std::int64_t head = 0; head < heads; ++head) group.heads.push_back(head);
      group.rope = "none";
      manifest.groups.push_back(group);
    }
  return manifest;
}

// A pool of random rows; neighbouring documents get different rows.
class PlantedRows {
 public:
  explicit PlantedRows(const PlantedParts& parts)
      : pool_(parts.pool),
        queries_(random_vectors(parts, parts.query_heads)),
        keys_(random_vectors(parts, parts.key_heads)) {}

  // Returns the rows of a document, shape (count, heads, head_dim).
  ConstTensorView of(HeadKind kind, std::int64_t document, std::int64_t count) const {
    const auto from = document * 997 % pool_;
    return (kind == HeadKind::query ? queries_ : keys_).view().rows(from, from + count);
  }

 private:
  static Tensor random_vectors(const PlantedParts& parts, std::int64_t heads) {
    Tensor vectors({parts.pool + parts.rows, heads, parts.head_dim});
    std::mt19937 random(0);
    std::normal_distribution<float> normal;
    std::generate_n(vectors.data<float>(), vectors.size(), [&] { return normal(random); });
    return vectors;
  }

  std::int64_t pool_;
  Tensor queries_;  // (pool + rows, heads, head_dim)
  Tensor keys_;
};

inline std::int64_t planted_row_count(const PlantedParts& parts, std::int64_t document,
                                      std::size_t group) {
  return parts.uneven ? (document * 7 + static_cast<std::int64_t>(group)) % (parts.rows + 1)
                      : parts.rows;
}

// Writes the documents of one shard as a complete part, and uploads it when `stored` is given.
// Returns the seconds spent in SegmentWriter without waiting for the disk.
inline double write_planted_part(const DataRoot& root, const PlantedParts& parts,
                                 const PlantedRows& rows, const Shard& shard,
                                 StoredRun* stored = nullptr) {
  const auto lock = root.lock(shard);
  auto journal = root.open_part(planted_manifest(parts), shard);
  if (stored != nullptr) stored->upload_new_journal_lines(journal, shard);
  const auto& groups = journal.manifest().groups;
  double seconds = 0.0;
  const std::string_view text = "made up";
  for (auto row = shard.index; row < parts.documents;) {
    JournalEntry entry{.segment = segment_name(journal.entries().size())};
    SegmentWriter segment(journal.segment_path(entry.segment), groups.size());
    const auto start = Clock::now();
    for (; row < parts.documents && entry.examples < parts.segment_size; row += shard.count) {
      const auto tokens = static_cast<std::int32_t>(parts.rows);
      const auto example = segment.add_example(
          {.row = row, .key = row, .source_id = fmt::format("text-{}", row), .tokens = tokens});
      for (std::size_t group = 0; group < groups.size(); ++group) {
        const auto count = planted_row_count(parts, row, group);
        std::vector<std::int32_t> positions;
        positions.reserve(static_cast<std::size_t>(count));
        for (std::int32_t position = 0; position < count; ++position) positions.push_back(position);
        const std::vector<std::string_view> strings(parts.uneven ? positions.size() : 0, text);
        segment.add_block(example, group, positions, strings,
                          rows.of(groups[group].kind, row, count));
        entry.rows += count * std::ssize(groups[group].heads);
      }
      ++entry.examples;
      entry.tokens += tokens;
    }
    seconds += seconds_since(start);
    entry.checksum = segment.commit();
    journal.append_entry(entry);
  }
  journal.mark_complete();
  return seconds;
}

}  // namespace qkscope
