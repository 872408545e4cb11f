# SPDX-License-Identifier: Apache-2.0
# libtrireme.so/.a, headers, pkg-config, a CMake package, man pages, the program. A component is a Debian package
# (TriremePackages.cmake): library, development, program, and one for each plug-in (TriremePlugins.cmake).
include(CMakePackageConfigHelpers)

install(TARGETS trireme_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
        NAMELINK_COMPONENT development)
install(TARGETS trireme_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
if(TARGET trireme)
  install(TARGETS trireme RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
install(DIRECTORY include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")
install(DIRECTORY examples/hardware DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme COMPONENT program
        FILES_MATCHING PATTERN "*.json")
foreach(page trireme.1 libtrireme.3)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/man/${page})
  execute_process(COMMAND gzip -9nc ${CMAKE_SOURCE_DIR}/docs/man/${page} OUTPUT_FILE ${CMAKE_BINARY_DIR}/${page}.gz)
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/trireme.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${CMAKE_BINARY_DIR}/libtrireme.3.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT development)

# The libraries that a static link needs beside the archive.
set(TRIREME_PRIVATE_REQUIRES "jansson libturbojpeg libpng zlib libcrypto")
set(TRIREME_PRIVATE_LIBS "-lm -lpthread -ldl")
if(OpenMP_omp_LIBRARY) # clang's: by name, so that gcc can link against it, too
  get_filename_component(omp_folder ${OpenMP_omp_LIBRARY} DIRECTORY)
  string(APPEND TRIREME_PRIVATE_LIBS " -L${omp_folder} -lomp")
elseif(OpenMP_C_FOUND)
  string(APPEND TRIREME_PRIVATE_LIBS " ${OpenMP_C_FLAGS}")
endif()
if(TRIREME_ONEDNN)
  get_filename_component(dnnl_folder ${DNNL_LIBRARY} DIRECTORY)
  string(APPEND TRIREME_PRIVATE_LIBS " -L${dnnl_folder} -ldnnl")
endif()
# Relative to the file itself, so that `cmake --install --prefix` and a moved folder stay right.
file(RELATIVE_PATH TRIREME_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_SOURCE_DIR}/cmake/trireme.pc.in ${CMAKE_BINARY_DIR}/trireme.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/trireme.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)

configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/TriremeConfig.cmake.in
  ${CMAKE_BINARY_DIR}/TriremeConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TriremeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TriremeConfig.cmake ${CMAKE_BINARY_DIR}/TriremeConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme COMPONENT development)
