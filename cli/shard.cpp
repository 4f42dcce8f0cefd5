#include "cli/shard.h"

#include "cli/error.h"
#include "qkscope/text.h"

namespace qkscope::cli {

std::pair<std::int64_t, std::int64_t> parse_shard(const std::string& text) {
  const auto slash = text.find('/');
  if (slash == std::string::npos) bad_input("--shard {}: expected i/n, for example 0/4", text);
  const std::int64_t index = parse_integer(text.substr(0, slash), "--shard");
  const std::int64_t count = parse_integer(text.substr(slash + 1), "--shard");
  if (index < 0 || count < 1 || index >= count) {
    bad_input("--shard {}: i must be from 0 to n - 1", text);
  }
  return {index, count};
}

}  // namespace qkscope::cli
