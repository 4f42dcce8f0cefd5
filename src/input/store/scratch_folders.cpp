#include "input/store/scratch_folders.h"

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/io/checksum.h"
#include "input/checkpoint/hub_cache.h"

namespace qkscope {
namespace {

std::string base() {
  if (const auto chosen = environment_variable("QKSCOPE_SCRATCH"); !chosen.empty()) return chosen;
  if (const auto cache = environment_variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/qkscope";
  if (const auto home = environment_variable("HOME"); !home.empty())
    return home + "/.cache/qkscope";
  bad_input(
      "cannot tell where to keep files of an object store: none of QKSCOPE_SCRATCH, XDG_CACHE_HOME "
      "and HOME is set; set QKSCOPE_SCRATCH");
}

// Includes the endpoint, because the same path may exist at several endpoints.
std::string hash_of(const StoreAddress& address) {
  std::string all = address.to_string();
  if (address.scheme == StoreAddress::Scheme::s3)
    all += " " + environment_variable("AWS_ENDPOINT_URL_S3") + " " +
           environment_variable("AWS_ENDPOINT_URL");
  return fmt::format("{:016x}", blake2b_64(all));
}

}  // namespace

std::string run_scratch_folder(const StoreAddress& address, const std::string& run) {
  return fmt::format("{}/runs/{}-{}", base(), hash_of(address), run);
}

std::string fetched_scratch_folder(const StoreAddress& address) {
  return fmt::format("{}/stores/{}", base(), hash_of(address));
}

std::string output_scratch_folder(const StoreAddress& address, const std::string& name) {
  return fmt::format("{}/results/{}-{}", base(), hash_of(address), name);
}

std::string sweep_scratch_folder(const StoreAddress& address) {
  return fmt::format("{}/sweeps/{}/{}", base(), hash_of(address), address.last_name());
}

}  // namespace qkscope
