# Apache Arrow and Parquet: the system's package if CMake finds one, else the headers and libraries
# that the pyarrow wheel carries. Gives the target qkscope_arrow.
find_package(Arrow QUIET)
find_package(Parquet QUIET)
add_library(qkscope_arrow INTERFACE)
if(Arrow_FOUND AND Parquet_FOUND)
  target_link_libraries(qkscope_arrow INTERFACE Parquet::parquet_shared Arrow::arrow_shared)
  message(STATUS "qkscope: Arrow ${Arrow_VERSION} from the system")
else()
  execute_process(
    COMMAND ${QKSCOPE_PYTHON} -c
      "import pyarrow, glob, os; d = pyarrow.get_library_dirs()[0]; pick = lambda n: sorted(glob.glob(os.path.join(d, n)))[-1]; print(pyarrow.get_include(), pick('libarrow.so*'), pick('libparquet.so*'), pyarrow.__version__, sep=';')"
    OUTPUT_VARIABLE PYARROW OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE PYARROW_FAILED ERROR_QUIET)
  if(PYARROW_FAILED)
    message(FATAL_ERROR "qkscope needs Apache Arrow with Parquet. Found neither a CMake package nor "
      "the Python package pyarrow (asked: ${QKSCOPE_PYTHON}). './run.sh build' installs pyarrow.")
  endif()
  list(GET PYARROW 0 PYARROW_INCLUDE)
  list(GET PYARROW 1 PYARROW_ARROW)
  list(GET PYARROW 2 PYARROW_PARQUET)
  list(GET PYARROW 3 PYARROW_VERSION)
  target_include_directories(qkscope_arrow SYSTEM INTERFACE ${PYARROW_INCLUDE})
  foreach(part arrow parquet)
    string(TOUPPER ${part} upper)
    add_library(qkscope_arrow_${part} SHARED IMPORTED)
    set_target_properties(qkscope_arrow_${part} PROPERTIES IMPORTED_LOCATION ${PYARROW_${upper}})
    target_link_libraries(qkscope_arrow INTERFACE qkscope_arrow_${part})
  endforeach()
  message(STATUS "qkscope: Arrow ${PYARROW_VERSION} from pyarrow")
endif()
