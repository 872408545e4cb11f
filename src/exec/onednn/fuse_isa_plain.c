#define NAME plain
#define VL 4
#define STREAM(to, value) (*(vec_memory *)(to) = (value))
#define FENCE() ((void)0)
#include "exec/onednn/fuse_isa_body.h"
