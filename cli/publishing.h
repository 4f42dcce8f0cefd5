// Publishes captures on the Hugging Face Hub, for `qkscope hub publish` and at the end of `qkscope
// capture`.
#pragma once

#include <string>

#include "qkscope/hub.h"

namespace qkscope::cli {

// Uploads the capture and prints its address.
void publish_and_report(const std::string& data_root, const PublishOptions& options);

// Publishes a capture whose configuration names a repository. Without a token, prints how to
// publish later. If the upload fails, the error message says that the capture itself is complete.
void publish_finished(const std::string& data_root, const PublishOptions& options);

}  // namespace qkscope::cli
