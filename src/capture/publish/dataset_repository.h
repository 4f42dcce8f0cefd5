// Creates dataset repositories on the Hugging Face Hub and commits files to them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "input/hub/client.h"

namespace qkscope {

struct FileToPublish {
  std::string path;  // within the repository
  std::string source;
  std::uint64_t size = 0;
  std::string sha256;
  bool large = false;  // stored by Git LFS; set by fetch_upload_modes()
};

// A branch of a dataset repository. The client and the repository must outlive this object.
struct HubBranch {
  const HubClient& client;
  const Repository& repository;
  std::string branch;

  // URL of an API endpoint of the branch, such as "commit" or "preupload".
  Url api_url(const std::string& endpoint) const;
};

// Creates the repository if it does not exist. Throws a bad-input error if `private_repo` is set
// but the existing repository is public.
void ensure_repository(const HubClient& client, const Repository& repository, bool private_repo);
// Creates the branch from the tip of main if it does not exist.
void ensure_branch(const HubBranch& target);

// Sets FileToPublish::large from the response of the Hub's preupload endpoint.
void fetch_upload_modes(const HubBranch& target, std::vector<FileToPublish>& files);

struct HubCommit {
  std::string message;
  std::string parent;  // expected head of the branch; the Hub refuses the commit otherwise
  std::vector<FileToPublish> files;
  std::map<std::string, std::string> texts;  // content of small files by path
  std::vector<std::string> removed;

  bool empty() const { return files.empty() && texts.empty() && removed.empty(); }
};

// Returns a successful response, or an inconclusive one: the connection was lost, the server
// failed, or the branch has moved (409, 412). After an inconclusive response the caller must read
// the branch to see whether the commit was accepted. Throws on any other error response.
HttpResponse send_commit(const HubBranch& target, const HubCommit& commit);

// Uploads large files via Git LFS, whole or in parts as the server requests, unless the storage
// already has them. An interrupted upload resumes with the missing files.
void upload_large_files(const HubBranch& target, const std::vector<FileToPublish>& files,
                        bool quiet);

}  // namespace qkscope
