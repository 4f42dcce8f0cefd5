// list_branches() of qkscope/hub.h.
#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/translate_exceptions.h"
#include "input/checkpoint/hub_cache.h"
#include "input/hub/remote_tree.h"
#include "qkscope/hub.h"

namespace qkscope {

std::vector<std::string> list_branches(const RepositoryName& repository) {
  return translate_exceptions([&] {
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
