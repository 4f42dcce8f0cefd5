// OpenBLAS runs on the calling thread: our own threads split the work, in tiles that do not depend
// on their number.
#pragma once

#include <cblas.h>

namespace qkscope {

inline void use_one_blas_thread() {
  static const bool once = (openblas_set_num_threads(1), true);
  static_cast<void>(once);
}

}  // namespace qkscope
