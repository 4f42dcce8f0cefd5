# What a package brings along of other projects, for the scripts that run at installation: `needed`, the libraries that the
# programs and HELPERS need and a bare system with glibc does not have, and keep_licence(), for share/doc/qkscope/licences.
set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
set(licence_folder "${prefix}/${DOCDIR}/licences")
file(MAKE_DIRECTORY ${licence_folder})
file(WRITE ${licence_folder}/PACKAGES "Bundled from these Debian packages; their sources are Debian's, by name and version:\n")

# Left out: glibc, without which nothing starts; what qkscope installs itself; NVIDIA's libraries.
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${PROGRAMS} ${HELPERS}
  LIBRARIES ${LIBRARY}
  RESOLVED_DEPENDENCIES_VAR needed
  PRE_EXCLUDE_REGEXES "^(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util|anl|mvec))\\.so" "^lib(qkscope|arrow|parquet)"
                      "^lib(cuda|cublas|cudnn|nv)")

# keep_licence(FILE): the copyright file of the package that FILE came from, and a line in the list.
function(keep_licence file)
  string(REGEX REPLACE "^/usr" "" unmerged ${file})  # Debian 12 knows some files by the name they had before
  foreach(path ${file} ${unmerged})
    execute_process(COMMAND dpkg-query -S ${path} OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
      break()
    endif()
  endforeach()
  if(failed)
    message(FATAL_ERROR "${file} belongs to no Debian package: its licence is unknown and it cannot be bundled")
  endif()
  string(REGEX REPLACE "[:,].*" "" package "${owner}")
  if(NOT EXISTS ${licence_folder}/${package})
    file(COPY_FILE /usr/share/doc/${package}/copyright ${licence_folder}/${package})
    execute_process(COMMAND dpkg-query -W -f "\${Package} \${Version}, source \${source:Package} \${source:Version}\n" ${package}
      OUTPUT_VARIABLE line)
    file(APPEND ${licence_folder}/PACKAGES "${line}")
  endif()
endfunction()
