// Implements demo_sweep() and the class Sweep, except Sweep::plan() and Sweep::run().
#include "study/sweep/sweep.h"

#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/data_folder.h"
#include "base/io/folder.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// Returns a relative path for a file below the working folder, as a user would type it.
std::string as_typed(const fs::path& path) {
  std::error_code ignored;
  const auto relative = fs::relative(path, ignored);
  const bool below = !relative.empty() && *relative.begin() != "..";
  return below ? relative.string() : path.lexically_normal().string();
}

// An installation has configs/ inside the data folder, the source tree beside it.
fs::path demo_file(const fs::path& data) {
  constexpr auto kFile = "configs/demo/sweep.yaml";
  const auto inside = data / kFile;
  return path_exists(inside.string()) ? inside : data.parent_path() / kFile;
}

}  // namespace

Sweep Sweep::read(const SweepSource& source, const std::string& results) {
  return translate_exceptions([&] {
    // The branches recorded at the start of the sweep, so that later branches do not change it.
    auto config =
        read_sweep_config(source, [&](const std::string& name, const std::string& repository) {
          const auto folder = SweepFolder::open(results, name);
          folder.download_sweep_files();
          const auto recorded = folder.recorded_branches(repository);
          return recorded ? *recorded : list_hub_branches(name, repository);
        });
    auto folder = SweepFolder::open(results, config.name);
    return Sweep(std::make_unique<const State>(State{std::move(config), std::move(folder)}));
  });
}

Sweep::Sweep(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Sweep::~Sweep() = default;
Sweep::Sweep(Sweep&&) noexcept = default;
Sweep& Sweep::operator=(Sweep&&) noexcept = default;

const std::string& Sweep::name() const {
  return state_->config.name;
}

const std::string& Sweep::folder() const {
  return state_->folder.path();
}

const std::string& Sweep::place() const {
  return state_->folder.location();
}

const SlurmOptions& Sweep::slurm() const {
  return state_->config.slurm;
}

std::vector<RunEntry> Sweep::runs() const {
  return translate_exceptions([&] { return state_->folder.run_entries(state_->config); });
}

bool Sweep::put_figures(bool quiet) const {
  return translate_exceptions([&] {
    const auto& folder = state_->folder;
    {
      const auto lock = folder.lock_tables();
      if (folder.upload_sweep_files(state_->config, quiet)) return true;
    }
    write_combined_tables(folder, state_->config, quiet);
    return false;
  });
}

std::vector<OverviewRow> Sweep::overview() const {
  return translate_exceptions([&] { return make_overview_rows(state_->folder, runs()); });
}

SweepPart parse_sweep_part(std::string_view name, std::string_view what) {
  if (name.empty()) return SweepPart::all;
  if (name == "capture") return SweepPart::capture;
  if (name == "merge") return SweepPart::merge;
  if (name == "analyse") return SweepPart::analyse;
  if (name == "tables") return SweepPart::tables;
  bad_input("{}: found {}, expected capture, merge, analyse or tables", what, in_quotes(name));
}

std::vector<const SweepRun*> select_runs(const SweepConfig& config, const SweepOptions& options) {
  std::vector<std::string> labels;
  for (const auto& run : config.runs) labels.push_back(run.label);
  for (const auto& label : options.only) {
    if (std::ranges::count(labels, label) > 0) continue;
    const auto near = nearest(label, labels);
    bad_input("--only {}: the sweep {} has no such run; {}", in_quotes(label), config.name,
              near.empty() ? fmt::format("there are {}", fmt::join(labels, ", "))
                           : fmt::format("did you mean {}?", near));
  }
  std::vector<const SweepRun*> chosen;
  std::int64_t index = 0;
  for (const auto& run : config.runs) {
    const bool in_shard = index++ % options.shard.count == options.shard.index;
    if (in_shard && (options.only.empty() || std::ranges::count(options.only, run.label) > 0))
      chosen.push_back(&run);
  }
  return chosen;
}

SweepSource demo_sweep() {
  return translate_exceptions([&]() -> SweepSource {
    std::vector<std::string> looked;
    for (const fs::path folder : data_folders()) {
      const auto data = folder / "demo";
      const auto file = demo_file(folder);
      if (path_exists((data / "corpus.jsonl").string()) && path_exists(file.string()))
        return {.file = as_typed(file), .overrides = {}, .data_folder = as_typed(data)};
      looked.push_back(data.string());
    }
    bad_input(
        "the demo's checkpoints and texts are not there; looked in {}. Set QKSCOPE_DATA to the "
        "folder share/qkscope of an installation",
        fmt::join(looked, " and "));
  });
}

}  // namespace qkscope
