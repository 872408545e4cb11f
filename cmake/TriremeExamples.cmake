# SPDX-License-Identifier: Apache-2.0
# Each examples/*.c is a program against the public headers and the shared library, as a user's is.
# tests/examples_test.sh runs them.
file(GLOB example_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/*.c)
set(TRIREME_EXAMPLES "")
foreach(source IN LISTS example_sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source})
  list(APPEND TRIREME_EXAMPLES example_${name})
  set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name}
                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/examples)
  target_compile_options(example_${name} PRIVATE -Wall -Wextra -Wshadow)
  target_link_libraries(example_${name} PRIVATE trireme_shared m)
endforeach()
