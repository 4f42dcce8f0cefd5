// The viewer's page as one HTML file.
#pragma once

#include <string>

#include "analysis/viewer/viewer_session.h"

namespace qkscope {

std::string export_viewer_page(ViewerSession& session, const ViewerExportOptions& options);

}  // namespace qkscope
