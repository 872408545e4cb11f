# SPDX-License-Identifier: Apache-2.0
# The files that the Python package takes from the build (component "python"): the library and the
# program, in the package's folder lib. Both look for other libraries beside themselves first;
# tools/python_wheel.sh puts them there.
option(TRIREME_PYTHON "install for the Python package" OFF)
if(TRIREME_PYTHON)
  set_target_properties(trireme_shared trireme PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
  # One file under the name that loaders look for: wheels have no links.
  install(PROGRAMS $<TARGET_FILE:trireme_shared> DESTINATION lib RENAME libtrireme.so.0 COMPONENT python)
  install(PROGRAMS $<TARGET_FILE:trireme> DESTINATION lib COMPONENT python)
endif()
