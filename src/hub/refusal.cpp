// What the Hub's refusals mean for the user.
#include "core/error.h"
#include "core/text.h"
#include "hub/client.h"

namespace qkscope {
namespace {

std::string page(const HubClient& client, const Repository& repository) {
  return client.at(repository.page_path()).to_string();
}

// Words of the server, for the end of a sentence.
std::string reason(const HttpResponse& response) {
  auto text = response.header("x-error-message");
  if (text.empty()) {
    const auto json = Json::parse(response.body, nullptr, false);
    if (json.is_object() && json.contains("error") && json["error"].is_string())
      text = json["error"].get<std::string>();
  }
  return text.empty() ? "" : fmt::format(" (it says {})", in_quotes(text));
}

std::string token_advice(const HubClient& client) {
  return client.settings().token.empty()
             ? "no token was sent: set HF_TOKEN, or log in with 'hf auth login'"
             : "the token that was sent (HF_TOKEN or the token file) may be of another user, "
               "expired, or without that permission";
}

}  // namespace

void connection_failed(const HttpResponse& response, const Url& url) {
  failure(
      "{}: {}; is the network there? HF_HUB_OFFLINE=1 works with what the cache holds, and the "
      "same "
      "command continues later",
      url.without_query(), response.fault);
}

void explain_refusal(const HubClient& client, const HttpResponse& response,
                     const Repository& repository, Access access) {
  const auto code = response.header("x-error-code");
  const auto name = fmt::format("{} {}", repository.kind_name(), repository.id);
  if (code == "GatedRepo")
    bad_input(
        "{}: access is gated: accept its conditions at {} and use a token of that account; {}",
        name, page(client, repository), token_advice(client));
  if (code == "RevisionNotFound")
    bad_input("{}: the Hub has no such revision{}", name, reason(response));
  if (response.status == 404 || code == "RepoNotFound")
    bad_input("{}: the Hub at {} has no such {}, or it is private and hidden; check the name; {}",
              name, client.at("").without_query(), repository.kind_name(), token_advice(client));
  if (response.status == 401 || response.status == 403)
    bad_input("{}: the Hub does not allow to {} it{}; {}", name,
              access == Access::read ? "read" : "write to", reason(response), token_advice(client));
  if (response.status == 429)
    failure("{}: the Hub limits our requests{}; wait a while and run the same command", name,
            reason(response));
  if (response.status >= 500)
    failure("{}: the Hub is in trouble (status {}){}; run the same command later", name,
            response.status, reason(response));
  failure("{}: the Hub answers with status {}{}", name, response.status, reason(response));
}

}  // namespace qkscope
