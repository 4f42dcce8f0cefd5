#pragma once

#include "base/io/output_file.h"
