// Tables that are made at first use and stay.
#pragma once

#include <atomic>
#include <memory>
#include <type_traits>

namespace qkscope {

// What make() returns, made once for each place that calls this. Unlike with a static of a function
// nothing is locked while it is made: in a process that was forked at that moment, whose other
// threads are gone, the next caller makes it again instead of waiting for ever. (By value: of a
// reference g++ 13 fears that what is returned might hang on it.)
template <typename Make>
const auto& made_once(Make make) {
  static_assert(std::is_class_v<Make>, "a lambda, which has a type of its own");
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
