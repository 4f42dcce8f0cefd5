// Assembling ahead, during the run, gives the same bytes as assembling afterwards.
#include "capture/writer/assemble.h"

#include <chrono>
#include <thread>

#include <sys/resource.h>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "capture_fixture.h"
#include "planted_parts.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// 13 segments; 1,200 rows per head fill several blocks and row groups, the last of each partially.
constexpr PlantedParts kParts{.documents = 200,
                              .rows = 12,
                              .layers = 6,
                              .query_heads = 6,
                              .key_heads = 2,
                              .head_dim = 16,
                              .segment_size = 16,
                              .row_group_size = 700,
                              .uneven = true};

class AssemblyAhead : public CaptureFixture {
 protected:
  void SetUp() override {  // needs no model
    set_thread_count(6);   // three of them work ahead
    write_part("expected");
    CaptureAssembler(DataRoot(file("expected")), {part("expected")}).finish(true);
    DataRoot(file("expected")).move_final_files_to_root();
    expected_ = contents("expected");
  }

  void TearDown() override { set_thread_count(0); }

  void write_part(const std::string& name) const {
    write_planted_part(DataRoot(file(name)), kParts, PlantedRows(kParts), {});
  }
  Journal part(const std::string& name) const {
    return Journal(DataRoot(file(name)).part_folder({}));
  }
  // The part after its first `segments` segments.
  Journal begun(const std::string& name, std::size_t segments) const {
    const auto all = part(name);
    auto begun = all.copy_without_entries();
    for (std::size_t i = 0; i < segments; ++i) begun.add_entry_without_writing(all.entries()[i]);
    return begun;
  }
  // Waits until `count` unfinished head files exist.
  void wait_for_files(const std::string& root, std::size_t count) const {
    const auto open = [&] {
      std::size_t found = 0;
      if (fs::exists(file(root + "/.parts/final")))
        for (const auto& [name, content] : contents(root + "/.parts/final"))
          found += name.ends_with(".partial");
      return found;
    };
    for (int i = 0; i < 3000 && open() < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(open(), count);
  }

  static constexpr std::size_t kHeads = kParts.layers * (kParts.query_heads + kParts.key_heads);
  std::map<std::string, std::string> expected_;
};

// `before`: segments that exist at the start, as in a resumed run.
TEST_F(AssemblyAhead, BytesDoNotDependOnSegmentTiming) {
  for (const std::size_t before : {0u, 1u, 5u, 13u})
    for (const auto pause : {std::chrono::milliseconds(0), std::chrono::milliseconds(3)}) {
      fs::remove_all(file("out"));
      write_part("out");
      const auto all = part("out");
      ASSERT_EQ(all.entries().size(), 13u);
      CaptureAssembler assembly(DataRoot(file("out")), {begun("out", before)});
      assembly.start_background_assembly();
      for (auto i = before; i < all.entries().size(); ++i) {
        assembly.enqueue_segment(all.entries()[i]);
        std::this_thread::sleep_for(pause);
      }
      assembly.finish(true);
      DataRoot(file("out")).move_final_files_to_root();
      expect_same("out", expected_);
    }
}

TEST_F(AssemblyAhead, RespectsTheOpenFileLimit) {
  write_part("out");
  struct rlimit usual {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  auto few = usual;
  few.rlim_cur = 80;  // fewer than two per head
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  CaptureAssembler assembly(DataRoot(file("out")), {part("out")});
  assembly.start_background_assembly();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_NO_THROW(assembly.finish(true));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  DataRoot(file("out")).move_final_files_to_root();
  expect_same("out", expected_);
}

TEST_F(AssemblyAhead, LeavesNoFileWhenTheRunIsInterrupted) {
  write_part("out");
  {
    CaptureAssembler assembly(DataRoot(file("out")), {part("out")});
    assembly.start_background_assembly();
    wait_for_files("out", kHeads);
  }
  EXPECT_TRUE(contents("out/.parts/final").empty());
  EXPECT_FALSE(fs::exists(file("out/l00h00q")));
  CaptureAssembler(DataRoot(file("out")), {part("out")}).finish(true);  // a later run
  DataRoot(file("out")).move_final_files_to_root();
  expect_same("out", expected_);
}

// Files in .parts/final are leftovers of a killed process.
TEST_F(AssemblyAhead, IgnoresLeftoversOfAKilledAssembly) {
  write_part("out");
  fs::create_directories(file("out/.parts/final/l00h00q"));
  write_text(file("out/.parts/final/l00h00q/data.parquet.partial"), "half of a file");
  write_text(file("out/.parts/final/l00h00q/data.parquet"), "of another version");
  CaptureAssembler assembly(DataRoot(file("out")), {part("out")});
  assembly.start_background_assembly();
  assembly.finish(true);
  DataRoot(file("out")).move_final_files_to_root();
  expect_same("out", expected_);
}

TEST_F(AssemblyAhead, RefusesADamagedSegment) {
  for (const std::size_t damaged : {0u, 7u, 12u}) {
    fs::remove_all(file("out"));
    write_part("out");
    const auto all = part("out");
    const auto path = all.segment_path(all.entries()[damaged].segment);
    std::fstream segment(path, std::ios::in | std::ios::out | std::ios::binary);
    segment.seekp(1000);
    segment << "other bytes";
    segment.close();
    CaptureAssembler assembly(DataRoot(file("out")), {all});
    assembly.start_background_assembly();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    try {
      assembly.finish(true);
      FAIL() << "assembled from a damaged segment";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
    EXPECT_FALSE(fs::exists(file("out/_saver_state.json")));
    EXPECT_FALSE(fs::exists(file("out/l00h00q")));
  }
}

}  // namespace
}  // namespace qkscope
