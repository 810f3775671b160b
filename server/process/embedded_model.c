#include "embedded_model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// EMBEDDED_MODEL is the file's path when this is compiled.
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        "embedded_model_begin:\n"
        ".incbin \"" EMBEDDED_MODEL "\"\n"
        "embedded_model_end:\n"
        ".byte 0\n"
        ".popsection\n");
extern const char embedded_model_begin[] __attribute__((visibility("hidden")));
extern const char embedded_model_end[] __attribute__((visibility("hidden")));

enum status embedded_model_path(char *path, size_t size, struct err *err) {
    const char *from = embedded_model_begin;
    int fd = memfd_create("quire-tiny.gguf", MFD_CLOEXEC);
    if (fd < 0)
        return err_set(err, STATUS_IO, "the embedded model: no file in memory: %s", strerror(errno));
    while (from < embedded_model_end) {
        ssize_t n = write(fd, from, (size_t)(embedded_model_end - from));
        if (n <= 0) {
            close(fd);
            return err_set(err, STATUS_NOMEM, "the embedded model: out of memory");
        }
        from += n;
    }
    snprintf(path, size, "/proc/self/fd/%d", fd);
    return STATUS_OK;
}
