// Replaces viewer_server.cpp in builds without cpp-httplib: starting the server is an error.
#include "analysis/viewer/viewer_session.h"
#include "base/core/error.h"

namespace qkscope {

std::unique_ptr<ViewerServer> start_viewer_server(ViewerSession&, const ViewerServerOptions&) {
  reject(
      "viewer: this program was built without cpp-httplib and cannot serve the page; install "
      "libcpp-httplib-dev and build again, or write the page to a file with --export");
}

}  // namespace qkscope
