# Google Highway compiles kernels for several instruction sets and chooses at run time. Gives the
# target qkscope_highway. The package's CMake file if there is one, else header and library where
# CMAKE_INCLUDE_PATH and CMAKE_LIBRARY_PATH point.
add_library(qkscope_highway INTERFACE)
find_package(hwy QUIET)
if(TARGET hwy::hwy)
  target_link_libraries(qkscope_highway INTERFACE hwy::hwy)
else()
  find_path(HIGHWAY_INCLUDE_DIR NAMES hwy/highway.h)
  find_library(HIGHWAY_LIBRARY NAMES hwy)
  if(NOT (HIGHWAY_INCLUDE_DIR AND HIGHWAY_LIBRARY))
    message(FATAL_ERROR "qkscope needs Google Highway (Debian and Ubuntu: libhwy-dev; './run.sh build' "
      "installs it). Found neither its CMake package nor hwy/highway.h with libhwy.")
  endif()
  target_include_directories(qkscope_highway SYSTEM INTERFACE ${HIGHWAY_INCLUDE_DIR})
  target_link_libraries(qkscope_highway INTERFACE ${HIGHWAY_LIBRARY})
endif()

# The targets we want, the lowest of them without a question: SSE4.2 is 15 years old, NEON is part of
# every 64-bit Arm. Other processors get what Highway chooses.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(lowest HWY_SSE4)
  set(wanted HWY_SSE4|HWY_AVX2|HWY_AVX3)
  if(QKSCOPE_SANITIZE)  # g++ 13 misaligns AVX-512 values on the stack there (its bug 110027)
    set(wanted HWY_SSE4|HWY_AVX2)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(lowest HWY_NEON)
  set(wanted HWY_NEON)
endif()
if(wanted)
  target_compile_definitions(qkscope_highway INTERFACE
    HWY_BASELINE_TARGETS=${lowest} "HWY_DISABLED_TARGETS=(~(${wanted}))")
endif()
