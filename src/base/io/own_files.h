#pragma once

#include "base/io/data_folder.h"
