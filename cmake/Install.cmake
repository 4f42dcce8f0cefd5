# `cmake --install build --prefix PREFIX`: the programs, their configurations, published numbers and
# the demo's data, where src/io/data_folder.cpp looks for them. The demo's data may be missing from a
# checkout.
include(GNUInstallDirs)
set(data ${CMAKE_INSTALL_DATADIR}/qkscope)
install(TARGETS qkscope sniff-qk)
install(DIRECTORY configs DESTINATION ${data})
install(DIRECTORY share/demo DESTINATION ${data} OPTIONAL)
install(DIRECTORY share/published DESTINATION ${data})
set(rpath ${QKSCOPE_CUDA_LIBRARIES})
if(PYARROW_ARROW)  # Arrow of the Python environment goes along: the installation stands alone
  set(libraries ${CMAKE_INSTALL_LIBDIR}/qkscope)
  install(FILES ${PYARROW_ARROW} ${PYARROW_PARQUET} DESTINATION ${libraries})
  file(RELATIVE_PATH from_programs /${CMAKE_INSTALL_BINDIR} /${libraries})
  list(PREPEND rpath "$ORIGIN/${from_programs}")
endif()
set_target_properties(qkscope sniff-qk PROPERTIES INSTALL_RPATH "${rpath}")
