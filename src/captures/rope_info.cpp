#include "captures/rope_info.h"

#include <algorithm>
#include <cmath>

#include "captures/metadata_keys.h"
#include "core/error.h"
#include "io/json.h"

namespace qkscope {
namespace {

std::vector<double> listed_frequencies(const std::string& text, const std::string& where) {
  const Json list = parse_json(text, where + " (" + metadata::kRopeInvFreq + ")");
  if (!list.is_array()) bad_input("{}: '{}' is not a list", where, metadata::kRopeInvFreq);
  std::vector<double> frequencies;
  for (const auto& item : list) {
    if (!item.is_number() || !(item.get<double>() > 0))
      bad_input("{}: '{}' holds {}; expected positive numbers", where, metadata::kRopeInvFreq,
                item.dump());
    frequencies.push_back(item.get<double>());
  }
  return frequencies;
}

}  // namespace

std::string to_string(RopeUse use) {
  switch (use) {
    case RopeUse::rope:
      return "rope";
    case RopeUse::nope:
      return "nope";
    case RopeUse::unknown:
      break;
  }
  return "unknown";
}

std::vector<double> plain_inv_freq(double theta, int dim) {
  std::vector<double> frequencies;
  for (int i = 0; i < dim / 2; ++i) frequencies.push_back(std::pow(theta, -2.0 * i / dim));
  return frequencies;
}

RopeInfo rope_info(const Metadata& metadata, const std::string& where) {
  RopeInfo info;
  const auto rope = metadata.find(metadata::kRope);
  if (rope == metadata.end()) return info;
  if (rope->second == metadata::kRopeNone) {
    info.use = RopeUse::nope;
    return info;
  }
  info.use = RopeUse::rope;
  const Json description = parse_json(rope->second, where + " (" + metadata::kRope + ")");
  if (const auto listed = metadata.find(metadata::kRopeInvFreq); listed != metadata.end()) {
    info.inv_freq = listed_frequencies(listed->second, where);
  } else if (description.is_object() && description.contains("theta") &&
             description.contains("dim") && description["theta"].is_number() &&
             description["dim"].is_number_integer()) {
    info.inv_freq =
        plain_inv_freq(description["theta"].get<double>(), description["dim"].get<int>());
  }
  std::sort(info.inv_freq.begin(), info.inv_freq.end(), std::greater<>());
  return info;
}

}  // namespace qkscope
