# Headers that nearly every file includes are parsed once for all targets with the same options: a fifth of a unit's time.
# Where CMAKE_DISABLE_PRECOMPILE_HEADERS is ON (clang-tidy reads each file alone) every file brings what it includes.
set(QKSCOPE_STANDARD_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map> <memory> <mutex>
  <numeric> <optional> <set> <span> <string> <string_view> <thread> <utility> <variant> <vector>
  <fmt/format.h> <fmt/ranges.h>)

# qkscope_precompile(KIND TARGET HEADERS...): the first target of a kind makes the header, the others use it.
function(qkscope_precompile kind target)
  get_property(first GLOBAL PROPERTY QKSCOPE_PRECOMPILED_${kind})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${QKSCOPE_STANDARD_HEADERS} ${ARGN})
    set_property(GLOBAL PROPERTY QKSCOPE_PRECOMPILED_${kind} ${target})
  endif()
endfunction()
