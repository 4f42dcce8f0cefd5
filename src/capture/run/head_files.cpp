#include "capture/run/head_files.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/io/folder.h"
#include "capture/format/examples.h"
#include "capture/format/examples_in_order.h"

namespace qkscope {

std::vector<GroupHeads> split_heads(const Manifest& manifest, std::size_t most) {
  std::vector<GroupHeads> all;
  for (std::size_t group = 0; group < manifest.groups.size(); ++group) {
    const auto heads = manifest.groups[group].heads.size();
    for (std::size_t first = 0; first < heads; first += most)
      all.push_back({group, {first, std::min(most, heads - first)}});
  }
  return all;
}

HeadFiles::HeadFiles(const std::string& folder, const Manifest& manifest, const GroupHeads& heads)
    : manifest_(manifest), heads_(heads), bucket_(manifest.sampler) {
  for (std::size_t i = 0; i < heads.heads.count; ++i)
    writers_.push_back(open(folder, group().heads[heads.heads.first + i]));
}

std::unique_ptr<HeadWriter> HeadFiles::open(const std::string& folder, std::int64_t head) const {
  const auto path = head_file_path(folder, manifest_.head_id(group(), head));
  make_folders(std::filesystem::path(path).parent_path().string());
  return std::make_unique<HeadWriter>(
      path, HeadWriterOptions{.head_dim = static_cast<int>(manifest_.head_dim),
                              .token_strings = manifest_.token_strings,
                              .example_keys = true,
                              .row_group_size = manifest_.row_group_size,
                              .metadata = manifest_.file_metadata(group(), head)});
}

// Buffers are local, because hundreds of HeadFiles may wait for more segments at the same time.
void HeadFiles::append_new(SegmentFiles& segments) {
  std::shared_ptr<const SegmentReader> segment;
  std::vector<BlockEntry> index;  // (examples of the segment)
  HeadBlock block;
  ExamplesInOrder examples(segments, segments_);
  while (examples.next()) {
    if (segment != examples.segment()) {
      segment = examples.segment();
      index = segment->index(heads_.group);
    }
    segment->read(index[examples.number()], heads_.heads, manifest_.head_dim, block);
    if (!block.positions.empty()) append(block);
  }
  segments_ = segments.parts().front().entries().size();
}

void HeadFiles::append(const HeadBlock& block) {
  std::vector<std::int32_t> buckets;
  for (const auto position : block.positions) {
    buckets.push_back(bucket_.of(position));
    counts_[buckets.back()] += std::ssize(writers_);
  }
  const std::vector<std::int32_t> ids(buckets.size(), example_id(block.example_key));
  const std::vector<std::int64_t> keys(buckets.size(), block.example_key);
  const auto of_head = block.vectors.size() / writers_.size();
  for (std::size_t i = 0; i < writers_.size(); ++i)
    writers_[i]->append({.bucket = buckets,
                         .example_id = ids,
                         .position = block.positions,
                         .vectors = std::span(block.vectors).subspan(i * of_head, of_head),
                         .sliding_window = group().window,
                         .token_str = block.token_strings,
                         .example_key = keys});
  rows_ += std::ssize(buckets);
}

void HeadFiles::finish() {
  for (const auto& writer : writers_) writer->finish();
}

}  // namespace qkscope
