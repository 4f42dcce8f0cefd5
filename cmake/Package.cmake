# `./run.sh package`, which is `cpack` in build-package/: a .tar.gz that stands alone beside glibc (Bundle.cmake
# adds libraries, gnuplot and a font), and a .deb that depends on Debian's packages for what Debian has. Both
# hold the programs, the library, its headers and the demo's data.
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_CONTACT "the authors of qkscope")
set(CPACK_PACKAGE_FILE_NAME qkscope-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)

# One package of chosen components: what `cmake --install` gives, and in the .tar.gz the bundle.
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/PackageGenerator.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_NAME qkscope)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "gnuplot-nox | gnuplot, fonts-liberation")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)

# Arrow is there before dpkg-shlibdeps looks, but in a folder of its own.
if(PYARROW_ARROW)
  get_filename_component(folder ${PYARROW_ARROW} DIRECTORY)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${folder} $<TARGET_FILE_DIR:qkscope_shared>)
endif()

if(QKSCOPE_PACKAGE)
  find_program(PATCHELF_PROGRAM patchelf)
  find_program(GNUPLOT_PROGRAM gnuplot)
  find_path(LIBERATION_FONTS LiberationSans-Regular.ttf PATHS /usr/share/fonts/truetype/liberation)
  foreach(component bundle licences)
    install(CODE "
set(PROGRAMS \"$<TARGET_FILE:qkscope>\" \"$<TARGET_FILE:sniff-qk>\")
set(LIBRARY \"$<TARGET_FILE:qkscope_shared>\")
set(PATCHELF \"${PATCHELF_PROGRAM}\")
set(GNUPLOT \"${GNUPLOT_PROGRAM}\")
set(FONTS \"${LIBERATION_FONTS}\")
set(LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
set(LIBEXECDIR \"${CMAKE_INSTALL_LIBEXECDIR}\")
set(DOCDIR \"${CMAKE_INSTALL_DOCDIR}\")" COMPONENT ${component} EXCLUDE_FROM_ALL)
  endforeach()
  install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/Bundle.cmake COMPONENT bundle EXCLUDE_FROM_ALL)
  install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/WheelLicences.cmake COMPONENT licences EXCLUDE_FROM_ALL)
endif()
include(CPack)
