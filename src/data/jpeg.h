/* data/jpeg.h: JPEG bytes to interleaved RGB, through libjpeg-turbo. */
#ifndef TRMI_DATA_JPEG_H
#define TRMI_DATA_JPEG_H

#include "data/source.h"

typedef struct trmi_jpeg {
    int64_t height, width; /* as the header says */
    bool cmyk;             /* CMYK or YCCK */
    bool inverted;         /* an Adobe marker: 255 means no ink */
} trmi_jpeg;

/* Reads the header. TRM_CORRUPT for other formats (named by content), for damage, and for images
 * over 65,500 a side or 256 million pixels. */
trm_status trmi_jpeg_open(trmi_scratch *scratch, const uint8_t *data, size_t bytes, trmi_jpeg *out,
                          trm_error *err);
/* Decodes at 1/divisor (1, 2, 4, 8), with plain chroma upsampling unless `exact`, into the scratch: ceil(height/divisor) rows of *row_bytes.
 * TRM_CORRUPT if the data ends early or is damaged. */
trm_status trmi_jpeg_decode(trmi_scratch *scratch, const uint8_t *data, size_t bytes,
                            const trmi_jpeg *jpeg, int divisor, bool exact,
                            const uint8_t **pixels, int64_t *row_bytes, trm_error *err);
void trmi_jpeg_close(trmi_scratch *scratch);

#endif
