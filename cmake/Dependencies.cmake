# Everything the project takes from outside, found in one place. What is required stops the
# configuration; what is optional prints one line and leaves a part out.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Python3 COMPONENTS Interpreter)

# The project's own environment (./run.sh makes it) holds pyarrow and what the tests compare with.
# A wheel is built with the Python that builds it.
if(SKBUILD)
  set(QKSCOPE_PYTHON ${Python_EXECUTABLE})
elseif(NOT QKSCOPE_PYTHON)
  if(EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
    set(QKSCOPE_PYTHON ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  else()
    set(QKSCOPE_PYTHON ${Python3_EXECUTABLE})
  endif()
endif()

# xxHash as headers: checksums of what a run stores.
find_path(XXHASH_INCLUDE_DIR NAMES xxhash.h REQUIRED)
add_library(qkscope_xxhash INTERFACE)
target_include_directories(qkscope_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})

include(Arrow)
include(Highway)
include(Cuda)

# PCRE2 runs tokenizer patterns that are not among the known ones.
option(QKSCOPE_PCRE2 "Use PCRE2 where it is found" ON)
set(QKSCOPE_HAVE_PCRE2 OFF)
if(QKSCOPE_PCRE2)
  find_path(PCRE2_INCLUDE_DIR NAMES pcre2.h)
  find_library(PCRE2_LIBRARY NAMES pcre2-8)
  if(PCRE2_INCLUDE_DIR AND PCRE2_LIBRARY)
    set(QKSCOPE_HAVE_PCRE2 ON)
  else()
    message(STATUS "qkscope: PCRE2 not found: only the known tokenizer patterns will work")
  endif()
else()
  message(STATUS "qkscope: PCRE2 is switched off: only the known tokenizer patterns will work")
endif()

# SLEEF's power function gives RoPE frequencies PyTorch's bits.
option(QKSCOPE_SLEEF "Use SLEEF where it is found" ON)
if(QKSCOPE_SLEEF)
  find_path(SLEEF_INCLUDE_DIR NAMES sleef.h)
  find_library(SLEEF_LIBRARY NAMES sleef)
  if(NOT (SLEEF_INCLUDE_DIR AND SLEEF_LIBRARY))
    message(STATUS "qkscope: SLEEF not found: some RoPE frequencies will differ from PyTorch's in the last bit")
  endif()
else()
  set(SLEEF_LIBRARY OFF)  # hides one that was found before
  message(STATUS "qkscope: SLEEF is switched off: some RoPE frequencies will differ from PyTorch's in the last bit")
endif()

# libcurl and OpenSSL talk to the Hugging Face Hub.
option(QKSCOPE_NETWORK "Use libcurl and OpenSSL where they are found" ON)
set(QKSCOPE_HAVE_NETWORK OFF)
if(QKSCOPE_NETWORK)
  find_package(CURL 7.87 QUIET)  # older ones can end the program by SIGPIPE
  find_package(OpenSSL 3 QUIET COMPONENTS Crypto)
  if(CURL_FOUND AND OpenSSL_FOUND)
    set(QKSCOPE_HAVE_NETWORK ON)
  else()
    message(STATUS "qkscope: libcurl or OpenSSL not found: nothing can be downloaded or published")
  endif()
else()
  message(STATUS "qkscope: libcurl and OpenSSL are switched off: nothing can be downloaded or published")
endif()

# cpp-httplib serves the viewer. Its compile definitions change the layout of its classes, so they are taken from pkg-config.
option(QKSCOPE_SERVER "Use cpp-httplib where it is found" ON)
set(QKSCOPE_HAVE_HTTPLIB OFF)
set(QKSCOPE_HTTPLIB)
if(QKSCOPE_SERVER)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(CPP_HTTPLIB QUIET IMPORTED_TARGET cpp-httplib)
  endif()
  if(CPP_HTTPLIB_FOUND)
    set(QKSCOPE_HAVE_HTTPLIB ON)
    set(QKSCOPE_HTTPLIB PkgConfig::CPP_HTTPLIB)
  else()
    message(STATUS "qkscope: cpp-httplib (libcpp-httplib-dev, pkg-config) not found: 'qkscope view' writes pages (--export) but cannot serve them")
  endif()
else()
  message(STATUS "qkscope: cpp-httplib is switched off: 'qkscope view' writes pages (--export) but cannot serve them")
endif()

if(QKSCOPE_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
