# SPDX-License-Identifier: Apache-2.0
# Debian packages by CPack (`make deb`, tools/deb.sh): libtrireme0 (the shared library), libtrireme-dev (what programs are built
# with), trireme (the program), and libtrireme-ucx, -openmpi, -mpich: plug-ins, each with a package of its own, so that the library
# itself needs neither UCX nor MPI. dpkg-shlibdeps finds what each package needs.
option(TRIREME_DEB "prepare Debian packages (tools/deb.sh)" OFF)
if(NOT TRIREME_DEB)
  return()
endif()
set(TRIREME_MAINTAINER "Trireme authors <trireme@packages.debian.org>" CACHE STRING "maintainer of the Debian packages")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME trireme)
set(CPACK_PACKAGE_CONTACT "${TRIREME_MAINTAINER}")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
    WORLD_READ WORLD_EXECUTE)

# The text that `apt show` prints; Debian's changelog points at ours.
string(TIMESTAMP TRIREME_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${CMAKE_BINARY_DIR}/packages/changelog.Debian
     "trireme (${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
     "  * Version ${PROJECT_VERSION}; its changes are in changelog.gz.\n\n"
     " -- ${TRIREME_MAINTAINER}  ${TRIREME_PACKAGE_DATE}\n")
execute_process(COMMAND gzip -9n --force --keep ${CMAKE_BINARY_DIR}/packages/changelog.Debian)
execute_process(COMMAND gzip -9nc ${CMAKE_SOURCE_DIR}/CHANGELOG.md
                OUTPUT_FILE ${CMAKE_BINARY_DIR}/packages/changelog.gz)
file(WRITE ${CMAKE_BINARY_DIR}/packages/copyright
     "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
     "Upstream-Name: Trireme\n\nFiles: *\nCopyright: 2026 The Trireme authors\nLicense: Apache-2.0\n"
     " The full text is in /usr/share/common-licenses/Apache-2.0.\n")

# Declares a package: component, its name, what `apt show` says first, and more of it.
set(TRIREME_PACKAGES "")
function(trireme_package component name summary text)
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${key}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${ARGN}" PARENT_SCOPE)
  set(TRIREME_PACKAGES ${TRIREME_PACKAGES} ${component} PARENT_SCOPE)
  install(FILES ${CMAKE_BINARY_DIR}/packages/changelog.Debian.gz ${CMAKE_BINARY_DIR}/packages/changelog.gz
                ${CMAKE_BINARY_DIR}/packages/copyright DESTINATION share/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()
set(same_version "${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}")
set(about "Trireme trains neural networks on one device, on many through collectives,
on many through a plan that is found and proven automatically, or with
parameter servers. It is written in C.")
trireme_package(library libtrireme0 "distributed deep-learning training (library)" "${about}")
trireme_package(development libtrireme-dev "distributed deep-learning training (development)"
  "${about}\n.\nHeaders, the static library, pkg-config and CMake files."
  "libtrireme0 (= ${same_version}), libdnnl-dev, libjansson-dev, libturbojpeg0-dev, libpng-dev, zlib1g-dev, libssl-dev, libxxhash-dev")
trireme_package(program trireme "distributed deep-learning training (program)"
  "${about}\n.\nThe program: train, evaluate, plan, launch ranks, and more.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS libtrireme-ucx)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS libtrireme-ucx)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "libtrireme-openmpi, libtrireme-mpich")
foreach(plugin ${TRIREME_PLUGINS})
  string(REGEX REPLACE "^trireme_comm_(mpi_)?" "" engine ${plugin})
  trireme_package(${engine} libtrireme-${engine} "distributed deep-learning training (${engine})"
    "${about}\n.\nThe plug-in that moves data between hosts by ${engine}." "libtrireme0 (= ${same_version}) | trireme (= ${same_version})")
endforeach()
set(CPACK_COMPONENTS_ALL ${TRIREME_PACKAGES})
# CPack's own scripts call ldconfig, too; Debian's policy wants the trigger.
file(WRITE ${CMAKE_BINARY_DIR}/packages/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/packages/triggers)
include(CPack)
