#include "cli/shard.h"

#include <cstdlib>
#include <optional>

#include "cli/error.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

using IndexAndCount = std::pair<std::int64_t, std::int64_t>;

// Environment variables by which a scheduler gives a task its index and the number of tasks.
struct Scheduler {
  const char* name;
  const char* index;
  const char* count;
  const char* first;  // index of the first task; null: 0
  const char* step;   // step between task indices; null: 1
};
constexpr Scheduler kOwn = {"qkscope's own variables", "QKSCOPE_SHARD_INDEX", "QKSCOPE_SHARD_COUNT",
                            nullptr, nullptr};
constexpr Scheduler kOthers[] = {
    {"Slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
     "SLURM_ARRAY_TASK_STEP"},
    {"Kubernetes", "JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", nullptr, nullptr}};

std::optional<std::int64_t> variable(const char* name) {
  const char* text = name == nullptr ? nullptr : std::getenv(name);
  if (text == nullptr) return {};
  return parse_integer(text, name);
}

// Returns nullopt if the scheduler set neither variable.
std::optional<IndexAndCount> shard_from(const Scheduler& scheduler) {
  const auto id = variable(scheduler.index);
  const auto count = variable(scheduler.count);
  if (!id && !count) return {};
  if (!id || !count)
    bad_input("--shard auto: {} is set and {} is not; expected both",
              id ? scheduler.index : scheduler.count, id ? scheduler.count : scheduler.index);
  const auto first = variable(scheduler.first).value_or(0);
  const auto step = variable(scheduler.step).value_or(1);
  const bool sane = first >= 0 && step >= 1 && *id >= first && *count >= 1;
  const auto index = sane ? (*id - first) / step : 0;
  if (!sane || (*id - first) % step != 0 || index >= *count)
    bad_input(
        "--shard auto: {}={} with {}={} (the first is {}, steps of {}) is none of {} tasks "
        "without gaps",
        scheduler.index, *id, scheduler.count, *count, first, step, *count);
  return IndexAndCount{index, *count};
}

IndexAndCount shard_of_environment() {
  if (const auto own = shard_from(kOwn)) return *own;
  std::optional<IndexAndCount> found;
  const char* by = nullptr;
  for (const auto& scheduler : kOthers) {
    const auto shard = shard_from(scheduler);
    if (!shard) continue;
    if (found)
      bad_input("--shard auto: both {} and {} say which task this is; set {} and {} to decide", by,
                scheduler.name, kOwn.index, kOwn.count);
    found = shard;
    by = scheduler.name;
  }
  if (!found)
    bad_input(
        "--shard auto: no scheduler says which task this is; expected {} and {}, {} and {}, "
        "or {} and {}",
        kOthers[0].index, kOthers[0].count, kOthers[1].index, kOthers[1].count, kOwn.index,
        kOwn.count);
  return *found;
}

}  // namespace

std::pair<std::int64_t, std::int64_t> parse_shard(const std::string& text) {
  if (text == "auto") return shard_of_environment();
  const auto slash = text.find('/');
  if (slash == std::string::npos)
    bad_input("--shard {}: expected i/n, for example 0/4, or auto", text);
  const std::int64_t index = parse_integer(text.substr(0, slash), "--shard");
  const std::int64_t count = parse_integer(text.substr(slash + 1), "--shard");
  if (index < 0 || count < 1 || index >= count) {
    bad_input("--shard {}: i must be from 0 to n - 1", text);
  }
  return {index, count};
}

}  // namespace qkscope::cli
