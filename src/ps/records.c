#include "ps/records.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <fcntl.h>
#include <unistd.h>

trm_status trmi_records_each(const char *path, size_t most, const trmi_record_form *form, void *context, size_t *end,
                             trm_error *err) {
    uint8_t *data;
    size_t bytes, one;
    *end = 0;
    if (access(path, F_OK) != 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_os_read_file(path, most, &data, &bytes, err));
    trm_status status = TRM_OK;
    while (*end < bytes && (one = form->sound(data + *end, bytes - *end)) > 0 &&
           (status = form->take(context, data + *end, one, err)) == TRM_OK) {
        *end += one;
    }
    trmi_free(data);
    return status == TRM_END ? TRM_OK : status;
}

trm_status trmi_records_open(const char *path, size_t end, int *fd, trm_error *err) {
    int opened = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (opened < 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot open", path);
    }
    if (ftruncate(opened, (off_t)end) != 0) {
        trm_status status = TRMI_FAIL_SYS(err, "%s: cannot cut off a torn end", path);
        close(opened);
        return status;
    }
    *fd = opened;
    return TRM_OK;
}

trm_status trmi_records_append(int fd, const void *record, size_t bytes, bool sync, const char *what, trm_error *err) {
    if (fd < 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_os_write_all(NULL, fd, record, bytes, what, err));
    return !sync || fdatasync(fd) == 0 ? TRM_OK : TRMI_FAIL_SYS(err, "%s: cannot flush", what);
}
