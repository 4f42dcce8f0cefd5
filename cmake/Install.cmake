# `cmake --install build --prefix PREFIX`: the programs, their configurations and the demo's data,
# where `qkscope demo` looks for them. The demo's data may be missing from a checkout.
include(GNUInstallDirs)
set(data ${CMAKE_INSTALL_DATADIR}/qkscope)
# Arrow may come from the project's Python environment: the programs keep the way to it.
set_target_properties(qkscope sniff-qk PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS qkscope sniff-qk)
install(DIRECTORY configs DESTINATION ${data})
install(DIRECTORY share/demo DESTINATION ${data} OPTIONAL)
