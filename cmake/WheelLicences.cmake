# Run by the installation of the component `licences`: the licences of the libraries that auditwheel puts into a wheel.
include(${CMAKE_CURRENT_LIST_DIR}/Bundled.cmake)
foreach(library ${needed})
  file(REAL_PATH ${library} file)
  keep_licence(${file})
endforeach()
