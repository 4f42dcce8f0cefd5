# `cmake --install build --prefix PREFIX`: the library with its headers and CMake package, the programs,
# their configurations and the data they come with, where src/base/io/data_folder.cpp looks for it. The demo's
# data may be missing from a checkout. The component `runtime` is what programs need, `development` the rest;
# in a wheel the runtime lies in the folder of the Python package, whose neighbour pyarrow brings Arrow.
include(CMakePackageConfigHelpers)
option(QKSCOPE_WHEEL "Install into the folder of the Python package: Arrow is pyarrow's" OFF)
set(data ${CMAKE_INSTALL_DATADIR}/qkscope)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/qkscope)

install(TARGETS qkscope sniff-qk COMPONENT runtime)
install(TARGETS qkscope_shared EXPORT qkscopeTargets
        LIBRARY COMPONENT runtime NAMELINK_COMPONENT development)
install(DIRECTORY configs DESTINATION ${data} COMPONENT runtime)
install(DIRECTORY share/demo DESTINATION ${data} COMPONENT runtime OPTIONAL)
install(DIRECTORY share/published DESTINATION ${data} COMPONENT runtime)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

# The program writes its manual page and completion scripts. A wheel has no place for them.
if(NOT QKSCOPE_WHEEL AND NOT CMAKE_CROSSCOMPILING)
  set(shell ${PROJECT_BINARY_DIR}/shell)
  install(CODE "
file(MAKE_DIRECTORY \"${shell}\")
foreach(words \"manual;qkscope.1\" \"completion;bash;qkscope\" \"completion;zsh;_qkscope\" \"completion;fish;qkscope.fish\")
  list(POP_BACK words name)
  execute_process(COMMAND \"$<TARGET_FILE:qkscope>\" \${words} OUTPUT_FILE \"${shell}/\${name}\" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(WRITE \"${shell}/sniff-qk.1\" \".so man1/qkscope.1\\n\")" COMPONENT runtime)
  install(FILES ${shell}/qkscope.1 ${shell}/sniff-qk.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
  install(FILES ${shell}/qkscope DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT runtime)
  install(FILES ${shell}/_qkscope DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT runtime)
  if(QKSCOPE_PACKAGE)  # where zsh of Debian looks below /usr
    install(FILES ${shell}/_qkscope DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT runtime)
  endif()
  install(FILES ${shell}/qkscope.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT runtime)
endif()

install(DIRECTORY include/qkscope DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/include/qkscope/version.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/qkscope COMPONENT development)
install(EXPORT qkscopeTargets NAMESPACE qkscope:: DESTINATION ${package} COMPONENT development)
configure_package_config_file(cmake/qkscopeConfig.cmake.in ${PROJECT_BINARY_DIR}/qkscopeConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/qkscopeConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/qkscopeConfig.cmake ${PROJECT_BINARY_DIR}/qkscopeConfigVersion.cmake
        DESTINATION ${package} COMPONENT development)

# Arrow of the Python environment goes along: the installation stands alone.
set(library_rpath "")
if(QKSCOPE_WHEEL)
  set(library_rpath "$ORIGIN/../../pyarrow")
elseif(PYARROW_ARROW)
  install(FILES ${PYARROW_ARROW} ${PYARROW_PARQUET} ${PYARROW_S3} DESTINATION ${CMAKE_INSTALL_LIBDIR}/qkscope COMPONENT runtime)
  file(GLOB licences ${PYARROW_INCLUDE}/../../pyarrow-${PYARROW_VERSION}.dist-info/licenses/*.txt)
  install(FILES ${licences} DESTINATION ${CMAKE_INSTALL_DOCDIR}/licences/arrow COMPONENT runtime)
  set(library_rpath "$ORIGIN/qkscope")
endif()
set_target_properties(qkscope_shared PROPERTIES INSTALL_RPATH "${library_rpath}")
file(RELATIVE_PATH to_library /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(qkscope sniff-qk PROPERTIES
  INSTALL_RPATH "$ORIGIN/${to_library};$ORIGIN/${to_library}/qkscope")

# The module for NVIDIA GPUs lies where src/engine/device/cuda_loader.cpp looks for it. It finds NVIDIA's libraries where pip
# puts them beside a wheel, in the toolkit it was built with, and where the system's loader looks.
if(QKSCOPE_HAVE_CUDA)
  install(TARGETS qkscope_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/qkscope COMPONENT runtime OPTIONAL)
  set(packages cu${CUDAToolkit_VERSION_MAJOR} cublas cudnn cuda_nvrtc)
  list(TRANSFORM packages REPLACE "(.+)" "$ORIGIN/../../../nvidia/\\1/lib")
  set_target_properties(qkscope_cuda PROPERTIES INSTALL_RPATH "${packages};${QKSCOPE_CUDA_LIBRARIES}")
endif()
