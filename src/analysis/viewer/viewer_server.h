// HTTP server of the viewer.
#pragma once

#include <memory>
#include <string>

#include "analysis/viewer/viewer_session.h"

namespace qkscope {

// Serves the page and the session's data while the object exists. Requests run on a few threads and
// wait for each other, because a session answers one at a time.
class ViewerServer {
 public:
  // `session` must outlive the server. Throws a bad-input error if the address cannot be used, or
  // if the library was built without cpp-httplib.
  ViewerServer(ViewerSession& session, const ViewerServerOptions& options);
  ~ViewerServer();

  const std::string& url() const;  // with the random token

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
