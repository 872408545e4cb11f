#if defined(__x86_64__)
#define NAME avx512
#define VL 16
#include "exec/onednn/winograd_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
