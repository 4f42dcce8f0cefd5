# cmake -DVERSION=0.2.0 -DHEADERS=a.h;b.h -DOUT=module_stamp.h -P ModuleStamp.cmake
# What the library and its CUDA module must have in common: the version and the text of the headers that say how the
# things they hand each other are laid out.
set(hashes "")
foreach(header ${HEADERS})
  file(SHA256 ${header} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 hash "${hashes}")
string(SUBSTRING ${hash} 0 8 hash)
file(CONFIGURE OUTPUT ${OUT} CONTENT [[// Made by cmake/ModuleStamp.cmake.
#pragma once

#define QKSCOPE_MODULE_STAMP "@VERSION@ (@hash@)"
]] @ONLY)
