#include "base/numerics/kernel_helpers-inl.h"
