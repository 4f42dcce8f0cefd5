// What the library says while it works. It is silent until a program asks to hear it.
#pragma once

#include <cstdio>
#include <functional>
#include <string_view>

#include "qkscope/version.h"

namespace qkscope {

enum class LogLevel { debug, info, warning, error };

// Called from any thread, also from several at once. What it throws is dropped.
using LogCallback = std::function<void(LogLevel level, std::string_view message)>;

// From now on messages of `least` and above go to the callback; an empty one stops them.
QKSCOPE_API void set_log_callback(LogCallback callback, LogLevel least = LogLevel::info);

// Long operations show their progress there: one updating line on a terminal, plain lines at
// intervals otherwise. Null, as in the beginning: nowhere.
QKSCOPE_API void set_progress_output(std::FILE* out);

}  // namespace qkscope
