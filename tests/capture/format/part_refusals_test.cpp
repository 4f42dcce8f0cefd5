// Parts, manifests and state files with valid checksums and contents that no run writes.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/io/mapped_file.h"
#include "base/io/output_file.h"
#include "capture/folders_in_memory.h"
#include "capture/format/buckets.h"
#include "capture/format/journal.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "capture/format/segment.h"
#include "capture/verify_part.h"
#include "error_message.h"
#include "temporary_folder.h"

namespace qkscope {
namespace {

using ::testing::HasSubstr;

Manifest one_group() {
  Manifest manifest;
  manifest.identity = {
      {"capture", {{"seed", 1}, {"layers", {1, 2}}}},
      {kInputs, {{"weights", {{"a", "1"}, {"b", "1"}}}, {"dataset", {{"texts", "1"}}}}}};
  manifest.head_dim = 2;
  manifest.row_group_size = 10;
  manifest.groups.push_back(
      {.layer = 0, .heads = {0, 1}, .window = {}, .rope = "", .rope_inv_freq = ""});
  return manifest;
}

TEST(ManifestDifference, NamesWhatChanged) {
  struct Row {
    std::string message;
    void (*change)(Manifest& now);
  };
  const Row rows[] = {
      {"", [](Manifest&) {}},
      {"", [](Manifest& now) { now.repo = now.branch = "elsewhere"; }},
      {"the configuration differs (capture.seed: 1 there, 2 now)",
       [](Manifest& now) { now.identity["capture"]["seed"] = 2; }},
      {"the configuration differs (capture.layers[1]: 2 there, 3 now)",
       [](Manifest& now) { now.identity["capture"]["layers"][1] = 3; }},
      {"the configuration differs (capture.layers: [1,2] there, [1] now)",
       [](Manifest& now) { now.identity["capture"]["layers"] = {1}; }},
      {std::string("the configuration differs (capture: {\"layers\":[1,2],\"seed\":1} there, null "
                   "now; new: null "
                   "there, \"") +
           std::string(59, 'x') + "... now)",
       [](Manifest& now) {
         now.identity.erase("capture");
         now.identity["new"] = std::string(100, 'x');
       }},
      {"the configuration differs (k0: null there, 0 now; k1: null there, 1 now; k2: null there, 2 "
       "now; k3: null there, 3 now; k4: null there, 4 now; and 1 more)",
       [](Manifest& now) {
         for (int i = 0; i < 6; ++i) now.identity[fmt::format("k{}", i)] = i;
       }},
      {"the configuration differs (capture.layers: [1,2] there, 3 now)",
       [](Manifest& now) { now.identity["capture"]["layers"] = 3; }},
      {"the model's weights changed since this run began (a, c); the dataset changed since this "
       "run "
       "began (texts)",
       [](Manifest& now) {
         now.identity[kInputs]["weights"] = {{"a", "2"}, {"b", "1"}, {"c", "1"}};
         now.identity[kInputs]["dataset"] = Json::object();
       }},
      {"", [](Manifest& now) { now.identity[kInputs].erase("weights"); }},
      {"", [](Manifest& now) { now.identity.erase(kInputs); }},
      {"what would be written differs (head_dim: 2 there, 4 now)",
       [](Manifest& now) { now.head_dim = 4; }},
  };
  for (const auto& [message, change] : rows) {
    auto now = one_group();
    change(now);
    EXPECT_EQ(describe_manifest_difference(one_group(), now), message);
  }
}

TEST(ManifestDifference, AnIdentityOfAnotherProgramDiffers) {
  EXPECT_EQ(describe_identity_difference(Json(1), one_group().identity).find("the configuration"),
            0u);
}

TEST(ManifestFile, RefusalsSayWhatIsWrong) {
  struct Row {
    const char* message;
    void (*change)(Json& json);
  };
  const Row rows[] = {
      {"m: min_bucket_size is 0; expected 1 or more",
       [](Json& json) { json["sampler"]["min_bucket_size"] = 0; }},
      {"m: layer 0, head -1: expected 0 to 16777216",
       [](Json& json) { json["groups"][0]["heads"] = {-1}; }},
      {"m: layer 0, head 16777217: expected 0 to 16777216",
       [](Json& json) { json["groups"][0]["heads"] = {(1 << 24) + 1}; }},
      {"m: layer -1, head 0: expected 0 to 16777216",
       [](Json& json) { json["groups"][0]["layer"] = -1; }},
      {"m: layer 16777217, head 0: expected 0 to 16777216",
       [](Json& json) { json["groups"][0]["layer"] = (1 << 24) + 1; }},
      {"m: head_dim is 16777217; expected 1 to 16777216",
       [](Json& json) { json["head_dim"] = (1 << 24) + 1; }},
      {"m: expected an integer, found -2147483649",
       [](Json& json) { json["groups"][0]["window"] = -2147483649; }},
  };
  for (const auto& [message, change] : rows) {
    auto json = to_json(one_group());
    change(json);
    EXPECT_EQ(bad_input_message([&] { manifest_from_json(json, "m"); }), message);
  }
  auto json = to_json(one_group());
  json["groups"][0]["window"] = 512;
  json["sampler"]["max_rows"] = 7;
  const auto manifest = manifest_from_json(json, "m");
  EXPECT_EQ(manifest.groups[0].window, 512);
  EXPECT_EQ(manifest.sampler.max_rows, 7);
}

TEST(ManifestFile, RefusesAnotherVersionAndMissingKeys) {
  EXPECT_THAT(bad_input_message([] { parse_manifest_file("{\"format\": 1}", "m"); }),
              HasSubstr("m: another version of qkscope began this capture"));
  EXPECT_THAT(bad_input_message([] { parse_manifest_file("{\"format\": 2}", "m"); }),
              HasSubstr("m: damaged ([json.exception.out_of_range.403] key 'checksum' not found); "
                        "start again with --overwrite"));
  EXPECT_THAT(bad_input_message([] { parse_manifest_file("[]", "m"); }), HasSubstr("m: damaged"));
}

TEST(ManifestMetadata, NamesTheKeyHeadAndTheFrequencies) {
  auto manifest = one_group();
  manifest.heads_per_key_head = 4;
  HeadGroup group{.layer = 3,
                  .kind = HeadKind::query,
                  .heads = {6},
                  .window = {},
                  .rope = "",
                  .rope_inv_freq = "[1]"};
  const auto query = manifest.head_file_metadata(group, 6);
  EXPECT_EQ(query.at(metadata::kKeyHead), "1");
  EXPECT_EQ(query.at(metadata::kRopeInvFreq), "[1]");
  group.kind = HeadKind::key;
  group.rope_inv_freq = "";
  const auto key = manifest.head_file_metadata(group, 6);
  EXPECT_FALSE(key.contains(metadata::kKeyHead) || key.contains(metadata::kRopeInvFreq));
}

// A part with one segment per list of dataset rows; each example has 3 tokens and one row.
class PlantedPart : private FoldersInMemory, public testing::Test {
 protected:
  std::string folder() const { return folder_.file(name_); }

