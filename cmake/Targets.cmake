# One library per folder of src/ and one test program per folder of tests/. DEPENDS lists the folders that a folder includes;
# tools/check_structure.py compares the lists with the includes. Together the libraries become libqkscope (src/CMakeLists.txt).
include(Precompiled)

# qkscope_library(FLOOR/ROOM [SOURCES a.cpp ...] [QUICK b.cpp ...] [KERNELS c.cpp ...] [BATCH 3] [DEPENDS base/core ...]
#                 [LINK external ...])
# The target of base/core is qkscope_base_core. QUICK files are not time-critical and are compiled with -Og. KERNELS files are
# compiled by Highway once per instruction set, each as its own unit. BATCH overrides the number of files in a unity build unit.
function(qkscope_library path)
  cmake_parse_arguments(ARG "" "BATCH" "SOURCES;QUICK;KERNELS;DEPENDS;LINK" ${ARGN})
  string(REPLACE "/" "_" name ${path})
  list(TRANSFORM ARG_DEPENDS REPLACE "/" "_")
  list(TRANSFORM ARG_DEPENDS PREPEND qkscope_)
  set(targets qkscope_${name})
  if(ARG_SOURCES OR ARG_KERNELS)
    add_library(qkscope_${name} STATIC ${ARG_SOURCES} ${ARG_KERNELS})
    set_source_files_properties(${ARG_KERNELS} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    if(ARG_QUICK)  # other options: a target of its own inside the folder's library
      add_library(qkscope_${name}_quick OBJECT ${ARG_QUICK})
      target_sources(qkscope_${name} PRIVATE $<TARGET_OBJECTS:qkscope_${name}_quick>)
      list(APPEND targets qkscope_${name}_quick)
    endif()
  else()
    add_library(qkscope_${name} STATIC ${ARG_QUICK})
  endif()
  if(ARG_SOURCES OR ARG_KERNELS)
    qkscope_precompile(full qkscope_${name})
  endif()
  if(ARG_QUICK)
    list(GET targets -1 quick)
    target_compile_options(${quick} PRIVATE ${QKSCOPE_QUICK_COMPILE})
    qkscope_precompile(quick ${quick} <nlohmann/json.hpp>)
  endif()
  foreach(target ${targets})
    target_include_directories(${target} PUBLIC
      ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
    target_link_libraries(${target} PRIVATE qkscope_compiler PUBLIC ${ARG_DEPENDS} ${ARG_LINK})
    if(ARG_BATCH AND NOT QKSCOPE_LARGE_UNITS)
      set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${ARG_BATCH})
    endif()
    if(QKSCOPE_COVERAGE)  # llvm-cov identifies a function of an anonymous namespace by its name and the name of its unit
      set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
    endif()
    set_property(GLOBAL APPEND PROPERTY QKSCOPE_OBJECTS $<TARGET_OBJECTS:${target}>)
  endforeach()
  set_property(GLOBAL APPEND PROPERTY QKSCOPE_ROOMS qkscope_${name})
endfunction()

# qkscope_test(FLOOR/ROOM SOURCES a_test.cpp ... [DEPENDS base/core ...] [LINK external ...])
# The program of base/core is test_base_core; its tests are listed by ctest as base.core.SUITE.TEST.
function(qkscope_test path)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  string(REPLACE "/" "_" name ${path})
  string(REPLACE "/" "." label ${path})
  add_executable(test_${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPENDS REPLACE "/" "_")
  list(TRANSFORM ARG_DEPENDS PREPEND qkscope_)
  target_link_libraries(test_${name} PRIVATE qkscope_compiler ${ARG_DEPENDS} ${ARG_LINK}
                        qkscope_test_paths GTest::gmock GTest::gtest_main)
  target_compile_options(test_${name} PRIVATE ${QKSCOPE_QUICK_COMPILE})
  qkscope_precompile(test test_${name})
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(QKSCOPE_SANITIZE)  # the search for leaks takes seconds at the end of each process: one for all
    add_test(NAME ${label} COMMAND test_${name} --gtest_brief=1)
    set_tests_properties(${label} PROPERTIES TIMEOUT 900)
  else()
    # Without a GPU, 1,600 tests of model families on one would each start a process that skips them; those of single kernels
    # remain and name the reason.
    set(filter)
    if(NOT QKSCOPE_GPU_HERE)
      set(filter TEST_FILTER "-*/Cuda*")
    endif()
    gtest_discover_tests(test_${name} TEST_PREFIX "${label}." DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES ${filter}
                         PROPERTIES TIMEOUT 900)
  endif()
endfunction()
