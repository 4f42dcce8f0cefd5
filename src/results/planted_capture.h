// A whole capture of planted heads on the disk, in the layout a real capture has.
#pragma once

#include <string>

#include "analysis/planted.h"

namespace qkscope {

struct PlantedCaptureOptions {
  std::string data_root;
  int layers = 4;
  int query_heads = 8;  // per layer
  int key_heads = 2;
  int heads = 0;       // query heads written, spread evenly over the model; 0: all
  int nope_every = 4;  // every n-th layer has no rotating planes; 0: none
  double rope_theta = 5e6;
  int active_planes = 6;  // planes planted on RoPE layers, at RoPE frequencies
  double plane_radius = 3;
  int sliding_window = 0;  // tokens; 0: full attention
  bool metadata = true;    // false: as a foreign capture that says nothing about itself
  PlantedOptions head;     // planes and seed are set per head
};

// Writes the files, _saver_state.json and planted.json (what was planted in each head).
void write_planted_capture(const PlantedCaptureOptions& options);

}  // namespace qkscope
