# One library per folder, one test program per folder: the arrows between folders are the DEPENDS here.
# The archives of all folders together are the shared library that programs use (src/CMakeLists.txt).

# qkscope_library(NAME [QUICK] SOURCES a.cpp ... [KERNELS b.cpp ...] [DEPENDS core ...] [LINK external ...])
# QUICK where nothing waits for the code: it is compiled with few optimisations. KERNELS are the files that Highway reads
# once per target: each is a unit of its own.
function(qkscope_library name)
  cmake_parse_arguments(ARG "QUICK" "" "SOURCES;KERNELS;DEPENDS;LINK" ${ARGN})
  add_library(qkscope_${name} STATIC ${ARG_SOURCES} ${ARG_KERNELS})
  set_source_files_properties(${ARG_KERNELS} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_include_directories(qkscope_${name} PUBLIC
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
  target_link_libraries(qkscope_${name} PRIVATE qkscope_compiler)
  if(ARG_QUICK)
    target_compile_options(qkscope_${name} PRIVATE ${QKSCOPE_QUICK_COMPILE})
  endif()
  list(TRANSFORM ARG_DEPENDS PREPEND qkscope_)
  target_link_libraries(qkscope_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LINK})
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
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(QKSCOPE_SANITIZE)  # the search for leaks takes seconds at the end of each process: one for all
    add_test(NAME ${name} COMMAND test_${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES TIMEOUT 900)
  else()
    gtest_discover_tests(test_${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
                         PROPERTIES TIMEOUT 900)
  endif()
endfunction()
