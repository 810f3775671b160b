#include "journal.h"

#include "log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum status journal_open(struct journal *j, const char *what, const char *path, struct err *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    *j = (struct journal){.what = what};
    if (fd < 0 || fchmod(fd, 0600) != 0 || !(j->file = fdopen(fd, "w"))) {
        if (fd >= 0)
            close(fd);
        return err_set(err, STATUS_IO, "cannot write the %s file '%s'", what, path);
    }
    setvbuf(j->file, NULL, _IOFBF, 1 << 16);
    return STATUS_OK;
}

bool journal_ends(const struct journal *j) { return !j->file || j->failed; }

void journal_check(struct journal *j, bool flush) {
    if (journal_ends(j) || (!ferror(j->file) && (!flush || fflush(j->file) == 0)))
        return;
    j->failed = true;
    log_msg(LOG_WARN, "%s: a write failed; the %s ends here", j->what, j->what);
}

void journal_close(struct journal *j) {
    if (!j->file)
        return;
    journal_check(j, true);
    fclose(j->file);
    j->file = NULL;
}
