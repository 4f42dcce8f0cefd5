// Opens a capture by its user-visible name: a folder, REPO@BRANCH of a dataset on the Hugging Face
// Hub, or the address of an object store. Remote head files are downloaded on demand.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "input/store/stored_folder.h"
#include "qkscope/captures.h"
#include "qkscope/hub.h"

namespace qkscope {

// Name of a capture on the Hub: "org/name@branch", with ":folder" if the branch holds several.
struct HubCaptureName {
  std::string repo;
  std::string branch;
  std::string folder;
};

// Returns nullopt for an existing local path, which takes precedence over a Hub name. Throws a
// bad-input error for a malformed name.
std::optional<HubCaptureName> parse_hub_capture_name(const std::string& name);

class CaptureSource {
 public:
  // For a remote capture, downloads only the list of its files and the state file.
  explicit CaptureSource(const std::string& name, const FetchOptions& options = {},
                         bool allow_partial = false);

  const CaptureIndex& capture_index() const { return index_; }

  // Downloads the files of these heads to capture_index().data_root. Ignores missing heads.
  void fetch_heads(const std::vector<HeadId>& heads) const;

  // Display name of a capture that does not name its model: the last folder or the branch.
  const std::string& display_name() const { return name_; }

 private:
  void open_hub_capture(const HubCaptureName& remote);
  void open_stored_capture(const StoreUri& address);

  FetchOptions options_;
  bool allow_partial_ = false;
  std::optional<HubCaptureName> remote_;
  std::shared_ptr<const StoredFolder> stored_;
  std::string commit_;   // head of the branch when the listing was downloaded
  bool listed_ = false;  // the index comes from the Hub's listing, not from cached files
  std::string prefix_;   // path of the head folders in the repository: "" or "folder/"
  CaptureIndex index_;
  std::string name_;
};

// Returns a hash that changes with the capture: for a finished capture or statistics, in a folder
// or an object store, the hash of the state file; for a capture on the Hub, its commit, or "" when
// not cached; otherwise a hash of the names, sizes and Parquet footers of all head files.
std::string fingerprint_capture(const std::string& name);

// Reads the example id of every row in the file of one head, without reading the vectors.
std::vector<std::int64_t> read_head_example_ids(const std::string& path);

// ---- Index of heads, the same for folders, the Hub and object stores ----

// Maps each folder below the root ("" for the root itself) to the heads whose files it contains.
using HeadsByFolder = std::map<std::string, std::vector<HeadId>>;

// Returns "" if the root contains heads, else the name of the only subfolder that does. Throws a
// bad-input error if no subfolder or several subfolders contain heads; the message shows a
// subfolder as `where` + `separator` + name.
std::string require_single_head_folder(const HeadsByFolder& heads, const std::string& where,
                                       const std::string& separator);

// Builds the index of a capture from its head folders and from _saver_state.json of the folder, or
// of the root if the folder has none. Throws a bad-input error for a capture that is not whole,
// unless `allow_partial`; sizes of files that are not downloaded yet are not compared.
CaptureIndex make_capture_index(const std::string& root, const std::string& folder,
                                std::vector<HeadId> heads, const std::string& where,
                                bool allow_partial);

// Throws a bad-input error if the metadata of a head file names a different head or run than its
// folder and the state file. Files written by other programs have no such metadata.
void check_head_metadata(const CaptureIndex& index, const HeadId& id, const Metadata& metadata);

HeadFile read_capture_head(const CaptureIndex& index, const HeadId& id);

// Throws a bad-input error that explains valid capture names.
[[noreturn]] void throw_no_such_capture(const std::string& name);

}  // namespace qkscope
