// How fast a model runs on a device: its forward pass as a capture needs it, beside what the device
// reaches in matrix products.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/model.h"
#include "qkscope/version.h"

namespace qkscope {

// Documents of as many random tokens each.
struct BenchBatch {
  std::int64_t documents = 1;
  std::int64_t tokens = 0;
};

struct BenchOptions {
  std::vector<BenchBatch> batches;  // empty: lengths that suit the device and the model
  int repeats = 5;                  // timed passes, after one that warms up
  double ceiling_seconds = 1.0;     // of matrix products
};

// A part of the pass: its steps in all layers.
struct BenchPart {
  std::string name;      // "attention"
  double seconds = 0.0;  // in a pass that waits for the device after every step
  double flop = 0.0;     // of its matrix products; 0 where it has none
};

// The kernel that attention took in so many layers.
struct BenchKernel {
  std::string name;
  std::int64_t layers = 0;
};

struct BenchResult {
  BenchBatch batch;
  double seconds = 0.0;               // the median of the repeats
  double best_seconds = 0.0;          // the shortest of them
  double flop = 0.0;                  // of the matrix products and attention that ran
  std::int64_t rows = 0;              // tokens of all documents
  std::int64_t activation_bytes = 0;  // beside the weights: measured on a GPU, planned on the CPU
  std::vector<BenchKernel> attention;
  std::vector<BenchPart> parts;  // in the order of the pass
};

struct BenchReport {
  std::string device;        // "cpu", "cuda:0"
  std::string hardware;      // "neon, 2 threads", "NVIDIA H200"
  DType dtype = DType::f32;  // of weights and activations on a GPU; the CPU has float32
  double ceiling = 0.0;      // FLOP/s of matrix products
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;  // that the pass reads: mapped from the file, or on the GPU
  std::vector<BenchResult> results;
};

// `folder_or_id` and `model` as for Model::load. The pass computes rotated q and k of all layers
// for one position in 256, as a capture does; the end of the network runs for those rows alone.
QKSCOPE_API BenchReport measure_speed(const std::string& folder_or_id, const ModelOptions& model,
                                      const BenchOptions& options = {});

}  // namespace qkscope
