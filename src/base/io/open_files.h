#pragma once

#include "base/io/mapped_file.h"
