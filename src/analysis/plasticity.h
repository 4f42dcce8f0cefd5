// Attention plasticity: how often the choice between two keys of one text would flip with the
// query's content, at each query position.
#pragma once

#include "analysis/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                      const PlasticityOptions& options);

}  // namespace qkscope
