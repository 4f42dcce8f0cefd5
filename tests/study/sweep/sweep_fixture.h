// Fixture: a sweep over three tiny checkpoints in a temporary folder.
#pragma once

#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "base/io/folder.h"
#include "base/io/json.h"
#include "capture/run/capture_fixture.h"

namespace qkscope {

class SweepFixture : public testing::Test {
 protected:
  void SetUp() override {
    write_documents(file("docs.jsonl"), 40, 30);
    write_sweep();
  }

  std::string file(const std::string& name) const { return folder_.file(name); }

  // Writes sweep.yaml; `more` is inserted after `base`, `runs` replaces the list of runs.
  void write_sweep(const std::string& more = "", const std::string& runs = kRuns) {
    write_text(file("sweep.yaml"),
               fmt::format("name: small\n"
                           "base:\n"
                           "  dataset:\n    path: {}\n    id_column: id\n"
                           "  model:\n    name: {}\n    dtype: float32\n    device_map: cpu\n"
                           "  tokenizer:\n    max_length: 100\n"
                           "  capture:\n    sampler: {{type: uniform, base_rate: 4.0}}\n"
                           "    min_bucket_size: 16\n{}{}",
                           file("docs.jsonl"), tiny_checkpoint(), more, runs));
  }

  std::string command(const std::string& out, const std::string& options = "") const {
    return fmt::format("qkscope sweep {} --out {} --no-figures {}", file("sweep.yaml"), file(out),
                       options);
  }
  Outcome sweep(const std::string& out, const std::string& options = "--quiet") const {
    return run_program(command(out, options));
  }

  // Starts the sweep and kills it with SIGKILL as soon as `reached` returns true. Returns false if
  // the sweep ended before.
  bool kill_sweep_when(const std::string& out, const std::function<bool()>& reached) const {
    const pid_t child = start_program(command(out, "--quiet"), file("err"));
    while (!reached()) {
      if (::waitpid(child, nullptr, WNOHANG) == child) return reached();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::kill(child, SIGKILL);
    wait_for_program(child);
    return true;
  }

  Json runs_of(const std::string& out) const {
    return load_json(file(out) + "/small/runs.json").at("runs");
  }
  std::string state_of(const std::string& out, std::size_t run) const {
    return runs_of(out).at(run).at("state");
  }

  // Content of every file of the sweep, except files with times or paths.
  std::map<std::string, std::string> contents(const std::string& out) const {
    namespace fs = std::filesystem;
    std::map<std::string, std::string> all;
    const fs::path root = file(out) + "/small";
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const auto name = fs::relative(entry.path(), root).string();
      if (!entry.is_regular_file() || name.ends_with("summary.json") ||
          name.ends_with("timings.json") || name.ends_with(".analyze.lock") ||
          name.starts_with(".locks"))
        continue;
      all[name] = std::string(MappedFile(entry.path().string()).text());
    }
    return all;
  }

  void expect_same(const std::string& out, const std::map<std::string, std::string>& expected) {
    const auto found = contents(out);
    for (const auto& [name, content] : found)
      EXPECT_TRUE(expected.contains(name)) << out << "/" << name << " should not be there";
    for (const auto& [name, content] : expected) {
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_TRUE(found.at(name) == content) << out << "/" << name << " differs";
    }
  }

  static constexpr char kRuns[] =
      "runs:\n"
      "  - {label: first, phase: short}\n"
      "  - {label: second, phase: short, overrides: {dataset.max_samples: 30}}\n"
      "  - label: third\n    phase: \"long, at last\"\n"
      "    overrides:\n      tokenizer: {max_length: 80}\n      capture: {min_bucket_size: 20}\n";

  TemporaryFolder folder_;
};

}  // namespace qkscope
