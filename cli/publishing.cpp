#include "cli/publishing.h"

#include <fmt/format.h>

#include "cli/error.h"
#include "qkscope/experimental/store.h"

namespace qkscope::cli {

void publish_and_report(const std::string& data_root, const PublishOptions& options) {
  const auto result = publish_capture(fetch_stored(data_root, options.quiet), options);
  if (options.quiet) return;
  if (result.sent == 0 && result.removed == 0)
    fmt::print("{}: is this capture already; nothing to do\n", result.address);
  else
    fmt::print("{}: {} files sent, {} unchanged, {} removed\n", result.address, result.sent,
               result.unchanged, result.removed);
}

void publish_finished(const std::string& data_root, const PublishOptions& options) {
  if (!can_publish()) {
    if (!options.quiet)
      fmt::print(
          "not published to {}: there is no token, or HF_HUB_OFFLINE is set; set HF_TOKEN and run "
          "'qkscope hub publish {}'\n",
          options.repo, data_root);
    return;
  }
  try {
    publish_and_report(data_root, options);
  } catch (const Error& error) {
    throw Error(
        error.kind(),
        fmt::format("the capture is whole in {} but not published: {}; 'qkscope hub publish {}' "
                    "tries again, --no-publish leaves it out",
                    data_root, error.what(), data_root));
  }
}

}  // namespace qkscope::cli
