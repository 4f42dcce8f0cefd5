#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <httplib.h>

#include "analysis/report/report.h"
#include "analysis/viewer/viewer_session.h"
#include "base/core/error.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

constexpr std::size_t kThreads = 32;            // an idle connection holds a thread
constexpr int kIdleSeconds = 2;                 // until an idle connection is closed
constexpr std::size_t kLargestRequestBody = 0;  // every request is a GET without a body
constexpr double kOverviewSeconds = 0.06;       // limit per overview request: others wait for it

std::string random_token() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:08x}", random());
  return token;
}

// Constant-time comparison, which prevents timing attacks on the secret.
bool is_same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return different == 0;
}

// Removes the port from a Host header: "localhost:8000" and "[::1]:8000".
std::string host_without_port(const std::string& host) {
  const auto colon = host.rfind(':');
  const auto bracket = host.rfind(']');
  if (colon == std::string::npos || (bracket != std::string::npos && bracket > colon)) return host;
  return host.substr(0, colon);
}

bool is_loopback(const std::string& name) {
  return name == "127.0.0.1" || name == "localhost" || name == "[::1]" || name == "::1";
}

std::int64_t read_integer_parameter(const httplib::Request& request, const char* name) {
  const auto text = request.get_param_value(name);
  const auto value = parse_number<std::int64_t>(text);
  if (!value) reject("{}: found '{}', expected a whole number", name, text);
  return *value;
}

void answer_with_error(httplib::Response& response, int status, const char* text) {
  response.status = status;
  response.set_content(text, "text/plain");
}

HeadOfRun parse_head(const httplib::Request& request) {
  const auto run = read_integer_parameter(request, "run");
  if (run < 0) reject("run {}: expected a number from 0", run);
  return {static_cast<std::size_t>(run), read_integer_parameter(request, "layer"),
          read_integer_parameter(request, "head")};
}

class HttpServer : public ViewerServer {
 public:
  HttpServer(ViewerSession& session, const ViewerServerOptions& options)
      : session_(session), options_(options), token_(random_token()) {
    configure_server();
    const auto& [host, port, ancestors] = options_;
    const auto bound = port == 0                          ? server_.bind_to_any_port(host)
                       : server_.bind_to_port(host, port) ? port
                                                          : -1;
    if (bound <= 0)
      reject(
          "viewer: cannot listen on {}:{}; is the port in use, or the address of another machine?",
          host, port);
    url = fmt::format("http://{}:{}/{}/", host, bound, token_);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~HttpServer() override {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  // Rejects requests sent by other web pages: a foreign Host (DNS rebinding) or Origin header.
  // Ports are not compared, because `ssh -L` changes them.
  bool is_request_allowed(const httplib::Request& request) const {
    const auto host = request.get_header_value("Host");
    if (is_loopback(options_.host) && !is_loopback(host_without_port(host))) return false;
    const auto origin = request.get_header_value("Origin");
    return origin.empty() || origin == "http://" + host;
  }

  void configure_server() {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_payload_max_length(kLargestRequestBody);
    server_.set_read_timeout(5);
    server_.set_keep_alive_timeout(kIdleSeconds);
    server_.set_keep_alive_max_count(1000);
    server_.set_tcp_nodelay(true);  // Nagle's algorithm would delay small responses by 40 ms
    server_.set_default_headers(
        {{"Content-Security-Policy",
          "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
          "data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors " +
              options_.frame_ancestors},
         {"X-Content-Type-Options", "nosniff"},
         {"Referrer-Policy", "no-referrer"},
         {"Cross-Origin-Resource-Policy", "same-origin"},
         {"Cache-Control", "no-store"}});
    server_.Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
      answer_request(request, response);
    });
  }

  void answer_request(const httplib::Request& request, httplib::Response& response) {
    if (!is_request_allowed(request))
      return answer_with_error(response, 403, "This Host or Origin may not use the viewer.\n");
    const std::string_view path = request.path;
    if (path.size() < token_.size() + 2 || !is_same_secret(path.substr(1, token_.size()), token_) ||
        path[token_.size() + 1] != '/')
      return answer_with_error(response, 404,
                               "Not found. The address of the viewer contains a token.\n");
    try {
      answer_with_resource(std::string(path.substr(token_.size() + 2)), request, response);
    } catch (const Error& error) {
      response.status = error.kind() == ErrorKind::bad_input ? 400 : 500;
      response.set_content(std::string(error.what()) + "\n", "text/plain; charset=utf-8");
    }
  }

  void answer_with_resource(const std::string& name, const httplib::Request& request,
                            httplib::Response& response) {
    if (name.empty())
      return response.set_content(
          fill_placeholders(embedded::viewer_html, {{"body", embedded::viewer_body}}),
          "text/html; charset=utf-8");
    if (name == "viewer.js")
      return response.set_content(embedded::viewer_script, "text/javascript; charset=utf-8");
    if (name == "viewer.css")
      return response.set_content(embedded::viewer_css, "text/css; charset=utf-8");
    is_request_superseded(request);
    const std::lock_guard lock(compute_);
    if (is_request_superseded(request)) {
      response.status = 204;
      return;
    }
    answer_with_data(name, request, response);
  }

  void answer_with_data(const std::string& name, const httplib::Request& request,
                        httplib::Response& response) {
    const auto json = [&](const Json& value) {
      response.set_content(value.dump(-1, ' ', false, Json::error_handler_t::replace),
                           "application/json");
    };
    const auto binary = [&](const std::string& bytes) {
      response.set_content(bytes, "application/octet-stream");
    };
    const auto number = [&](const char* parameter) {
      return read_integer_parameter(request, parameter);
    };
    if (name == "info") return json(session_.session_info_json());
    if (name == "row") return binary(session_.serialize_row(parse_head(request), number("query")));
    if (name == "statistics")
      return binary(session_.serialize_statistics(parse_head(request).run, number("layer")));
    if (name == "tile")
      return binary(session_.serialize_tile(
          parse_head(request), static_cast<int>(std::clamp<std::int64_t>(number("level"), -1, 64)),
          number("row"), number("column"), number("sum") != 0 ? ReduceOp::sum : ReduceOp::largest));
    if (name == "overview")
      return json(
          {{"done",
            session_.head_attention(parse_head(request)).compute_overview_part(kOverviewSeconds)}});
    if (name == "attribution")
      return json(session_.attributions_json(number("layer"), number("head"), number("query")));
    answer_with_error(response, 404, "Not found.\n");
  }

  // Returns true if the page has sent a newer request on the same channel, so that this one can be
  // dropped. Requests are numbered per channel, for example per head.
  bool is_request_superseded(const httplib::Request& request) {
    if (!request.has_param("channel")) return false;
    const std::lock_guard lock(channels_);
    if (latest_.size() > kMostChannels) latest_.clear();
    auto& newest = latest_[request.get_param_value("channel")];
    const auto sequence = read_integer_parameter(request, "sequence");
    newest = std::max(newest, sequence);
    return sequence < newest;
  }

  static constexpr std::size_t kMostChannels = 10'000;

  ViewerSession& session_;
  ViewerServerOptions options_;
  std::string token_;
  httplib::Server server_;
  std::mutex compute_;  // held while the session works
  std::mutex channels_;
  std::map<std::string, std::int64_t> latest_;  // newest sequence number of each channel
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ViewerServer> start_viewer_server(ViewerSession& session,
                                                  const ViewerServerOptions& options) {
  return std::make_unique<HttpServer>(session, options);
}

}  // namespace qkscope
