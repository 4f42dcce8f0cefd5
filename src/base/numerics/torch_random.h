#pragma once

#include "base/numerics/python_random.h"
