/* SPDX-License-Identifier: Apache-2.0 */
/* base/simd/isa.h: what a kernel file knows about the instruction set that it is compiled for.
 *
 * A kernel file (*_kernels.c) is written once. The build compiles it once for each instruction set
 * that cmake/TriremeKernels.cmake lists, with that set's flags and with TRMI_ISA = plain, avx2,
 * avx512 or avx512bf16. The file names its table TRMI_FOR_ISA(trmi_reduce), which becomes
 * trmi_reduce_avx2 and so on; TRMI_CPU_CHOICE (base/cpu.h) selects one of them at run time. */
#ifndef TRMI_BASE_ISA_H
#define TRMI_BASE_ISA_H

#define TRMI_PASTE_TOKENS(a, b) a##_##b
#define TRMI_PASTE(a, b) TRMI_PASTE_TOKENS(a, b)
#define TRMI_QUOTE_TOKEN(a) #a
#define TRMI_QUOTE(a) TRMI_QUOTE_TOKEN(a)

/* trmi_reduce becomes trmi_reduce_avx2. */
#define TRMI_FOR_ISA(name) TRMI_PASTE(name, TRMI_ISA)
/* "avx2" */
#define TRMI_ISA_NAME TRMI_QUOTE(TRMI_ISA)

/* Bytes of the widest vector register; 16 is what every x86-64 and ARM64 has. */
#if defined(__AVX512F__)
#define TRMI_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define TRMI_VECTOR_BYTES 32
#else
#define TRMI_VECTOR_BYTES 16
#endif

#endif
