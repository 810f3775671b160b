#include "chat_formats.h"

#include <string.h>

// CHAT_FORMATS is the folder of the templates when this is compiled.
#define FORMAT(name)                                                                                         \
    __asm__(".pushsection .rodata\n"                                                                         \
            "chat_format_" #name ":\n"                                                                       \
            ".incbin \"" CHAT_FORMATS "/" #name ".jinja\"\n"                                                 \
            "chat_format_" #name "_end:\n"                                                                   \
            ".popsection\n");                                                                                \
    extern const char chat_format_##name[] __attribute__((visibility("hidden")));                            \
    extern const char chat_format_##name##_end[] __attribute__((visibility("hidden")))

FORMAT(chatml);
FORMAT(command_r);
FORMAT(deepseek2);
FORMAT(deepseek3);
FORMAT(gemma);
FORMAT(llama2);
FORMAT(llama3);
FORMAT(mistral);
FORMAT(phi3);
FORMAT(vicuna);
FORMAT(zephyr);

static const struct {
    const char *name, *text, *end;
} formats[] = {
#define NAMED(shown, name)                                                                                   \
    { shown, chat_format_##name, chat_format_##name##_end }
#define ROW(name) NAMED(#name, name)
    ROW(chatml),    NAMED("command-r", command_r),
    ROW(deepseek2), ROW(deepseek3),
    ROW(gemma),     ROW(llama2),
    ROW(llama3),    ROW(mistral),
    ROW(phi3),      ROW(vicuna),
    ROW(zephyr),
};

const char *chat_format(const char *name, size_t *len) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, name) == 0) {
            *len = (size_t)(formats[i].end - formats[i].text);
            return formats[i].text;
        }
    return NULL;
}

const char *chat_format_names(void) {
    return "chatml, command-r, deepseek2, deepseek3, gemma, llama2, llama3, mistral, phi3, vicuna, zephyr";
}
