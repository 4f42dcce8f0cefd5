// Publishing, as `qkscope publish` does it and as a capture ends.
#pragma once

#include <string>

#include "qkscope/hub.h"

namespace qkscope::cli {

// Prints the address when it is done.
void publish_and_report(const std::string& data_root, const PublishOptions& options);

// At the end of a capture whose configuration names a repository. Without a token it says how to
// publish later; a failure says that the capture itself is whole.
void publish_finished(const std::string& data_root, const PublishOptions& options);

}  // namespace qkscope::cli
