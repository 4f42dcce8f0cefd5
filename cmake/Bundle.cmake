# Run by the installation of the component `bundle`: puts beside the programs what they need and a bare system
# with glibc does not have. Libraries go to lib/qkscope, where those of qkscope look; gnuplot and its font to
# libexec/qkscope; of everything the licence and the version of the Debian package it came from to
# share/doc/qkscope/licences.
foreach(needed PATCHELF GNUPLOT FONTS)
  if(NOT ${needed})
    message(FATAL_ERROR "The bundle needs patchelf, gnuplot and Liberation fonts; one of them was not found when "
      "CMake configured. './run.sh package' installs them.")
  endif()
endforeach()
file(REAL_PATH "${GNUPLOT}" gnuplot)
set(HELPERS ${gnuplot})
include(${CMAKE_CURRENT_LIST_DIR}/Bundled.cmake)
set(libraries "${prefix}/${LIBDIR}/qkscope")
set(helpers "${prefix}/${LIBEXECDIR}/qkscope")
file(MAKE_DIRECTORY ${libraries} ${helpers}/fonts)

# place(FILE AS RPATH): a copy that looks for its libraries at RPATH.
function(place file as rpath)
  file(COPY_FILE ${file} ${as})
  file(CHMOD ${as} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  execute_process(COMMAND ${PATCHELF} --set-rpath ${rpath} ${as} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(library ${needed})
  get_filename_component(name ${library} NAME)
  file(REAL_PATH ${library} file)
  place(${file} ${libraries}/${name} "$ORIGIN")
  keep_licence(${file})
endforeach()

file(RELATIVE_PATH to_libraries ${helpers} ${libraries})
place(${gnuplot} ${helpers}/gnuplot-nox "$ORIGIN/${to_libraries}")
keep_licence(${gnuplot})
file(GLOB fonts ${FONTS}/LiberationSans-*.ttf)
foreach(font ${fonts})
  file(REAL_PATH ${font} font)
  file(COPY ${font} DESTINATION ${helpers}/fonts)
  keep_licence(${font})
endforeach()
# The system's fonts come after ours, for characters that ours do not have.
file(WRITE ${helpers}/fonts.conf [[<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
]])
file(WRITE ${helpers}/gnuplot [[#!/bin/sh
# The gnuplot that comes with qkscope, with the font that comes with it.
here=${0%/*}
FONTCONFIG_FILE=$here/fonts.conf exec "$here/gnuplot-nox" "$@"
]])
file(CHMOD ${helpers}/gnuplot PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
