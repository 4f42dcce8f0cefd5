// Benchmark of the forward pass of a capture, relative to the matrix multiplication throughput of
// the device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/model.h"
#include "qkscope/version.h"

namespace qkscope {

// A batch of documents with the same number of random tokens each.
struct BenchBatch {
  std::int64_t documents = 1;
  std::int64_t tokens = 0;
};

// Options of measure_speed.
struct BenchOptions {
  std::vector<BenchBatch> batches;  // empty: sizes that suit the device and the model
  int repeats = 5;                  // timed passes after one warm-up pass
  double ceiling_seconds = 1.0;     // duration of the matrix product benchmark
};

// Time of one part of the forward pass, summed over all layers.
struct BenchPart {
  std::string name;      // e.g. "attention"
  double seconds = 0.0;  // measured with a device synchronisation after every step
  double flop = 0.0;     // FLOP of its matrix products; 0 if it has none
};

// An attention kernel and the number of layers that used it.
struct BenchKernel {
  std::string name;
  std::int64_t layers = 0;
};

// Timing of one batch size.
struct BenchResult {
  BenchBatch batch;
  double seconds = 0.0;       // median of the repeats
  double best_seconds = 0.0;  // minimum of the repeats
  double flop = 0.0;          // FLOP of matrix products and attention
  std::int64_t rows = 0;      // tokens of all documents
  std::int64_t activation_bytes =
      0;  // bytes in addition to weights: measured on a GPU, planned on the CPU
  std::vector<BenchKernel> attention;
  std::vector<BenchPart> parts;  // in pass order
};

// Result of measure_speed.
struct BenchReport {
  std::string device;        // "cpu", "cuda:0"
  std::string hardware;      // "neon, 2 threads", "NVIDIA H200"
  DType dtype = DType::f32;  // CUDA type of weights and activations; the CPU uses float32
  double ceiling = 0.0;      // FLOP/s of matrix products
  std::int64_t parameters = 0;
  std::int64_t weight_bytes = 0;  // weights read per pass: mapped from the file, or on the GPU
  std::vector<BenchResult> results;
};

// Measures the speed of a model; the first two parameters are those of Model::load. Like a capture,
// the pass outputs rotated q and k of all layers at one position in 256, and drops all other rows
// once attention no longer needs them.
QKSCOPE_API BenchReport measure_speed(const std::string& folder_or_id, const ModelOptions& model,
                                      const BenchOptions& options = {});

}  // namespace qkscope
