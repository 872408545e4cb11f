# SPDX-License-Identifier: Apache-2.0
# Kernels for instruction sets.
#   x_kernels.c     is written once and compiled for `plain`, avx2 and avx512 (src/base/simd/isa.h); those of
#                   kernels_with_bf16 for avx512bf16, too. Other processors than x86-64 get `plain` alone.
#   x_avx2.c, ...   exists for one instruction set only.
# Only these files may contract to FMA, and `plain` never does.
set(kernels_with_bf16 winograd gemm dense memory norm)

# clang fuses within a statement (`on`): by `fast` it fuses the loops of full vectors and of the rest differently, and strict
# determinism would depend on how ranks cut rows. gcc fuses the same in both, and takes `on` for `off`.
set(contract fast)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  set(contract on)
endif()
set(flags_of_plain -ffp-contract=off)
set(flags_of_avx2 -mavx2 -mfma -mf16c -O3 -ffp-contract=${contract})
set(flags_of_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -O3 -ffp-contract=${contract}
    -mprefer-vector-width=512)
set(flags_of_avx512bf16 ${flags_of_avx512} -mavx512bf16)
# Sanitized kernels at -O3 take minutes to compile, and are not faster for it.
if(TRIREME_SANITIZE)
  list(REMOVE_ITEM flags_of_avx2 -O3)
  list(REMOVE_ITEM flags_of_avx512 -O3)
  list(REMOVE_ITEM flags_of_avx512bf16 -O3)
endif()
set(isas plain)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND isas avx2 avx512 avx512bf16)
endif()

# Removes the kernel files from the list `sources`, makes an object library for each instruction set from them, and
# sets the list `objects` to their objects. `common`: a library whose options and definitions they share.
function(trireme_kernels sources objects common)
  set(kernels ${${sources}})
  list(FILTER kernels INCLUDE REGEX "_kernels\\.c$")
  set(rest ${${sources}})
  list(FILTER rest EXCLUDE REGEX "_kernels\\.c$")
  set(made "")
  foreach(isa IN LISTS isas)
    set(mine ${kernels})
    if(isa STREQUAL "avx512bf16")
      string(JOIN "|" names ${kernels_with_bf16})
      list(FILTER mine INCLUDE REGEX "/(${names})_kernels\\.c$")
    endif()
    add_library(trireme_${isa} OBJECT ${mine})
    target_link_libraries(trireme_${isa} PRIVATE ${common})
    target_compile_definitions(trireme_${isa} PRIVATE TRMI_ISA=${isa})
    target_compile_options(trireme_${isa} PRIVATE ${flags_of_${isa}})
    list(APPEND made $<TARGET_OBJECTS:trireme_${isa}>)
    foreach(source IN LISTS rest)
      if(source MATCHES "_${isa}\\.c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags_of_${isa}}")
      endif()
    endforeach()
  endforeach()
  set(${sources} ${rest} PARENT_SCOPE)
  set(${objects} ${made} PARENT_SCOPE)
endfunction()