  void write(const std::vector<std::vector<std::int64_t>>& segments,
             const std::function<void(JournalEntry&)>& change = {}) const {
    std::filesystem::remove_all(folder());
    std::filesystem::create_directories(folder());
    Journal::create(folder(), manifest_);
    Journal journal(folder());
    for (const auto& rows : segments) {
      JournalEntry entry{.segment = segment_name(journal.entries().size())};
      SegmentWriter writer(journal.segment_path(entry.segment), 1);
      for (const auto row : rows) {
        const auto example =
            writer.add_example({.row = row, .key = row, .source_id = "", .tokens = 3});
        writer.add_block(example, 0, std::vector<std::int32_t>{2}, {}, Tensor({1, 2, 2}));
      }
      entry.examples = std::ssize(rows);
      entry.rows = 2 * std::ssize(rows);  // of two heads
      entry.tokens = 3 * std::ssize(rows);
      entry.checksum = writer.commit();
      if (change) change(entry);
      journal.append_entry(entry);
    }
  }
  std::string refusal() const {
    return bad_input_message([&] { verify_part(Journal(folder())); });
  }

  TemporaryFolder folder_;
  std::string name_ = "00000-of-00001";
  Manifest manifest_ = one_group();
};

TEST_F(PlantedPart, IsRefusedWhenTheJournalSaysSomethingElse) {
  struct Row {
    const char* message;
    void (*change)(JournalEntry& entry);
  };
  const Row rows[] = {
      {"not the segment that the journal means", [](JournalEntry& entry) { ++entry.checksum; }},
      {"has 2 rows, the journal says 3", [](JournalEntry& entry) { ++entry.rows; }},
      {"has 1 examples, the journal says 2", [](JournalEntry& entry) { ++entry.examples; }},
      {"has 3 tokens, the journal says 4", [](JournalEntry& entry) { ++entry.tokens; }},
  };
  for (const auto& [message, change] : rows) {
    write({{4}}, change);
    EXPECT_THAT(refusal(), HasSubstr(message));
  }
  write({{4}}, [](JournalEntry& entry) { entry.non_finite = 1; });
  EXPECT_EQ(Journal(folder()).non_finite_row_count(), 1);
  EXPECT_NO_THROW(verify_part(Journal(folder())));
}

TEST_F(PlantedPart, HasEveryExampleOnceAndInOrder) {
  write({{0, 4}, {5}});
  EXPECT_NO_THROW(verify_part(Journal(folder())));
  write({{4, 2}});
  EXPECT_THAT(refusal(), HasSubstr("row 2 of the dataset is out of its turn"));
  write({{4, 4}});
  EXPECT_THAT(refusal(), HasSubstr("row 4 of the dataset is out of its turn"));
  write({{4}, {}, {4}});
  EXPECT_THAT(refusal(), HasSubstr("00000002.seg: row 4 of the dataset is there twice"));
  name_ = "00001-of-00003";
  write({{4, 5}});
  EXPECT_THAT(refusal(), HasSubstr("row 5 of the dataset is out of its turn"));
  manifest_.identity["tokenizer"] = {{"max_length", 8}};
  write({{4, 4}});
  EXPECT_THAT(refusal(), HasSubstr("row 4 of the dataset is out of its turn"));
  manifest_.identity["tokenizer"]["chunk"] = true;  // chunks of one text share its row
  write({{4, 4}, {4, 7}});
  EXPECT_NO_THROW(verify_part(Journal(folder())));
}

TEST_F(PlantedPart, ABlockWithoutRowsHasNoTokenStrings) {
  manifest_.token_strings = true;
  std::filesystem::create_directories(folder());
  Journal::create(folder(), manifest_);
  SegmentWriter writer(folder() + "/" + segment_name(0), 1);
  writer.add_example({.row = 0, .key = 0, .source_id = "", .tokens = 3});
  Journal journal(folder());
  journal.append_entry(
      {.segment = segment_name(0), .examples = 1, .tokens = 3, .checksum = writer.commit()});
  EXPECT_NO_THROW(verify_part(Journal(folder())));
  std::filesystem::remove_all(folder());
  EXPECT_THAT(bad_input_message([&] { journal.mark_complete(); }),
              HasSubstr("journal.jsonl: cannot write: No such file"));
}

TEST_F(PlantedPart, LargeBlocksAreWrittenInPieces) {
  const auto path = folder_.file("large.seg");
  SegmentWriter writer(path, 1);
  writer.add_example({.row = 0, .key = 0, .source_id = "", .tokens = 1});
  constexpr std::int64_t kWidth = 3 << 18;  // floats: three megabytes
  Tensor vectors({1, 1, kWidth});
  std::fill_n(vectors.data<float>(), kWidth, 1.5F);
  writer.add_block(0, 0, std::vector<std::int32_t>{0}, {}, vectors);
  writer.commit();
  const SegmentReader reader(path, 1);
  EXPECT_NO_THROW(reader.verify_checksums());
  CapturedRows block;
  reader.read_block(reader.read_block_index(0)[0], {}, kWidth, block);
  EXPECT_THAT(block.vectors, testing::Each(1.5F));
}

TEST_F(PlantedPart, TellsAnEmptyJournalFromOneThatCannotBeRead) {
  write({});
  EXPECT_FALSE(Journal::has_entries(folder()));
  write({{1}});
  EXPECT_TRUE(Journal::has_entries(folder()));
  EXPECT_THAT(bad_input_message([&] { Journal::has_entries(folder() + "/manifest.json"); }),
              HasSubstr("Not a directory"));
}

TEST_F(PlantedPart, KeepsListedFilesAndRemovesOthers) {
  write({{1}});
  for (const auto* name : {"00000001.seg", "00000000.state", "00000001.state", "00000000.docs",
                           "00000000.seg.old", "x.tmp", "notes"})
    std::ofstream(folder() + "/" + name) << "x";
  Journal(folder()).remove_unlisted_files();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    names.push_back(entry.path().filename().string());
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("00000000.seg", "00000000.state", "00000000.docs",
                                            "notes", layout::kManifestFile, layout::kJournalFile));
}

TEST_F(PlantedPart, TellsItsFollowerEveryLine) {
  write({});
  Journal journal(folder());
  std::vector<std::string> seen;
  journal.set_append_callback([&](const AppendedJournalLine& line) {
    seen.push_back(fmt::format("{} {}", line.number, line.segment));
  });
  journal.append_entry({.segment = segment_name(0)});
  journal.mark_complete();
  EXPECT_THAT(seen, testing::ElementsAre("0 00000000.seg", "1 "));
}

TEST_F(PlantedPart, RefusesALineAfterTheCompletionMark) {
  write({{1}});
  Journal journal(folder());
  journal.mark_complete();
  journal.append_entry({.segment = segment_name(1)});
  journal.append_entry({.segment = segment_name(2)});
  EXPECT_THAT(bad_input_message([&] { Journal again(folder()); }),
              HasSubstr("line 2 is damaged; start again with --overwrite"));
}

// Changes the trailer and the first index entry of a segment and makes the trailer's checksum
// valid.
void edit_segment(const std::string& path,
                  const std::function<void(SegmentTrailer&, BlockIndexEntry&)>& change) {
  std::string bytes(MappedFile(path).text());
  SegmentTrailer trailer;
  BlockIndexEntry entry;
  const auto at = bytes.size() - sizeof trailer;
  std::memcpy(&trailer, bytes.data() + at, sizeof trailer);
  const auto index = trailer.index_offset;
  std::memcpy(&entry, bytes.data() + index, sizeof entry);
  change(trailer, entry);
  trailer.checksum =
      checksum_of({reinterpret_cast<const char*>(&trailer), offsetof(SegmentTrailer, checksum)});
  std::memcpy(bytes.data() + index, &entry, sizeof entry);
  std::memcpy(bytes.data() + at, &trailer, sizeof trailer);
  std::ofstream(path) << bytes;
}

TEST_F(PlantedPart, SegmentsWithImpossibleTrailersAreRefused) {
  constexpr auto kHuge = std::uint64_t{1} << 40;
  using Trailer = SegmentTrailer;
  const std::function<void(Trailer&)> changes[] = {
      [](Trailer& trailer) { trailer.magic[0] = 'X'; },
      [](Trailer& trailer) { trailer.groups = 2; },
      [](Trailer& trailer) { trailer.examples = kHuge; },
      [](Trailer& trailer) { trailer.index_offset = kHuge; },
      [](Trailer& trailer) { trailer.table_offset = kHuge; },
      [](Trailer& trailer) { trailer.table_offset += 8; },
  };
  for (const auto& change : changes) {
    write({{4}});
    const auto path = folder() + "/" + segment_name(0);
    edit_segment(path, [&](Trailer& trailer, BlockIndexEntry&) { change(trailer); });
    EXPECT_THAT(bad_input_message([&] { SegmentReader(path, 1); }),
                HasSubstr("damaged: not a whole part of this capture"));
  }
}

TEST_F(PlantedPart, BlocksOutsideOfTheirSegmentAreRefused) {
  write({{4}});
  const SegmentReader reader(folder() + "/" + segment_name(0), 1);
  const auto good = reader.read_block_index(0)[0];
  CapturedRows block;
  EXPECT_NO_THROW(reader.read_block(good, {}, 2, block));
  const std::function<void(BlockIndexEntry&)> changes[] = {
      [](BlockIndexEntry& entry) { entry.rows = 1 << 30; },
      [](BlockIndexEntry& entry) { entry.offset = std::uint64_t{1} << 40; },
      [&](BlockIndexEntry& entry) { entry.offset = reader.file_bytes() - 2; },
      [](BlockIndexEntry& entry) { entry.string_bytes = 3; },  // shorter than a length
  };
  for (const auto& change : changes) {
    auto entry = good;
    change(entry);
    EXPECT_THAT(bad_input_message([&] { reader.read_block(entry, {}, 2, block); }),
                HasSubstr("damaged"));
  }
  std::uint64_t offset = reader.file_bytes();
  EXPECT_THAT(bad_input_message([&] { reader.read_example(offset); }), HasSubstr("damaged"));
}

TEST_F(PlantedPart, AMissingSegmentIsNamed) {
  EXPECT_THAT(bad_input_message([&] { SegmentReader(folder_.file("none.seg"), 1); }),
              HasSubstr("none.seg"));
}

void write_head(const std::string& folder, const HeadId& id, const Metadata& metadata = {}) {
  HeadRows rows;
  rows.head_dim = 1;
  rows.bucket = rows.example_id = rows.position = {0};
  rows.vectors = {1};
  write_head_file(head_file_path(folder, id), rows, metadata);
}

TEST(StateFile, EveryUnusableValueIsIgnored) {
  const FoldersInMemory memory;
  const TemporaryFolder folder;
  write_head(folder.path(), {0, 0, HeadKind::query});
  std::filesystem::create_directory(folder.file("l00h01q"));  // without a head file
  std::filesystem::create_directory(folder.file("other"));
  const auto index = [&](const std::string& state) {
    std::ofstream(folder.file(layout::kStateFile)) << state;
    return index_capture(folder.path());
  };
  const auto counted = [](const std::string& queries, const std::string& keys) {
    return fmt::format(R"({{"model_metadata": {{"head_sampling_num_query_heads": {},
                       "head_sampling_num_key_heads": {}}}}})",
                       queries, keys);
  };
  EXPECT_TRUE(index(counted("4", "2")).counts);
  for (const auto& [queries, keys] : std::vector<std::pair<std::string, std::string>>{
           {"0", "2"}, {"4", "0"}, {"4", "-1"}, {"2000000", "2"}, {"4", "2000000"}, {"\"4\"", "2"}})
    EXPECT_FALSE(index(counted(queries, keys)).counts) << queries << " " << keys;
  for (const auto* state : {R"({"model_name": 1, "configuration_hash": 2, "model_metadata": 3})",
                            R"({"model_metadata": {"a": {"sanitized_split": "x"}, "b": {}}})", "{}",
                            R"({"model_metadata": {}})"}) {
    const auto found = index(state);
    EXPECT_EQ(found.model + found.config_hash, "") << state;
    EXPECT_FALSE(found.counts || found.sampler) << state;
  }
  EXPECT_FALSE(index(R"({"model_metadata": {"sampling_strategy": "log_uniform",
                       "sampling_bucket_size": 8}})")
                   .sampler);
  EXPECT_FALSE(index(R"({"model_metadata": {"sampling_strategy": 1}})").sampler);
  EXPECT_EQ(index(R"({"model_metadata": {"org/a": {}}})").model, "org/a");
  EXPECT_THAT(bad_input_message([&] { index("[]"); }), HasSubstr("not a JSON object"));
}

