#include "base/core/cpu_target.h"

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <utility>

#include <fmt/ranges.h>
#include <hwy/highway.h>

#include "base/core/error.h"
#include "base/core/log.h"

namespace qkscope {
namespace {

std::atomic<std::int64_t> in_use{0};  // bit flag of the selected target; 0: none yet

const char* cpu_target_name(std::int64_t target) {
  constexpr std::pair<std::int64_t, const char*> kNames[] = {
      {HWY_AVX3, "avx512"}, {HWY_AVX2, "avx2"}, {HWY_SSE4, "sse4"}, {HWY_NEON, "neon"}};
  for (const auto& [known, name] : kNames)
    if (known == target) return name;
  return hwy::TargetName(target);
}

// Returns the Highway targets (bit flags, best first) that both the build and the CPU support.
// Highway is queried once, because the query also resets the chosen target.
std::vector<std::int64_t> available_cpu_targets() {
  static const std::int64_t supported = HWY_SUPPORTED_TARGETS & HWY_TARGETS;
  std::vector<std::int64_t> targets;
  for (auto left = supported; left != 0; left &= left - 1) targets.push_back(left & -left);
  if (targets.empty())
    throw_failure(
        "this CPU lacks what the kernels need at least ({}): qkscope cannot compute on it",
        cpu_target_name(HWY_STATIC_TARGET));
  return targets;
}

void use_cpu_target(std::int64_t target) {
  hwy::GetChosenTarget().Update(target);
  in_use = target;
  detail::cpu_target_is_chosen.store(true, std::memory_order_release);
}

// Returns the target with the given name. Throws a bad-input error that starts with `asked_by` if
// the build or the CPU does not support the target.
std::int64_t find_cpu_target(std::string_view name, std::string_view asked_by) {
  for (const auto target : available_cpu_targets())
    if (name == cpu_target_name(target)) return target;
  reject("{}: '{}' is not a target of this build and machine; expected one of: {}", asked_by, name,
         fmt::join(cpu_targets(), ", "));
}

}  // namespace

std::atomic<bool> detail::cpu_target_is_chosen{false};

std::vector<std::string> cpu_targets() {
  return translate_exceptions([] {
    std::vector<std::string> names;
    for (const auto target : available_cpu_targets()) names.emplace_back(cpu_target_name(target));
    return names;
  });
}

std::string cpu_target() {
  return translate_exceptions([] {
    initialize_cpu_target_once();
    return std::string(cpu_target_name(in_use));
  });
}

void initialize_cpu_target() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (detail::cpu_target_is_chosen) return;
  const char* asked = std::getenv("QKSCOPE_CPU");
  const bool forced = asked != nullptr && *asked != '\0';
  use_cpu_target(forced ? find_cpu_target(asked, "QKSCOPE_CPU") : available_cpu_targets().front());
  log::debug("CPU target {} (of {})", cpu_target_name(in_use), fmt::join(cpu_targets(), ", "));
  if (!cpu_target_has_fma(cpu_target_name(in_use)))
    log::warn(
        "{} ({}): results differ in the last bits from those of machines with fused multiply-adds",
        forced ? "QKSCOPE_CPU asks for a target without fused multiply-adds"
               : "this CPU has no fused multiply-add",
        cpu_target_name(in_use));
}

void force_cpu_target(std::string_view name) {
  use_cpu_target(find_cpu_target(name, "force_cpu_target"));
}

bool cpu_target_has_fma(std::string_view name) {
  return name == "avx512" || name == "avx2" || name == "neon";
}

}  // namespace qkscope
