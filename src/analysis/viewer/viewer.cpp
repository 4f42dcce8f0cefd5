#include "qkscope/experimental/viewer.h"

#include <utility>

#include "analysis/viewer/viewer_session.h"
#include "base/core/error.h"
#include "base/io/output_file.h"

namespace qkscope {

struct Viewer::State {
  explicit State(ViewerOptions options) : session(std::move(options)) {}

  ViewerSession session;
  std::unique_ptr<ViewerServer> server;  // ends before the session
};

Viewer::Viewer(ViewerOptions options)
    : state_(translate_exceptions([&] { return std::make_unique<State>(std::move(options)); })) {}
Viewer::~Viewer() = default;
Viewer::Viewer(Viewer&&) noexcept = default;
Viewer& Viewer::operator=(Viewer&&) noexcept = default;

void Viewer::add_run(const std::string& name, std::shared_ptr<const Model> model) {
  translate_exceptions([&] { state_->session.add_run(name, std::move(model)); });
}

std::string Viewer::serve(const ViewerServerOptions& options) {
  return translate_exceptions([&] {
    state_->server.reset();  // frees its port
    state_->server = start_viewer_server(state_->session, options);
    return state_->server->url;
  });
}

void Viewer::stop() {
  translate_exceptions([&] { state_->server.reset(); });
}

std::string Viewer::export_page(const ViewerExportOptions& options) {
  return translate_exceptions([&] { return export_viewer_page(state_->session, options); });
}

std::uint64_t Viewer::write_page(const std::string& path, const ViewerExportOptions& options) {
  return translate_exceptions([&] {
    const auto page = export_viewer_page(state_->session, options);
    write_file(path, page);
    return std::uint64_t{page.size()};
  });
}

}  // namespace qkscope
