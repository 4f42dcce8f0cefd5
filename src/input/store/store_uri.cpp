#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/checksum.h"
#include "input/checkpoint/hub_cache.h"
#include "input/store/object_store.h"

namespace qkscope {
namespace {

constexpr char kExpected[] =
    "expected s3://bucket/path, gs://bucket/path, file:///path or a local path";

std::string url_scheme_of(const std::string& text) {
  const auto end = text.find("://");
  if (end == std::string::npos || end == 0) return "";
  auto scheme = text.substr(0, end);
  const bool valid = std::ranges::all_of(scheme, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
  });
  return valid ? scheme : "";
}

std::string trim_slashes(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  const auto begin = text.find_first_not_of('/');
  return begin == std::string::npos ? "" : text.substr(begin);
}

// Rejects "." and "..", which are ordinary names in some stores and path traversal in others.
void check_path_components(const std::string& path, const std::string& text) {
  for (const auto& step : split(path, '/'))
    if (step.empty() || step == "." || step == "..")
      reject("{}: '{}' is no name in the path of an address; {}", text, step, kExpected);
}

std::string scratch_root() {
  if (auto chosen = environment_variable("QKSCOPE_SCRATCH"); !chosen.empty()) return chosen;
  if (const auto cache = environment_variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/qkscope";
  if (const auto home = environment_variable("HOME"); !home.empty())
    return home + "/.cache/qkscope";
  reject(
      "cannot tell where to keep files of an object store: none of QKSCOPE_SCRATCH, XDG_CACHE_HOME "
      "and HOME is set; set QKSCOPE_SCRATCH");
}

// The hash includes the endpoint, because the same path may exist at several endpoints.
std::string hash_store_uri(const StoreUri& address) {
  std::string all = address.to_string();
  if (address.scheme == StoreUri::UriScheme::s3)
    all += " " + environment_variable("AWS_ENDPOINT_URL_S3") + " " +
           environment_variable("AWS_ENDPOINT_URL");
  return fmt::format("{:016x}", blake2b_64(all));
}

}  // namespace

std::string StoreUri::to_string() const {
  if (scheme == UriScheme::file) return "file:///" + path;
  const std::string start = scheme == UriScheme::s3 ? "s3://" : "gs://";
  return start + bucket + (path.empty() ? "" : "/" + path);
}

StoreUri StoreUri::child(const std::string& name) const {
  auto inner = *this;
  inner.path += (path.empty() ? "" : "/") + name;
  return inner;
}

std::string StoreUri::arrow_path() const {
  if (scheme == UriScheme::file) return "/" + path;
  return path.empty() ? bucket : bucket + "/" + path;
}

std::optional<StoreUri> parse_store_uri(const std::string& text) {
  const auto scheme = url_scheme_of(text);
  if (scheme.empty()) return {};
  const auto rest = text.substr(scheme.size() + 3);
  StoreUri address;
  if (scheme == "file") {
    if (!rest.starts_with('/'))
      reject("{}: names a host; files are on this machine: file:///path", text);
    address.path = trim_slashes(rest);
    if (address.path.empty()) reject("{}: has no path; {}", text, kExpected);
    check_path_components(address.path, text);
    return address;
  }
  if (scheme != "s3" && scheme != "gs")
    reject("{}: unknown scheme '{}'; {}", text, scheme, kExpected);
  address.scheme = scheme == "s3" ? StoreUri::UriScheme::s3 : StoreUri::UriScheme::gs;
  const auto slash = rest.find('/');
  address.bucket = rest.substr(0, slash);
  if (address.bucket.empty() || address.bucket.find_first_of("@:?#") != std::string::npos)
    reject("{}: '{}' is no bucket; {}", text, address.bucket, kExpected);
  if (slash != std::string::npos) address.path = trim_slashes(rest.substr(slash));
  if (!address.path.empty()) check_path_components(address.path, text);
  return address;
}

std::string scratch_folder_for_run(const StoreUri& address, const std::string& run) {
  return fmt::format("{}/runs/{}-{}", scratch_root(), hash_store_uri(address), run);
}

std::string scratch_folder_for_downloads(const StoreUri& address) {
  return fmt::format("{}/stores/{}", scratch_root(), hash_store_uri(address));
}

std::string scratch_folder_for_output(const StoreUri& address, const std::string& name) {
  return fmt::format("{}/results/{}-{}", scratch_root(), hash_store_uri(address), name);
}

std::string scratch_folder_for_sweep(const StoreUri& address) {
  return fmt::format("{}/sweeps/{}/{}", scratch_root(), hash_store_uri(address),
                     address.last_path_component());
}

}  // namespace qkscope
