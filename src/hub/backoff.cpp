#include "hub/backoff.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <thread>

#include "core/log.h"

namespace qkscope {
namespace {

constexpr double kLongestOwnWait = 30.0;  // when the server asks for nothing

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool stopped(const std::atomic<bool>* stop) {
  return stop != nullptr && stop->load();
}

// In short naps, so that a stop is seen.
void sleep(double seconds, const std::atomic<bool>* stop) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds));
  while (Clock::now() < end && !stopped(stop))
    std::this_thread::sleep_for(
        std::min<Clock::duration>(end - Clock::now(), std::chrono::milliseconds(100)));
}

}  // namespace

bool worth_another_try(const HttpResponse& response) {
  if (response.status == 0) return response.may_pass;
  constexpr int kLater[] = {408, 429, 500, 502, 503, 504};
  return std::find(std::begin(kLater), std::end(kLater), response.status) != std::end(kLater);
}

std::optional<double> retry_after(const std::string& header, double now) {
  if (header.empty()) return {};
  if (header.find_first_not_of("0123456789") == std::string::npos && header.size() < 10)
    return std::stod(header);
  std::tm time{};  // "Wed, 21 Oct 2015 07:28:00 GMT"
  if (::strptime(header.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time) == nullptr) return {};
  return std::max(0.0, static_cast<double>(::timegm(&time)) - now);
}

bool Backoff::wait_after(const HttpResponse& response) {
  if (!worth_another_try(response) || ++tries_ >= settings_.attempts || stopped(stop_))
    return false;
  const auto asked = retry_after(response.header("retry-after"), seconds_since_1970());
  const double own =
      std::min(kLongestOwnWait, settings_.first_wait * std::exp2(static_cast<double>(tries_ - 1)));
  const double seconds = asked.value_or(own);
  if (seconds > settings_.longest_wait) return false;
  log::debug("{}; trying again in {:.1f} s",
             response.status == 0 ? response.fault : fmt::format("status {}", response.status),
             seconds);
  sleep(seconds, stop_);
  return !stopped(stop_);
}

}  // namespace qkscope
