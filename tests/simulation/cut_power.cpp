// Cuts the power of a simulated disk: cut_power BEFORE LOG DISK SEED
//
// BEFORE holds the files that are on disk for certain, LOG the operations since
// (file_recorder.cpp). Replaces DISK, and BEFORE, with what a power loss leaves: synced data, and a
// random part of the rest. Clears LOG.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <random>

#include "capture/run/disk_model.h"

namespace {

namespace fs = std::filesystem;

void cut_power(const std::string& before, const std::string& log, const std::string& disk,
               unsigned seed) {
  std::mt19937 random(seed);
  qkscope::DiskModel model(qkscope::read_tree(before));
  for (const auto& operation : qkscope::read_operations(log, disk)) model.apply(operation);
  using Unsynced = qkscope::DiskModel::Unsynced;
  constexpr Unsynced kUnsynced[] = {Unsynced::lost, Unsynced::kept, Unsynced::some, Unsynced::some};
  const auto left = model.after_cut(kUnsynced[random() % 4], random);
  for (const auto& folder : {before, disk}) {
    for (const auto& entry : fs::directory_iterator(folder)) fs::remove_all(entry.path());
    qkscope::write_tree(left, folder);
  }
  fs::resize_file(log, 0);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 5) throw std::runtime_error("expected BEFORE LOG DISK SEED");
    cut_power(argv[1], argv[2], argv[3], static_cast<unsigned>(std::atoi(argv[4])));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cut_power: %s\n", error.what());
    return 1;
  }
  return 0;
}
