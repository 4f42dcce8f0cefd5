// Simulates a power loss after every file operation of a capture, with any subset of unsynced data
// lost: the disk must hold a finished capture, or one that the same command completes to the same
// bytes. The run is recorded once (file_recorder.cpp) and replayed thousands of times
// (disk_model.h).
//
// Every disk state is checked as a resumed run reads it; a few are given to the program. For more:
// QKSCOPE_POWER_CUTS=100 build/tests/test_capture_run --gtest_filter='PowerCut.*'
#include <set>

#include "base/io/checksum.h"
#include "capture/format/data_root.h"
#include "capture/verify_part.h"
#include "disk_model.h"
#include "kill_points.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

class PowerCut : public CaptureFixture {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a library before the sanitizer's own is refused by it";
    CaptureFixture::SetUp();
    write_documents(file("docs.jsonl"), 150, 6);  // three segments
    if (const char* more = std::getenv("QKSCOPE_POWER_CUTS")) effort_ = std::atoi(more);
  }

  // Records the file operations of a command below the folder "disk".
  std::vector<FileOperation> record(const std::string& line) {
    fs::create_directories(file("disk"));
    const auto disk = fs::canonical(file("disk")).string();
    fs::remove(file("record"));
    const auto outcome = run_recorded(
        line, fmt::format("QKSCOPE_RECORD_BELOW={} QKSCOPE_RECORD_TO={}", disk, file("record")));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return read_operations(file("record"), disk);
  }

  // Replays the operations on a disk that holds `before` and cuts the power after each. `finished`:
  // allowed finished captures; the command `line` produces the last of them.
  void cut_everywhere(const Tree& before, const std::vector<FileOperation>& operations,
                      const std::vector<Tree>& finished, const std::string& line) {
    std::mt19937 random(11);
    std::set<std::uint64_t> seen;
    std::vector<Tree> states;
    DiskModel disk(before);
    std::size_t cuts = 0;
    const auto add = [&](DiskModel::Unsynced unsynced) {
      auto tree = disk.after_cut(unsynced, random);
      ++cuts;
      if (seen.insert(hash(tree)).second) states.push_back(std::move(tree));
    };
    for (std::size_t i = 0; i <= operations.size(); ++i) {
      add(DiskModel::Unsynced::lost);
      add(DiskModel::Unsynced::kept);
      for (int variant = 0; variant < 2 * effort_; ++variant) add(DiskModel::Unsynced::some);
      if (i < operations.size()) disk.apply(operations[i]);
    }
    for (const auto& state : states) {
      check_state(state, finished);
      if (testing::Test::HasFailure()) return;
    }
    const std::size_t wanted = 6 * static_cast<std::size_t>(effort_);
    for (std::size_t i = 0; i < std::min(wanted, states.size()); ++i) {
      check_recovery(states[random() % states.size()], finished.back(), line);
      if (testing::Test::HasFailure()) return;
    }
    fmt::print("{} operations, {} cuts, {} different disks, {} of them given to the program\n",
               operations.size(), cuts, states.size(), std::min(wanted, states.size()));
  }

  static std::uint64_t hash(const Tree& tree) {
    Checksum sum;
    for (const auto& [name, content] : tree) {
      sum.add(fmt::format("{} {} ", name, content.size()));
      sum.add(content);
    }
    return sum.value();
  }

  // A state with a state file must be complete; any other must have readable parts.
  void check_state(const Tree& state, const std::vector<Tree>& finished) {
    if (state.contains("out/_saver_state.json")) {
      bool whole = false;
      for (const auto& expected : finished) {
        bool same = true;
        for (const auto& [name, content] : expected) {
          const auto found = state.find("out/" + name);
          same = same && found != state.end() && found->second == content;
        }
        whole = whole || same;
      }
      EXPECT_TRUE(whole) << "a state file stands over files that are not whole";
      return;
    }
    Tree parts;  // the files that a resumed run reads
    for (const auto& [name, content] : state)
      if (name.starts_with("out/.parts/0")) parts.emplace(name, content);
    if (!seen_parts_.insert(hash(parts)).second) return;
    fs::remove_all(file("cut"));
    write_tree(parts, file("cut"));
    const DataRoot root(file("cut/out"));
    for (const auto& shard : root.list_started_shards()) {
      if (!Journal::has_entries(root.part_folder(shard))) continue;
      EXPECT_NO_THROW(verify_part(Journal(root.part_folder(shard))));
    }
  }

  void check_recovery(const Tree& state, const Tree& expected, const std::string& line) {
    fs::remove_all(file("disk"));
    write_tree(state, file("disk"));
    const auto outcome = run_program(line);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    std::map<std::string, std::string> files;
    for (const auto& [name, content] : expected)
      if (!name.ends_with('/')) files[name] = content;
    expect_same("disk/out", files);
  }

  int effort_ = 1;
  std::set<std::uint64_t> seen_parts_;
};

TEST_F(PowerCut, ANewCaptureIsCompleteOrResumable) {
  const auto line = command("disk/out");
  const auto operations = record(line);
  ASSERT_GT(operations.size(), 100u);
  cut_everywhere({}, operations, {read_tree(file("disk/out"))}, line);
}

TEST_F(PowerCut, ACaptureAssembledAheadIsCompleteOrResumable) {
  const auto line = command("disk/out", "--set output.assemble_ahead=true");
  const auto operations = record(line);
  cut_everywhere({}, operations, {read_tree(file("disk/out"))}, line);
}

TEST_F(PowerCut, AnOverwrittenCaptureIsTheOldOneOrResumesToTheNewOne) {
  ASSERT_EQ(capture("disk/out", "--set capture.min_bucket_size=8").status, 0);
  const auto before = read_tree(file("disk"));
  const auto old = read_tree(file("disk/out"));
  const auto line = command("disk/out", "--overwrite");
  const auto operations = record(line);
  cut_everywhere(before, operations, {old, read_tree(file("disk/out"))}, line);
}

}  // namespace
}  // namespace qkscope
