// A capture by the name a user gives it: a folder, or REPO@BRANCH of a dataset on the Hugging Face
// Hub or an address of an object store, whose head files are fetched when they are asked for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "input/store/stored_folder.h"
#include "qkscope/captures.h"
#include "qkscope/hub.h"

namespace qkscope {

// "org/name@branch", or "org/name@branch:folder" where a branch holds several captures.
struct HubCapture {
  std::string repo;
  std::string branch;
  std::string folder;
};

// Nothing for a local folder, which wins over a name on the Hub. What is neither is bad input.
std::optional<HubCapture> parse_hub_capture(const std::string& name);

class CaptureSource {
 public:
  // Of a capture elsewhere only the listing and the state file are fetched.
  explicit CaptureSource(const std::string& name, const FetchOptions& options = {});

  const CaptureIndex& index() const { return index_; }

  // Afterwards the files of these heads are below index().data_root. Those that the capture does
  // not have are passed over.
  void fetch(const std::vector<HeadId>& heads) const;

  // What to call it where it does not say itself: the last folder, or the branch.
  const std::string& short_name() const { return short_name_; }

 private:
  void open_remote(const HubCapture& remote);
  void open_stored(const StoreAddress& address);

  FetchOptions options_;
  std::optional<HubCapture> remote_;
  std::shared_ptr<const StoredFolder> stored_;
  std::string commit_;   // of the branch, when the listing was fetched
  bool listed_ = false;  // whether the index is the Hub's listing, not what the cache holds
  std::string prefix_;   // of the head folders in the repository: "" or "folder/"
  CaptureIndex index_;
  std::string short_name_;
};

// Changes when the capture does; "" for one on the Hub that the cache does not know yet. In an
// object store it is a hash of the state too. Of a
// finished capture, and of statistics, it is a hash of its state, on the Hub its commit, else a
// hash of the names, sizes and ends (where Parquet keeps its statistics) of all head files.
std::string capture_hash(const std::string& name);

}  // namespace qkscope
