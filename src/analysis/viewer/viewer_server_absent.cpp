// Stands for viewer_server.cpp in builds without cpp-httplib.
#include "analysis/viewer/viewer_server.h"
#include "base/core/error.h"

namespace qkscope {

struct ViewerServer::State {
  std::string url;
};

ViewerServer::ViewerServer(ViewerSession&, const ViewerServerOptions&) {
  bad_input(
      "viewer: this program was built without cpp-httplib and cannot serve the page; install "
      "libcpp-httplib-dev and build again, or write the page to a file with --export");
}

ViewerServer::~ViewerServer() = default;

const std::string& ViewerServer::url() const {
  return state_->url;
}

}  // namespace qkscope
