# One library per folder, one test program per folder: the arrows between folders are the DEPENDS here.
# The archives of all folders together are the shared library that programs use (src/CMakeLists.txt).
include(Precompiled)

# qkscope_library(NAME [SOURCES a.cpp ...] [QUICK b.cpp ...] [KERNELS c.cpp ...] [BATCH 3] [DEPENDS core ...]
#                 [LINK external ...])
# QUICK are the files that nothing waits for: they are compiled with few optimisations. KERNELS are those that Highway
# reads once per target: each is a unit of its own. BATCH files are compiled as one unit where the usual number is not right.
function(qkscope_library name)
  cmake_parse_arguments(ARG "" "BATCH" "SOURCES;QUICK;KERNELS;DEPENDS;LINK" ${ARGN})
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
    if(ARG_BATCH)
      set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE ${ARG_BATCH})
    endif()
    set_property(GLOBAL APPEND PROPERTY QKSCOPE_OBJECTS $<TARGET_OBJECTS:${target}>)
  endforeach()
  set_property(GLOBAL APPEND PROPERTY QKSCOPE_ROOMS qkscope_${name})
endfunction()

# qkscope_test(NAME SOURCES a_test.cpp ... [DEPENDS core ...] [LINK external ...])
function(qkscope_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES})
  list(TRANSFORM ARG_DEPENDS PREPEND qkscope_)
  target_link_libraries(test_${name} PRIVATE qkscope_compiler ${ARG_DEPENDS} ${ARG_LINK}
                        qkscope_test_paths GTest::gmock GTest::gtest_main)
  target_compile_options(test_${name} PRIVATE ${QKSCOPE_QUICK_COMPILE})
  qkscope_precompile(test test_${name})
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(QKSCOPE_SANITIZE)  # the search for leaks takes seconds at the end of each process: one for all
    add_test(NAME ${name} COMMAND test_${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES TIMEOUT 900)
  else()
    gtest_discover_tests(test_${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
                         PROPERTIES TIMEOUT 900)
  endif()
endfunction()
