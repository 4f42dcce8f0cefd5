// Records the inputs of a folder of figures, so that up-to-date figures are not drawn again.
#pragma once

#include <optional>

#include "analysis/figures/results.h"
#include "base/io/json.h"
#include "qkscope/figures.h"

namespace qkscope {

// Returns everything that figures depend on: program version, options and checksums of input files.
Json drawing_inputs(const DrawOptions& options, const Results& results);

// Returns the earlier result if all its files exist in options.out and were drawn from `inputs`.
std::optional<Drawn> up_to_date(const DrawOptions& options, const Json& inputs);

// Deletes the record of options.out. Must be called before a figure there is overwritten.
void delete_drawing_record(const DrawOptions& options);

// Records that all figures in options.out were drawn from `inputs`.
void write_drawing_record(const DrawOptions& options, const Json& inputs, const Drawn& drawn);

}  // namespace qkscope
