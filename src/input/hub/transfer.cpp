#include "input/hub/transfer.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "base/core/log.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

constexpr std::size_t kAtOnce = 8;
constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

std::uint64_t sum(const std::vector<std::uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

std::int64_t mebibytes(std::uint64_t bytes) {
  return static_cast<std::int64_t>((bytes + kMebibyte - 1) / kMebibyte);
}

}  // namespace

TransferMeter::TransferMeter(const std::string& what, const std::vector<std::uint64_t>& sizes,
                             bool quiet)
    : sizes_(sizes),
      done_(sizes.size()),
      start_(std::chrono::steady_clock::now()),
      begun_(sizes.size()),
      progress_({.what = what, .unit = "MiB", .total = mebibytes(sum(sizes)), .quiet = quiet}) {}

void TransferMeter::update(std::size_t file, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!begun_[file]) before_ += bytes;
  begun_[file] = true;
  done_[file] = bytes;
  std::size_t whole = 0;
  for (std::size_t i = 0; i < sizes_.size(); ++i) whole += done_[i] == sizes_[i] ? 1 : 0;
  const auto all = sum(done_);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const auto fresh = static_cast<double>(all - std::min(all, before_));
  progress_.update(mebibytes(all), fmt::format("{} of {} files, {}/s", whole, sizes_.size(),
                                               format_bytes(static_cast<std::uint64_t>(
                                                   fresh / std::max(elapsed.count(), 1e-3)))));
}

void run_transfers(std::size_t count, const TransferTask& task) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < count && !failed; i = next++) {
      try {
        task(i, failed);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      while (threads.size() + 1 < std::min(count, kAtOnce)) threads.emplace_back(work);
    } catch (const std::system_error& refused) {
      log::debug("transfers: only {} threads could be started: {}", threads.size(), refused.what());
    }
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace qkscope
