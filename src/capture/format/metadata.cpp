#include "capture/format/metadata.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/json.h"

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

RopeInfo read_rope(const Metadata& metadata, const std::string& where) {
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
    constexpr std::int64_t kWidest = 1 << 16;
    const auto theta = description["theta"].get<double>();
    const auto dim = description["dim"].get<std::int64_t>();
    if (!(theta > 1.0) || theta > 1e15 || dim < 2 || dim > kWidest)
      bad_input("{}: '{}' has theta {} and dim {}; expected theta from 1 to 1e15, dim from 2 to {}",
                where, metadata::kRope, theta, dim, kWidest);
    info.inv_freq = unscaled_inv_freq(theta, static_cast<int>(dim));
  }
  std::sort(info.inv_freq.begin(), info.inv_freq.end(), std::greater<>());
  return info;
}

double positive_number(const std::string& text, const std::string& what) {
  const Json value = parse_json(text, what);
  if (!value.is_number() || !(value.get<double>() > 0))
    bad_input("{}: found {}, expected a number above 0", what, in_quotes(text));
  return value.get<double>();
}

SamplerType sampler_type(const std::string& name, const std::string& what) {
  for (const auto type : {SamplerType::log_uniform, SamplerType::uniform, SamplerType::all})
    if (name == sampler_type_name(type)) return type;
  bad_input("{}: found {}, expected log_uniform, uniform or all", what, in_quotes(name));
}

std::optional<SamplerOptions> read_sampler(const Metadata& metadata, const std::string& where) {
  const auto type = metadata.find(metadata::kSampler);
  const auto rate = metadata.find(metadata::kBaseRate);
  const auto size = metadata.find(metadata::kMinBucketSize);
  if (type == metadata.end() || rate == metadata.end() || size == metadata.end()) return {};
  const auto named = [&](const char* key) { return where + ": " + key; };
  SamplerOptions sampler;
  sampler.type = sampler_type(type->second, named(metadata::kSampler));
  sampler.base_rate = positive_number(rate->second, named(metadata::kBaseRate));
  sampler.min_bucket_size = parse_integer(size->second, named(metadata::kMinBucketSize));
  if (sampler.min_bucket_size < 1)
    bad_input("{}: found {}, expected 1 or more", named(metadata::kMinBucketSize), size->second);
  return sampler;
}

}  // namespace

std::string to_string(RopeUse use) {
  constexpr const char* kNames[] = {"rope", "nope", "unknown"};
  return kNames[static_cast<std::size_t>(use)];
}

std::string attention_name(const std::optional<std::int32_t>& window) {
  return window ? "sliding:" + std::to_string(*window) : "full";
}

std::string short_name(const std::string& name) {
  std::string_view text = name;
  while (text.size() > 1 && text.ends_with('/')) text.remove_suffix(1);
  const bool id = text.find_first_of("./~") != 0 && std::count(text.begin(), text.end(), '/') <= 1;
  return std::string(id ? text : text.substr(text.rfind('/') + 1));
}

std::vector<double> unscaled_inv_freq(double theta, int dim) {
  std::vector<double> frequencies;
  frequencies.reserve(static_cast<std::size_t>(dim) / 2);
  for (int i = 0; i < dim / 2; ++i) frequencies.push_back(std::pow(theta, -2.0 * i / dim));
  return frequencies;
}

RopeInfo rope_info(const Metadata& metadata, const std::string& where) {
  return translate_exceptions([&] { return read_rope(metadata, where); });
}

std::optional<SamplerOptions> sampler_options(const Metadata& metadata, const std::string& where) {
  return translate_exceptions([&] { return read_sampler(metadata, where); });
}

void put_sampler(Metadata& metadata, const SamplerOptions& sampler) {
  metadata[metadata::kSampler] = sampler_type_name(sampler.type);
  metadata[metadata::kBaseRate] = fmt::format("{}", sampler.base_rate);
  metadata[metadata::kMinBucketSize] = std::to_string(sampler.min_bucket_size);
}

}  // namespace qkscope
