#include "capture/format/parts.h"

#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/core/error.h"

namespace qkscope {
namespace {

[[noreturn]] void refuse_missing(const std::string& data_root, std::vector<std::string> missing) {
  constexpr std::size_t kShown = 12;
  if (missing.size() > kShown) {
    const auto more = missing.size() - kShown;
    missing.resize(kShown);
    missing.push_back(fmt::format("and {} more", more));
  }
  bad_input("{}: shards are missing: {}; run them with --shard first", data_root,
            fmt::join(missing, ", "));
}

// Parts are checked when they begin; this finds those that were copied here.
void check_one_run(const DataRoot& root, const Journal& first, const Journal& part) {
  const auto difference = manifest_difference(first.manifest(), part.manifest());
  if (!difference.empty())
    bad_input("{}: {} and {} are not parts of one run: {}", root.path(), first.folder(),
              part.folder(), difference);
}

}  // namespace

void expect_parts(const DataRoot& root, const PartsKind& kind) {
  if (root.shards().empty())
    bad_input("{}: there are no parts of {}; run 'qkscope {} --shard i/n' first", root.path(),
              kind.name, kind.command);
}

std::vector<Journal> complete_parts(const DataRoot& root, const PartsKind& kind) {
  expect_parts(root, kind);
  const auto count = root.shards().front().count;
  std::vector<Journal> parts;
  std::vector<std::string> missing;
  for (std::int64_t index = 0; index < count; ++index) {
    const Shard shard{index, count};
    if (!Journal::exists(root.part(shard))) {
      missing.push_back(fmt::format("{}/{} (not started)", index, count));
      continue;
    }
    Journal part(root.part(shard));
    if (!part.complete())
      missing.push_back(
          fmt::format("{}/{} (unfinished, {} {})", index, count, part.examples(), kind.unit));
    if (!parts.empty() && missing.empty()) {
      check_one_run(root, parts.front(), part);
      part.share_manifest(parts.front());
    }
    parts.push_back(std::move(part));
  }
  if (!missing.empty()) refuse_missing(root.path(), std::move(missing));
  return parts;
}

}  // namespace qkscope
