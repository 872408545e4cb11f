#include "exec/onednn/conv_fuse.h"

int64_t trmi_conv_parts_floats(const trmi_conv_problem *p, int64_t channels, int64_t blocks) {
    return p->epilogue == TRMI_CONV_PLAIN ? 0 : 3 * channels * blocks;
}

void trmi_conv_leave(const trmi_conv_problem *problem, const trmi_conv_args *args,
                     const trmi_fuse_isa *isa, const trmi_fuse_block *block,
                     const trmi_conv_parts *parts, int64_t index) {
    float *a = trmi_conv_part(parts, index, 0, block->column);
    float *b = trmi_conv_part(parts, index, 1, block->column);
    if (problem->epilogue == TRMI_CONV_STATISTICS) {
        isa->statistics(block, a, b, trmi_conv_part(parts, index, 2, block->column));
    } else {
        isa->gradient(block, &args->norm, a, b);
    }
}

/* Mean and M2 of a channel by Chan et al. 1979. */
static void combine_statistics(const trmi_conv_parts *p, int64_t c, double *mean, double *m2) {
    double n = 0;
    *mean = *m2 = 0;
    for (int64_t b = 0; b < p->blocks; b++) {
        if (p->rows[b] == 0) {
            continue;
        }
        double count = (double)p->rows[b], sum = (double)*trmi_conv_part(p, b, 1, c);
        double block_mean = (double)*trmi_conv_part(p, b, 0, c) + sum / count;
        double block_m2 = (double)*trmi_conv_part(p, b, 2, c) - sum * sum / count;
        double delta = block_mean - *mean, total = n + count;
        *mean += delta * count / total;
        *m2 += (block_m2 > 0 ? block_m2 : 0) + delta * delta * n * count / total;
        n = total;
    }
}

void trmi_conv_combine(const trmi_conv_problem *problem, const trmi_conv_args *args,
                       const trmi_conv_parts *parts) {
#pragma omp for schedule(static)
    for (int64_t c = 0; c < parts->channels; c++) {
        if (problem->epilogue == TRMI_CONV_STATISTICS) {
            combine_statistics(parts, c, &args->sum[c], &args->sum_x[c]);
            continue;
        }
        double sum = 0, sum_x = 0;
        for (int64_t b = 0; b < parts->blocks; b++) {
            if (parts->rows[b] == 0) {
                continue;
            }
            sum += (double)*trmi_conv_part(parts, b, 0, c);
            sum_x += (double)*trmi_conv_part(parts, b, 1, c);
        }
        args->sum[c] = sum;
        args->sum_x[c] = sum_x;
    }
}
