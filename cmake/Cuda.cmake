# CUDA: where nvcc is there the module for NVIDIA GPUs is built (src/device/cuda). QKSCOPE_HAVE_CUDA and
# QKSCOPE_HAVE_CUDNN say what was found, QKSCOPE_GPU_HERE whether this machine has a GPU to use it on.
option(QKSCOPE_CUDA "Build the CUDA module where nvcc is found" ON)
option(QKSCOPE_CUDA_ALL "Code for every generation of GPUs, as a package needs it, not for the one in this machine alone"
       ${SKBUILD})
set(QKSCOPE_HAVE_CUDA OFF)
set(QKSCOPE_HAVE_CUDNN OFF)
if(NOT QKSCOPE_CUDA)
  message(STATUS "qkscope: CUDA is switched off: models run on the CPU")
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  find_program(QKSCOPE_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
  if(NOT QKSCOPE_NVCC)
    message(STATUS "qkscope: nvcc not found: models run on the CPU")
    return()
  endif()
  set(CMAKE_CUDA_COMPILER ${QKSCOPE_NVCC})
endif()

# The generations: those of this machine's GPUs; every one for packages, and PTX for what comes after; where there is
# neither, the oldest that the kernels can use, which the driver of a newer GPU translates when it first runs.
execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
  OUTPUT_VARIABLE generations ERROR_QUIET)
string(REGEX MATCHALL "[0-9]+\\.[0-9]" generations "${generations}")
list(TRANSFORM generations REPLACE "\\." "")
list(REMOVE_DUPLICATES generations)
list(FILTER generations EXCLUDE REGEX "^.$|^[1-7].$")  # too old
set(QKSCOPE_GPU_HERE OFF)
if(generations)
  set(QKSCOPE_GPU_HERE ON)
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  if(QKSCOPE_CUDA_ALL)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90-real 100-real 120)
  elseif(generations)
    list(TRANSFORM generations APPEND -real OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
  else()
    set(CMAKE_CUDA_ARCHITECTURES 80)
  endif()
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_STANDARD 20)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that this nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
endif()
set(QKSCOPE_HAVE_CUDA ON)
set(QKSCOPE_CUDA_LIBRARIES ${CUDAToolkit_LIBRARY_DIR})  # where the installed module finds them

# cuDNN's front end is headers, from its Python package.
execute_process(
  COMMAND ${QKSCOPE_PYTHON} -c "import sysconfig; print(sysconfig.get_path('purelib') + '/include')"
  OUTPUT_VARIABLE PYTHON_HEADERS OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_path(CUDNN_FRONTEND_INCLUDE_DIR NAMES cudnn_frontend.h HINTS ${PYTHON_HEADERS})
find_path(CUDNN_INCLUDE_DIR NAMES cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY NAMES cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
if(CUDNN_FRONTEND_INCLUDE_DIR AND CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY)
  set(QKSCOPE_HAVE_CUDNN ON)
  get_filename_component(folder ${CUDNN_LIBRARY} DIRECTORY)
  list(APPEND QKSCOPE_CUDA_LIBRARIES ${folder})
  list(REMOVE_DUPLICATES QKSCOPE_CUDA_LIBRARIES)
else()
  message(STATUS "qkscope: cuDNN or its front end's headers not found: attention on CUDA uses our own kernel alone, which is slower on Hopper")
endif()
message(STATUS "qkscope: CUDA ${CUDAToolkit_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
