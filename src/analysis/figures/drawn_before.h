// Remembers what a folder of figures was drawn from, so that the same is not drawn again.
#pragma once

#include <optional>

#include "analysis/figures/results.h"
#include "base/io/json.h"
#include "qkscope/figures.h"

namespace qkscope {

// Everything that figures depend on: program, options, and the content of the files they read.
Json drawing_inputs(const DrawOptions& options, const Results& results);

// What lies in options.out, if it was drawn from these inputs and is all there.
std::optional<Drawn> drawn_before(const DrawOptions& options, const Json& inputs);

// Before anything in options.out is drawn over.
void forget_drawn(const DrawOptions& options);

// Keeps the inputs of figures that were drawn in full.
void remember_drawn(const DrawOptions& options, const Json& inputs, const Drawn& drawn);

}  // namespace qkscope
