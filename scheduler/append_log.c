#include "append_log.h"

#include "log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum status append_log_open(struct append_log *l, const char *what, const char *path, struct err *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    *l = (struct append_log){.what = what};
    if (fd < 0 || fchmod(fd, 0600) != 0 || !(l->file = fdopen(fd, "w"))) {
        if (fd >= 0)
            close(fd);
        return err_set(err, STATUS_IO, "cannot write the %s file '%s'", what, path);
    }
    setvbuf(l->file, NULL, _IOFBF, 1 << 16);
    return STATUS_OK;
}

bool append_log_ended(const struct append_log *l) { return !l->file || l->failed; }

void append_log_check(struct append_log *l, bool flush) {
    if (append_log_ended(l) || (!ferror(l->file) && (!flush || fflush(l->file) == 0)))
        return;
    l->failed = true;
    log_msg(LOG_WARN, "%s: a write failed; the %s ends here", l->what, l->what);
}

void append_log_close(struct append_log *l) {
    if (!l->file)
        return;
    append_log_check(l, true);
    fclose(l->file);
    l->file = NULL;
}