TEST(HeadMetadata, RefusalsSayWhatIsWrong) {
  const auto rope = [](const std::string& text, const std::string& listed = "") {
    Metadata metadata = {{metadata::kRope, text}};
    if (!listed.empty()) metadata[metadata::kRopeInvFreq] = listed;
    return [metadata] { rope_info(metadata, "f"); };
  };
  const auto sampler = [](const char* type, const char* rate, const char* size) {
    return [=] {
      sampler_options({{metadata::kSampler, type},
                       {metadata::kBaseRate, rate},
                       {metadata::kMinBucketSize, size}},
                      "f");
    };
  };
  constexpr auto kRange = "; expected theta from 1 to 1e15, dim from 2 to 65536";
  const std::pair<std::string, std::function<void()>> rows[] = {
      {"f: 'rope_inv_freq' is not a list", rope("{}", "1")},
      {"f: 'rope_inv_freq' holds \"x\"; expected positive numbers", rope("{}", "[\"x\"]")},
      {"f: 'rope_inv_freq' holds 0; expected positive numbers", rope("{}", "[0]")},
      {"f: 'rope_inv_freq' holds -1; expected positive numbers",
       rope(R"({"rotated_pairs": 1})", "[1, 0, -1]")},
      {std::string("f: 'rope' has theta 1 and dim 4") + kRange, rope(R"({"theta": 1, "dim": 4})")},
      {std::string("f: 'rope' has theta 1e+16 and dim 4") + kRange,
       rope(R"({"theta": 1e16, "dim": 4})")},
      {std::string("f: 'rope' has theta 10 and dim 1") + kRange,
       rope(R"({"theta": 10, "dim": 1})")},
      {std::string("f: 'rope' has theta 10 and dim 65537") + kRange,
       rope(R"({"theta": 10, "dim": 65537})")},
      {"f: sampler: found \"some\", expected log_uniform, uniform or all",
       sampler("some", "1", "1")},
      {"f: base_rate: found \"[]\", expected a number above 0", sampler("all", "[]", "1")},
      {"f: base_rate: found \"-1\", expected a number above 0", sampler("all", "-1", "1")},
      {"f: min_bucket_size: found 0, expected 1 or more", sampler("all", "1", "0")},
  };
  for (const auto& [message, action] : rows) EXPECT_EQ(bad_input_message(action), message);
  for (const auto* text : {"[]", "{}", R"({"theta": 10})", R"({"theta": "x", "dim": 4})",
                           R"({"theta": 10, "dim": 4.5})"})
    EXPECT_TRUE(rope_info({{metadata::kRope, text}}, "f").inv_freq.empty()) << text;
  EXPECT_FALSE(sampler_options({{metadata::kSampler, "all"}}, "f"));
  EXPECT_FALSE(sampler_options({{metadata::kSampler, "all"}, {metadata::kBaseRate, "1"}}, "f"));
  EXPECT_EQ(attention_name({}) + " " + attention_name(512), "full sliding:512");
}

TEST(Buckets, RefuseNumbersOutOfRange) {
  const auto bucket = [](std::int64_t size, std::int64_t position) {
    return [=] {
      bucket_of({.type = SamplerType::uniform, .min_bucket_size = size, .max_rows = {}}, position);
    };
  };
  EXPECT_EQ(bad_input_message(bucket(0, 1)), "min_bucket_size is 0; expected 1 or more");
  EXPECT_EQ(bad_input_message(bucket(8, -1)), "position is -1; expected 0 or more");
  const SamplerOptions log{.type = SamplerType::log_uniform, .min_bucket_size = 8, .max_rows = {}};
  for (const auto number : {-1, 2, 62, 63}) {
    const auto range = positions_of_bucket(log, number);
    EXPECT_EQ(range.begin, range.end) << number;
  }
}

}  // namespace
}  // namespace qkscope
