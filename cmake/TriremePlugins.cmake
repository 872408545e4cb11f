# SPDX-License-Identifier: Apache-2.0
# Engines that need a library of their own: shared objects that trm_comm_create loads when asked for.
# They call nothing of libtrireme, so they link to nothing of it.
set(TRIREME_PLUGINS "")
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
  install(TARGETS trireme_comm_ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/trireme COMPONENT ucx)
  list(APPEND TRIREME_PLUGINS trireme_comm_ucx)
  set(TRIREME_UCX_TEXT "${UCX_VERSION}, plug-in trireme_comm_ucx.so")
endif()

# One plug-in for each MPI whose compiler is found: a program is started by one of them and must speak its.
set(TRIREME_MPI_TEXT "")
set(mpi_strip "")
if(TRIREME_DEB) # packages hold stripped files; CPack strips what CMake itself links
  set(mpi_strip -s)
endif()
foreach(compiler mpicc.openmpi mpicc.mpich mpicc)
  find_program(TRIREME_${compiler} ${compiler})
  if(NOT TRIREME_${compiler})
    continue()
  endif()
  file(WRITE ${CMAKE_BINARY_DIR}/which_mpi.c "#include <mpi.h>\n#ifdef OPEN_MPI\nopenmpi\n#elif defined MPICH_VERSION\nmpich\n#endif\n")
  execute_process(COMMAND ${TRIREME_${compiler}} -E -P ${CMAKE_BINARY_DIR}/which_mpi.c
                  OUTPUT_VARIABLE mpi_text ERROR_QUIET RESULT_VARIABLE mpi_result)
  string(REGEX MATCH "(openmpi|mpich)[ \n]*$" mpi_family "${mpi_text}")
  string(STRIP "${mpi_family}" mpi_family)
  if(NOT mpi_result EQUAL 0 OR NOT mpi_family OR TARGET trireme_comm_mpi_${mpi_family})
    continue()
  endif()
  set(mpi_plugin ${CMAKE_BINARY_DIR}/plugins/trireme_comm_mpi_${mpi_family}.so)
  add_custom_command(OUTPUT ${mpi_plugin}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/plugins
    COMMAND ${TRIREME_${compiler}} -std=c11 -O2 -g -fPIC -shared ${mpi_strip} -fvisibility=hidden -Wall -Wextra
            -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
            ${CMAKE_SOURCE_DIR}/src/comm/plugins/mpi.c -o ${mpi_plugin}
    DEPENDS ${CMAKE_SOURCE_DIR}/src/comm/plugins/mpi.c ${CMAKE_SOURCE_DIR}/src/comm/plugins/frame.h
            ${CMAKE_SOURCE_DIR}/src/comm/net/transport.h
            ${CMAKE_SOURCE_DIR}/src/comm/api/engine.h
    COMMENT "plug-in for ${mpi_family}" VERBATIM)
  add_custom_target(trireme_comm_mpi_${mpi_family} ALL DEPENDS ${mpi_plugin})
  install(PROGRAMS ${mpi_plugin} DESTINATION ${CMAKE_INSTALL_LIBDIR}/trireme COMPONENT ${mpi_family})
  list(APPEND TRIREME_PLUGINS trireme_comm_mpi_${mpi_family})
  list(APPEND TRIREME_MPI_TEXT "trireme_comm_mpi_${mpi_family}.so")
endforeach()
if(NOT TRIREME_MPI_TEXT)
  set(TRIREME_MPI_TEXT "no mpicc found (engine mpi is left out)")
endif()
