// Conditional puts emulated with a lease.
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "input/store/object_store.h"

namespace qkscope {
namespace {

// In-memory store without conditional puts.
class Objects {
 public:
  LeaseBackend access() {
    return {.read = [this](const std::string& name) -> std::optional<std::string> {
              const std::lock_guard lock(mutex_);
              const auto found = objects_.find(name);
              if (found == objects_.end()) return {};
              return found->second;
            },
            .write =
                [this](const std::string& name, const std::string& content) {
                  const std::lock_guard lock(mutex_);
                  objects_[name] = content;
                  if (!name.ends_with(".lease")) ++puts_;
                },
            .remove =
                [this](const std::string& name) {
                  const std::lock_guard lock(mutex_);
                  objects_.erase(name);
                }};
  }
  std::size_t size() const { return objects_.size(); }
  int puts() const { return puts_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> objects_;
  int puts_ = 0;
};

constexpr LeaseDurations kShort{.lifetime = 0.5, .settle_time = 0.05};

TEST(Lease, ExactlyOneOfManyWritersSucceeds) {
  Objects objects;
  std::atomic<int> first{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i)
    writers.emplace_back([&, i] {
      if (put_with_lease(objects.access(), "x", std::to_string(i), kShort)) ++first;
    });
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(objects.puts(), 1);
  EXPECT_FALSE(put_with_lease(objects.access(), "x", "late", kShort));
  EXPECT_EQ(objects.size(), 1U);  // no lease remains
}

TEST(Lease, OfACrashedOwnerExpires) {
  Objects objects;
  const auto now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  objects.access().write("x.lease",
                         R"({"owner": "gone", "until": )" + std::to_string(now + 0.3) + "}");
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(put_with_lease(objects.access(), "x", "content", kShort));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(200));
  objects.access().write("y.lease", "nonsense");
  EXPECT_TRUE(put_with_lease(objects.access(), "y", "content", kShort));
}

}  // namespace
}  // namespace qkscope
