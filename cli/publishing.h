// Publishing a capture on the Hugging Face Hub: `qkscope hub publish`, and the end of a capture.
#pragma once

#include <string>

#include "qkscope/hub.h"

namespace qkscope::cli {

// Uploads the capture and prints its address.
void publish_and_report(const std::string& data_root, const PublishOptions& options);

// Publishes a capture whose configuration names a repository. Without a token, prints how to
// publish later. The message of a failure says that the capture itself is complete.
void publish_finished(const std::string& data_root, const PublishOptions& options);

}  // namespace qkscope::cli
