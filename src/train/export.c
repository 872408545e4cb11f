#include "trireme/export.h"

#include "train/gather.h"

#include "base/error.h"

trm_status trm_export_safetensors(trm_model *model, const char *path, trm_error *err) {
    trmi_arena arena = {0};
    trm_named_tensor *tensors;
    int64_t count;
    const trm_text_pair metadata[] = {{"format", "pt"}, {"producer", "trireme"}};
    trm_status status = trmi_gather(trm_model_exec(model), false, &arena, &tensors, &count, err);
    if (status == TRM_OK) {
        status = trm_safetensors_write(path, tensors, count, metadata, 2, err);
    }
    trmi_arena_free(&arena);
    return status;
}
