// The page of the viewer: files of page/ and of the report's page, embedded by CMake.
#pragma once

namespace qkscope::embedded {

extern const char viewer_html[];         // page of the server, which loads script and style
extern const char viewer_export_html[];  // page with {{style}}, {{body}}, {{data}} and {{script}}
extern const char viewer_body[];         // {{body}} of both pages
extern const char viewer_css[];
extern const char viewer_script[];

}  // namespace qkscope::embedded
