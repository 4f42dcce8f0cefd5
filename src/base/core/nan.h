#pragma once

#include "base/core/numbers.h"
