#include "capture/stats_run/setting_names.h"

#include <charconv>

namespace qkscope {
namespace {

std::optional<std::int64_t> number_from(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return {};
  return number;
}

}  // namespace

std::optional<VectorKind> kind_from_name(std::string_view name) {
  for (const auto kind : {VectorKind::query, VectorKind::key, VectorKind::value})
    if (kind_name(kind) == name) return kind;
  return {};
}

std::optional<VectorStage> stage_from_name(std::string_view name) {
  for (const auto stage : {VectorStage::pre, VectorStage::post})
    if (stage_name(stage) == name) return stage;
  return {};
}

std::optional<KeyReplacement> replacement_from_name(const std::string& name) {
  using Scheme = KeyReplacement::Scheme;
  using Scale = KeyReplacement::Scale;
  KeyReplacement replacement;
  replacement.name = name;
  const auto cut = name.find('_');
  const auto scheme = name.substr(0, cut);
  if (scheme == "fp8")
    replacement.scheme = Scheme::fp8;
  else if (scheme == "int8")
    replacement.scheme = Scheme::int8;
  else if (scheme == "int4")
    replacement.scheme = Scheme::int4;
  else
    return {};
  if (cut == std::string::npos) return scheme == "fp8" ? std::optional(replacement) : std::nullopt;
  const auto scale = name.substr(cut + 1);
  if (scale == "head") {
    replacement.scale = Scale::head;
  } else if (scale == "exported" && scheme == "fp8") {
    replacement.scale = Scale::exported;
  } else if (scale == "channel") {
    replacement.scale = Scale::channel;
  } else if (scale == "token") {
    replacement.scale = Scale::token;
  } else if (scale.starts_with("group_")) {
    const auto group = number_from(std::string_view(scale).substr(6));
    if (!group || *group < 1) return {};
    replacement.scale = Scale::group;
    replacement.group = *group;
  } else {
    return {};
  }
  return replacement;
}

std::optional<KeptKeys> kept_from_name(const std::string& name) {
  KeptKeys kept;
  kept.name = name;
  const std::string_view text = name;
  using Rule = KeptKeys::Rule;
  for (const auto& [word, rule] :
       {std::pair{"short_", Rule::short_keys}, std::pair{"qfilter_", Rule::filtered_keys}}) {
    if (!text.starts_with(word)) continue;
    const auto percent = number_from(text.substr(std::string_view(word).size()));
    if (!percent || *percent < 1 || *percent > 100) return {};
    kept.rule = rule;
    kept.share = static_cast<double>(*percent) / 100.0;
    return kept;
  }
  const auto last = text.find("_last_");
  if (!text.starts_with("first_") || last == std::string_view::npos || last < 6) return {};
  const auto first_keys = number_from(text.substr(6, last - 6));
  const auto last_keys = number_from(text.substr(last + 6));
  if (!first_keys || !last_keys || *last_keys < 1) return {};
  kept.first = *first_keys;
  kept.last = *last_keys;
  return kept;
}

}  // namespace qkscope
