// Creates a store for a test: a temporary folder, or a fresh path in the store named by
// QKSCOPE_TEST_STORE (s3://bucket), so that `./run.sh test-store` runs the same tests against a
// server.
#pragma once

#include <cstdlib>
#include <string>

#include "base/io/output_file.h"
#include "input/checkpoint/hub_cache.h"
#include "input/store/object_store.h"
#include "temporary_folder.h"

namespace qkscope {

class TestStore {
 public:
  TestStore() {
    ::setenv("QKSCOPE_SCRATCH", folder_.file("scratch").c_str(), 1);
    const auto server = environment_variable("QKSCOPE_TEST_STORE");
    text_ =
        server.empty() ? "file://" + folder_.file("store") : server + "/" + make_timestamped_id();
  }

  const std::string& text() const { return text_; }
  StoreUri address() const { return *parse_store_uri(text_); }
  std::string file(const std::string& name) const { return folder_.file(name); }
  std::string written(const std::string& name, const std::string& content) const {
    write_file(file(name), content);
    return file(name);
  }

 private:
  TemporaryFolder folder_;
  std::string text_;
};

}  // namespace qkscope
