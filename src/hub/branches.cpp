// list_branches() of qkscope/hub.h.
#include "checkpoint/hub_cache.h"
#include "core/edge.h"
#include "core/error.h"
#include "core/text.h"
#include "hub/remote_tree.h"
#include "qkscope/hub.h"

namespace qkscope {

std::vector<std::string> list_branches(const RepositoryName& repository, Version headers) {
  return at_edge([&] {
    check_version(headers);
    if (!is_repository_id(repository.id))
      bad_input("{}: not the name of a repository, which is 'org/name'", in_quotes(repository.id));
    const HubClient client(hub_settings());
    if (client.settings().offline)
      bad_input("HF_HUB_OFFLINE is set: the Hub cannot be asked for the branches of {}",
                repository.id);
    return fetch_branches(client, Repository{repository});
  });
}

}  // namespace qkscope
