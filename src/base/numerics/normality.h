#pragma once

#include "base/numerics/sample_statistics.h"
