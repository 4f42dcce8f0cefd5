#pragma once

#include "base/numerics/matrix.h"
