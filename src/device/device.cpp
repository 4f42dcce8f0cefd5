#include "device/device.h"

#include <charconv>
#include <cstring>

#include "core/error.h"
#include "device/cuda/cuda_backend.h"

namespace qkscope {
namespace {

// N of cuda:N, -1 where it is no number.
int card_number(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

}  // namespace

Device choose_device(const std::string& wanted) {
  if (wanted == "cpu") return {};
  if (wanted == "auto") {
    const bool usable = cuda_device_count() > 0 && why_not_card(0).empty();
    return usable ? Device{Device::Kind::cuda, 0} : Device{};
  }
  const bool numbered = wanted.starts_with("cuda:");
  const int card = numbered ? card_number(std::string_view(wanted).substr(5)) : 0;
  if ((!numbered && wanted != "cuda") || card < 0)
    bad_input("device: found '{}', expected auto, cpu, cuda or cuda:N", wanted);
  const int cards = cuda_device_count();
  if (cards == 0) bad_input("device {}: {}; use cpu", wanted, why_no_cuda());
  if (card >= cards)
    bad_input("device {}: there is no such card; found {}, numbered from 0", wanted, cards);
  if (const auto why = why_not_card(card); !why.empty())
    bad_input("device {}: {}; use cpu", wanted, why);
  return {Device::Kind::cuda, card};
}

std::string device_name(Device device) {
  return device.kind == Device::Kind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

void copy_values(TensorView to, ConstTensorView from) {
  QKSCOPE_ASSERT(to.dtype() == from.dtype() && to.size() == from.size());
  QKSCOPE_ASSERT(to.is_contiguous() && from.is_contiguous());
  if (to.bytes() == from.bytes()) return;
  const auto on_host = [](Device device) { return device.kind == Device::Kind::cpu; };
  if (on_host(to.device()) && on_host(from.device()))
    std::memcpy(to.bytes(), from.bytes(), to.size_bytes());
  else
    copy_with_card(to, from);
}

}  // namespace qkscope
