# Language level, warnings, optimisation and sanitizers for every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# The library shows what its public headers mark with QKSCOPE_API and nothing else.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Headers cost more than our code: the files of a folder are compiled a few at a time, few enough that one
# changed file is built again in seconds.
set(CMAKE_UNITY_BUILD ${QKSCOPE_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 6)
# `pip install .` compiles everything once, in fewer units. So do the sanitizers, whose tests show every change whether names
# in the larger units clash.
set(QKSCOPE_LARGE_UNITS OFF)
if(SKBUILD OR QKSCOPE_SANITIZE)
  set(QKSCOPE_LARGE_UNITS ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
endif()

# Functions of libraries are looked up when they are first called: a program that only says its version does not wait for
# thousands of names of Arrow. (Ubuntu's g++ asks for the contrary.)
add_link_options(-Wl,-z,lazy)

# Linking the test programs takes a third of the time with mold, where it is there.
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
  set(QKSCOPE_LINK_BY_MAP -fuse-ld=bfd)  # mold 1.10 shows more than the list of exported symbols says
endif()

# Paths below the source tree are relative in the cache: every checkout and build folder shares it. What it is told to
# overlook belongs to precompiled headers (cmake/Precompiled.cmake): macros and times that none of ours looks at.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CCACHE_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
                      CCACHE_SLOPPINESS=pch_defines,time_macros)
  if(SKBUILD)  # a miss is the rule there: ccache does not preprocess before it compiles
    list(APPEND CCACHE_LAUNCHER CCACHE_DEPEND=1)
  endif()
  list(APPEND CCACHE_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
endif()

add_library(qkscope_compiler INTERFACE)
target_compile_options(qkscope_compiler INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wcast-align
  -Woverloaded-virtual -Wimplicit-fallthrough>)
if(NOT SKBUILD)  # the warnings of compilers that nobody has tried yet do not stop `pip install .`
  target_compile_options(qkscope_compiler INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# g++ 12 sees overlapping and endless copies in std::string where there are none (its bug 105329), g++ 13 unset strings in
# std::variant and, through the sanitizers' checks, copies past an end. The sanitizers look for real ones.
target_compile_options(qkscope_compiler INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict -Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow
  -Wno-stringop-overread>)
# A compiler with half a gigabyte to spare seldom looks for memory it no longer needs: a twentieth of its time. The cache
# has to see precompiled headers, and one that cannot be used is read as text.
target_compile_options(qkscope_compiler INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=524288 -fpch-preprocess -Wno-error=invalid-pch>)
# __FILE__ is relative to this tree (in failures of tests and internal errors), so that checkouts share the compiler cache.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
# What computes is optimised in full; what reads settings, talks to servers, draws or tests is compiled quickly.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
# (-Og takes g++ no longer than -O0, four fifths of -O1 and three fifths of -O3.)
set(QKSCOPE_QUICK_COMPILE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-Og>)
# No value changes: loops with comparisons and square roots may become vector code.
target_compile_options(qkscope_compiler INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno -fno-trapping-math>)
# One binary for every CPU: kernels choose their instructions at run time (src/base/core/cpu_target.h), the
# rest is for the oldest. a * b + c is rounded twice unless the source says otherwise: results do not
# depend on what a compiler or a CPU can fuse.
target_compile_options(qkscope_compiler INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(QKSCOPE_SANITIZE)
  if(QKSCOPE_SANITIZE STREQUAL "ADDRESS")
    set(sanitizers -fsanitize=address,undefined)
  elseif(QKSCOPE_SANITIZE STREQUAL "THREAD")
    set(sanitizers -fsanitize=thread)
  else()
    message(FATAL_ERROR "QKSCOPE_SANITIZE is '${QKSCOPE_SANITIZE}': expected OFF, ADDRESS or THREAD")
  endif()
  target_compile_options(qkscope_compiler INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(qkscope_compiler INTERFACE ${sanitizers})
endif()
if(QKSCOPE_COVERAGE)
  # The counters lie in the profile itself (%c in LLVM_PROFILE_FILE), so that those of a process that ends with _exit() count.
  target_compile_options(qkscope_compiler INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fprofile-instr-generate -fcoverage-mapping -Wno-error>
    "SHELL:-mllvm -runtime-counter-relocation=true")
  target_link_options(qkscope_compiler INTERFACE -fprofile-instr-generate)
endif()
if(QKSCOPE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "QKSCOPE_FUZZ needs clang, found ${CMAKE_CXX_COMPILER_ID}: use the preset 'fuzz'")
  endif()
  target_compile_options(qkscope_compiler INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>)
  # The warnings of g++ are the rule; clang's others are shown.
  target_compile_options(qkscope_compiler INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-error>)
endif()
