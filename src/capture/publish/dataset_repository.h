// A dataset repository of the Hub, for writing.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "input/hub/remote_tree.h"

namespace qkscope {

// A file to be sent to the Hub.
struct LocalFile {
  std::string path;  // within the repository
  std::string source;
  std::uint64_t size = 0;
  std::string sha256;
  bool large = false;  // goes to the large-file storage; the Hub decides
};

// Creates the repository where it does not exist. One that is public while `private_repo` is asked
// for is bad input.
void ensure_repository(const HubClient& client, const Repository& repository, bool private_repo);
// Creates the branch from the head of main, where it does not exist.
void ensure_branch(const HubClient& client, const Repository& repository,
                   const std::string& branch);

// Asks the Hub which files are large.
void choose_storage(const HubClient& client, const Repository& repository,
                    const std::string& branch, std::vector<LocalFile>& files);

struct Commit {
  std::string message;
  std::string parent;  // the head it must follow
  std::vector<LocalFile> files;
  std::map<std::string, std::string> texts;  // path → content, small
  std::vector<std::string> removed;

  bool empty() const { return files.empty() && texts.empty() && removed.empty(); }
};

// The answer is a success, or one that leaves open whether the commit was taken: the
// connection broke, the Hub is in trouble, or the branch has moved on (409, 412). Look at the
// branch then. Anything else is explained to the user.
HttpResponse send_commit(const HubClient& client, const Repository& repository,
                         const std::string& branch, const Commit& commit);

}  // namespace qkscope
