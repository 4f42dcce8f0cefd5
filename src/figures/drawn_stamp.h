// Remembers what a folder of figures was drawn from, so that the same is not drawn again.
#pragma once

#include <optional>

#include "qkscope/figures.h"

namespace qkscope {

// What was drawn there, if it was by this program, with these options, from results with the same
// content, and no file is missing.
std::optional<Drawn> drawn_before(const DrawOptions& options);

// Before drawing begins: half-drawn figures are nobody's.
void forget_drawn(const DrawOptions& options);
void remember_drawn(const DrawOptions& options, const Drawn& drawn);

}  // namespace qkscope
