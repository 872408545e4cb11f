# Engines that need a library of their own: shared objects that trm_comm_create loads when asked for.
# They call nothing of libtrireme, so they link to nothing of it.
pkg_check_modules(UCX IMPORTED_TARGET ucx)
set(TRIREME_UCX_TEXT "not found (engine ucx is left out)")
if(UCX_FOUND)
  add_library(trireme_comm_ucx MODULE ${CMAKE_CURRENT_SOURCE_DIR}/src/comm/plugins/ucx.c)
  set_target_properties(trireme_comm_ucx PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY
                        ${CMAKE_BINARY_DIR}/plugins)
  target_include_directories(trireme_comm_ucx PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src
                             ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_compile_options(trireme_comm_ucx PRIVATE -Wall -Wextra -Wshadow -Wstrict-prototypes)
  target_link_libraries(trireme_comm_ucx PRIVATE PkgConfig::UCX)
  install(TARGETS trireme_comm_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/trireme)
  set(TRIREME_UCX_TEXT "${UCX_VERSION}, plug-in trireme_comm_ucx.so")
endif()
