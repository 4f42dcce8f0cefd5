// Fork-safe lazy initialisation of constant tables.
#pragma once

#include <atomic>
#include <memory>
#include <type_traits>

namespace qkscope {

// Returns a constant that make() builds at the first call; each call site has its own constant. No
// lock is held while make() runs, unlike with a function-local static: a child process forked in
// that moment would wait for the lock forever. Concurrent first calls may run make() twice and keep
// one result. `make` is passed by value because g++ 13 warns about a dangling reference otherwise.
template <typename Make>
const auto& lazy_init_lock_free(Make make) {
  static_assert(std::is_class_v<Make>, "make must be a lambda: its type identifies the call site");
  using Value = std::invoke_result_t<Make&>;
  static constinit std::atomic<const Value*> made = nullptr;
  const Value* there = made.load(std::memory_order_acquire);
  if (there != nullptr) return *there;
  auto fresh = std::make_unique<const Value>(make());
  if (made.compare_exchange_strong(there, fresh.get(), std::memory_order_acq_rel))
    return *fresh.release();
  return *there;
}

}  // namespace qkscope
