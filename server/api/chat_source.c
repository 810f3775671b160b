#include "chat_source.h"

#include "chat_formats.h"
#include "jinja/chat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEMPLATE = 1 << 20 };

static enum status read_file(struct buf *b, const char *path, struct err *err) {
    FILE *f = fopen(path, "rbe");
    if (!f)
        return err_set(err, STATUS_IO, "--chat-template %.200s: %s; built in are %s", path, strerror(errno),
                       chat_format_names());
    char chunk[16384];
    size_t n;
    while (b->len <= MAX_TEMPLATE && (n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_add(b, chunk, n);
    bool bad = ferror(f) || b->failed;
    fclose(f);
    return bad ? err_set(err, STATUS_IO, "%s: cannot be read", path) : STATUS_OK;
}

static enum status open_tool_template(struct served_model *m, struct err *err) {
    size_t len;
    const char *source = tokenizer_tool_template(m->tokenizer, &len);
    struct err why = {0};
    if (!source || !(m->tool_chat = chat_template_new(source, len, &why)))
        return STATUS_OK; // one that cannot be used is none
    if (!(m->tool_source = strndup(source, len)))
        return err_set(err, STATUS_NOMEM, "out of memory for the chat template");
    return STATUS_OK;
}

enum status chat_open(struct served_model *m, const char *path, struct err *err) {
    struct buf file = {0};
    size_t len;
    const char *source = tokenizer_chat_template(m->tokenizer, &len);
    size_t format_len;
    const char *format = path ? chat_format(path, &format_len) : NULL;
    if (format) {
        source = format;
        len = format_len;
    } else if (path && read_file(&file, path, err) != STATUS_OK) {
        buf_free(&file);
        return err->code;
    } else if (path) {
        source = file.data ? file.data : "";
        len = file.len;
    }
    snprintf(
        m->chat_problem, sizeof m->chat_problem,
        "This model has no chat template; start the server with --chat-template NAME or FILE (built in: %s).",
        chat_format_names());
    if (source) {
        struct err why = {0};
        m->chat = chat_template_new(source, len, &why);
        if (!(m->template_source = strndup(source, len)))
            err_set(err, STATUS_NOMEM, "out of memory for the chat template");
        if (!m->chat && path)
            err_set(err, why.code, "%s: %s", path, why.msg);
        else if (!m->chat)
            snprintf(m->chat_problem, sizeof m->chat_problem,
                     "The model's chat template cannot be used: %.200s", why.msg);
    }
    buf_free(&file);
    return path || !m->chat || err->code ? err->code : open_tool_template(m, err);
}

void chat_close(struct served_model *m) {
    chat_template_free(m->chat);
    chat_template_free(m->tool_chat);
    free(m->template_source);
    free(m->tool_source);
    m->chat = m->tool_chat = NULL;
    m->template_source = m->tool_source = NULL;
}

static bool is_word_byte(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool chat_template_names(const struct served_model *m, const char *word) {
    const char *source = m->template_source, *at = source;
    size_t n = strlen(word);
    for (; n && at && (at = strstr(at, word)); at += n) {
        char before = at > source ? at[-1] : ' ';
        if (before == '.' ? !is_word_byte(at[n]) : (before == '\'' || before == '"') && at[n] == before)
            return true;
    }
    return false;
}

bool chat_template_uses(const struct served_model *m, const char *name) {
    const char *source = m->template_source, *at = source;
    size_t n = strlen(name);
    for (; at && (at = strstr(at, name)); at += n)
        if (!is_word_byte(at[n]) && (at == source || (!is_word_byte(at[-1]) && !strchr(".'\"", at[-1]))))
            return true;
    return false;
}

const char *chat_thinking_variable(const struct served_model *m) {
    return !m->chat                                   ? NULL
           : chat_template_uses(m, "enable_thinking") ? "enable_thinking"
           : chat_template_uses(m, "thinking")        ? "thinking"
                                                      : NULL;
}

const char *chat_effort_variable(const struct served_model *m) {
    return m->chat && chat_template_uses(m, "reasoning_effort") ? "reasoning_effort"
                                                                : chat_thinking_variable(m);
}

static bool reads_tools(const struct served_model *m) {
    return m->chat && (m->tool_chat || chat_template_uses(m, "tools"));
}

static bool writes_calls(const struct served_model *m) {
    return m->format && (m->format->syntax != CALLS_NONE || m->format->harmony);
}

// By name a format has to be the one in which generic tools are called; else the template says how reasoning is marked.
static void choose_generic(struct served_model *m, const char *name) {
    const struct output_format *hermes = output_format_named("hermes"),
                               *generic = output_format_named("generic"), *f = m->format;
    bool knows = reads_tools(m) && writes_calls(m);
    if (m->tools_fallback != TOOLS_GENERIC || !m->chat || knows || (name && f != hermes && f != generic))
        return;
    bool thinks = f && f->think_open;
    if (thinks && strcmp(f->think_open, hermes->think_open) != 0)
        return;
    m->generic_tools = true;
    m->format = thinks ? hermes : generic;
}

bool chat_calls_tools(const struct served_model *m) {
    return writes_calls(m) && (m->generic_tools || reads_tools(m));
}

enum status chat_set_format(struct served_model *m, const char *name, struct err *err) {
    m->format = NULL;
    if (!name && m->tool_source)
        m->format = output_format_of(m->tool_source);
    if (!name && !m->format && m->chat)
        m->format = output_format_of(m->template_source);
    else if (name && strcmp(name, "none") != 0 && !(m->format = output_format_named(name)))
        return err_set(err, STATUS_INVALID, "--tool-call-parser %.40s is not known: none, %s", name,
                       output_format_names());
    choose_generic(m, name);
    m->num_format_tokens = m->format ? output_format_tokens(m->format, m->tokenizer, m->format_tokens) : 0;
    return STATUS_OK;
}
