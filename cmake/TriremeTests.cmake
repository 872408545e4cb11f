# SPDX-License-Identifier: Apache-2.0
# One program per *_test.c, beside the code (src/) or across rooms (tests/). Each is one CTest.

# Seconds after which a test hangs for sure; what waits in a test has a deadline of its own. Scripts that take 30 s took 400 at load
# 25 on two CPUs; a sanitizer makes all several times slower.
set(TEST_SECONDS 900)
set(FUZZ_SECONDS 300)
set(SCRIPT_SECONDS 900)
if(TRIREME_SANITIZE)
  set(TEST_SECONDS 3000)
  set(FUZZ_SECONDS 900)
  set(SCRIPT_SECONDS 3000)
endif()

# Scaffolding for the tests of several rooms: ranks of one process, a simulated network, an
# interpreter of graphs. Objects, not an archive: the simulated network fills a weak symbol of the
# library.
file(GLOB scaffold_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/lib/*.c)
add_library(trireme_scaffold OBJECT ${scaffold_sources})
target_compile_definitions(trireme_scaffold PRIVATE _GNU_SOURCE)
target_compile_options(trireme_scaffold PRIVATE -Wall -Wextra)
target_include_directories(trireme_scaffold PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(trireme_scaffold PUBLIC trireme_static)

# The target tests_of_ROOM builds the programs of one room's tests.
function(trireme_room_needs room program)
  if(NOT TARGET tests_of_${room})
    add_custom_target(tests_of_${room})
  endif()
  add_dependencies(tests_of_${room} ${program})
endfunction()

function(trireme_test source)
  get_filename_component(name ${source} NAME_WE)
  # The label is the room: src/ROOM/part/x_test.c, or tests/x_test.c.
  string(REGEX REPLACE "^${CMAKE_SOURCE_DIR}/(src/)?([^/]+)/.*" "\\2" room ${source})
  add_executable(${name} ${source})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE
    TRIREME_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TRIREME_BUILD_DIR="${CMAKE_BINARY_DIR}")
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wno-unused-parameter)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE trireme_scaffold trireme_bench PkgConfig::CMOCKA)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  trireme_room_needs(${room} ${name})
  add_test(NAME ${room}/${name} COMMAND ${name})
  set_tests_properties(${room}/${name} PROPERTIES TIMEOUT ${TEST_SECONDS} LABELS ${room}
                       ENVIRONMENT "OMP_WAIT_POLICY=passive")
endfunction()

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*_test.c
     ${CMAKE_SOURCE_DIR}/tests/*_test.c)
foreach(source IN LISTS test_sources)
  if(NOT TRIREME_ONEDNN AND source MATCHES "/exec/cpu/")
    continue()
  endif()
  trireme_test(${source})
endforeach()

# The calls of null_arguments_test, written from the public headers.
file(GLOB public_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/trireme/*.h)
set(null_table ${CMAKE_BINARY_DIR}/tests/generated/null_arguments_table.h)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tests/generated)
add_custom_command(OUTPUT ${null_table} DEPENDS ${CMAKE_SOURCE_DIR}/tests/null_arguments.py ${public_headers}
  COMMAND python3 ${CMAKE_SOURCE_DIR}/tests/null_arguments.py ${CMAKE_SOURCE_DIR}/include ${null_table} VERBATIM)
target_sources(null_arguments_test PRIVATE ${null_table})
target_include_directories(null_arguments_test PRIVATE ${CMAKE_BINARY_DIR}/tests/generated)

# Fuzz targets: LLVMFuzzerTestOneInput, driven by fuzz_driver.c (seeded mutations of the target's
# own seeds for a fixed number of runs) here, by libFuzzer with -DTRIREME_LIBFUZZER=ON under clang.
option(TRIREME_LIBFUZZER "link the fuzz targets with libFuzzer (clang)" OFF)
file(GLOB_RECURSE fuzz_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*_fuzz.c)
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name ${source} NAME_WE)
  if(TRIREME_LIBFUZZER)
    add_executable(${name} ${source})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${source} ${CMAKE_SOURCE_DIR}/tests/fuzz_driver.c)
  endif()
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE TRIREME_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE trireme_static)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT TRIREME_LIBFUZZER)
    trireme_room_needs(fuzz ${name})
    add_test(NAME fuzz/${name} COMMAND ${name} 3000)
    set_tests_properties(fuzz/${name} PROPERTIES TIMEOUT ${FUZZ_SECONDS} LABELS fuzz)
  endif()
endforeach()

if(NOT TRIREME_SANITIZE)
  include(TriremeSim)
endif()

# Scripts: tests/*.sh, run with the built program in $TRIREME.
file(GLOB script_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*_test.sh)
foreach(script IN LISTS script_tests)
  get_filename_component(name ${script} NAME_WE)
  add_test(NAME script/${name} COMMAND bash ${script})
  set_tests_properties(script/${name} PROPERTIES TIMEOUT ${SCRIPT_SECONDS} LABELS script SKIP_RETURN_CODE 77
    ENVIRONMENT "TRIREME=${CMAKE_BINARY_DIR}/trireme;TRIREME_SOURCE=${CMAKE_SOURCE_DIR};TRIREME_BUILD=${CMAKE_BINARY_DIR};OMP_WAIT_POLICY=passive")
endforeach()
# It compiles an extension of PyTorch and runs PyTorch's own tests. Each of its steps has a deadline of its own.
set_tests_properties(script/torch_backend_test PROPERTIES TIMEOUT 3000)

add_custom_target(tests_of_script DEPENDS product)

# House rules that a machine can check.
add_test(NAME house/layers COMMAND bash ${CMAKE_SOURCE_DIR}/tools/layers.sh ${CMAKE_SOURCE_DIR})
add_test(NAME house/length COMMAND bash ${CMAKE_SOURCE_DIR}/tools/length.sh ${CMAKE_SOURCE_DIR})
add_test(NAME house/headers COMMAND bash ${CMAKE_SOURCE_DIR}/tools/headers.sh ${CMAKE_SOURCE_DIR}
         ${CMAKE_C_COMPILER})
add_test(NAME house/circles COMMAND python3 ${CMAKE_SOURCE_DIR}/tools/circles.py ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
add_test(NAME house/format COMMAND bash ${CMAKE_SOURCE_DIR}/tools/format.sh ${CMAKE_SOURCE_DIR})
set_tests_properties(house/format PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME house/unused COMMAND python3 ${CMAKE_SOURCE_DIR}/tools/unused.py ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
add_test(NAME house/words COMMAND python3 ${CMAKE_SOURCE_DIR}/tools/words.py ${CMAKE_SOURCE_DIR})
add_test(NAME house/function_names COMMAND python3 ${CMAKE_SOURCE_DIR}/tools/function_names.py ${CMAKE_SOURCE_DIR})
add_test(NAME house/type_names COMMAND python3 ${CMAKE_SOURCE_DIR}/tools/type_names.py ${CMAKE_SOURCE_DIR})
add_test(NAME house/symbols COMMAND bash ${CMAKE_SOURCE_DIR}/tools/symbols.sh ${CMAKE_SOURCE_DIR}
         $<TARGET_FILE:trireme_shared>)
add_test(NAME house/docs COMMAND bash ${CMAKE_SOURCE_DIR}/tools/docs.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/docs)
set_tests_properties(house/docs PROPERTIES SKIP_RETURN_CODE 77)
# The Python package: its declarations are those of the headers; its tests.
add_test(NAME house/python_declarations COMMAND bash ${CMAKE_SOURCE_DIR}/tools/python_tests.sh declarations ${CMAKE_SOURCE_DIR})
set_tests_properties(house/python_declarations PROPERTIES SKIP_RETURN_CODE 77 LABELS house)
if(NOT TRIREME_SANITIZE) # a sanitized library cannot be loaded into Python
  add_test(NAME python/tests COMMAND bash ${CMAKE_SOURCE_DIR}/tools/python_tests.sh tests ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
  set_tests_properties(python/tests PROPERTIES SKIP_RETURN_CODE 77 LABELS python TIMEOUT ${SCRIPT_SECONDS} ENVIRONMENT "OMP_WAIT_POLICY=passive")
endif()
set_tests_properties(house/layers house/length house/headers house/circles house/words house/function_names house/type_names house/unused house/symbols house/docs house/format PROPERTIES LABELS house)

# Compares the algorithms of convolutions; no test runs it.
if(TRIREME_ONEDNN AND OpenMP_C_FOUND)
  add_executable(conv_bench ${CMAKE_SOURCE_DIR}/tests/conv_bench.c)
  target_compile_definitions(conv_bench PRIVATE _GNU_SOURCE)
  target_link_libraries(conv_bench PRIVATE trireme_static)
  set_target_properties(conv_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()

# Writes what another framework needs to repeat a training (tests/parity).
foreach(dump parity_dump click_dump transformer_dump)
  add_executable(${dump} ${CMAKE_SOURCE_DIR}/tests/parity/${dump}.c)
  target_compile_definitions(${dump} PRIVATE _GNU_SOURCE)
  target_link_libraries(${dump} PRIVATE trireme_static)
  set_target_properties(${dump} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endforeach()
