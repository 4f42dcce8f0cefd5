#include "base/core/cpu_target.h"

#include <cstdint>
#include <cstdlib>
#include <mutex>

#include <fmt/ranges.h>
#include <hwy/highway.h>

#include "base/core/error.h"
#include "base/core/log.h"

namespace qkscope {
namespace {

std::atomic<std::int64_t> in_use{0};  // a target bit of Highway

const char* name_of(std::int64_t target) {
  switch (target) {
    case HWY_AVX3:
      return "avx512";
    case HWY_AVX2:
      return "avx2";
    case HWY_SSE4:
      return "sse4";
    case HWY_NEON:
      return "neon";
    default:
      return hwy::TargetName(target);
  }
}

// Returns Highway's target bits that both the build and the CPU support; lower bits are better.
// Highway is queried once because the query also resets the chosen target.
std::vector<std::int64_t> available() {
  static const std::int64_t supported = HWY_SUPPORTED_TARGETS & HWY_TARGETS;
  std::vector<std::int64_t> targets;
  for (auto left = supported; left != 0; left &= left - 1) targets.push_back(left & -left);
  if (targets.empty())
    failure("this CPU lacks what the kernels need at least ({}): qkscope cannot compute on it",
            name_of(HWY_STATIC_TARGET));
  return targets;
}

void take(std::int64_t target) {
  hwy::GetChosenTarget().Update(target);
  in_use = target;
  detail::cpu_target_is_chosen.store(true, std::memory_order_release);
}

// Throws bad input that begins with `asked_by` if there is no such target.
std::int64_t find(std::string_view name, std::string_view asked_by) {
  for (const auto target : available())
    if (name == name_of(target)) return target;
  bad_input("{}: '{}' is not a target of this build and machine; expected one of: {}", asked_by,
            name, fmt::join(cpu_targets(), ", "));
}

}  // namespace

std::atomic<bool> detail::cpu_target_is_chosen{false};

std::vector<std::string> cpu_targets() {
  return translate_exceptions([] {
    std::vector<std::string> names;
    for (const auto target : available()) names.emplace_back(name_of(target));
    return names;
  });
}

std::string cpu_target() {
  return translate_exceptions([] {
    ensure_cpu_target();
    return std::string(name_of(in_use));
  });
}

void choose_cpu_target() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (detail::cpu_target_is_chosen) return;
  const char* asked = std::getenv("QKSCOPE_CPU");
  const bool forced = asked != nullptr && *asked != '\0';
  take(forced ? find(asked, "QKSCOPE_CPU") : available().front());
  log::debug("CPU target {} (of {})", name_of(in_use), fmt::join(cpu_targets(), ", "));
  if (!has_fused_multiply_add(name_of(in_use)))
    log::warn(
        "{} ({}): results differ in the last bits from those of machines with fused multiply-adds",
        forced ? "QKSCOPE_CPU asks for a target without fused multiply-adds"
               : "this CPU has no fused multiply-add",
        name_of(in_use));
}

void use_cpu_target(std::string_view name) {
  take(find(name, "use_cpu_target"));
}

bool has_fused_multiply_add(std::string_view name) {
  return name == "avx512" || name == "avx2" || name == "neon";
}

}  // namespace qkscope
