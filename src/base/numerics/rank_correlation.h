#pragma once

#include "base/numerics/correlation.h"
