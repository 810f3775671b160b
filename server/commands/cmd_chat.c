// quire chat [MODEL | URL]: a conversation on the terminal, with an engine in this process or a running server.
//
// Ctrl-C stops the answer only. Where standard input is no terminal each line is a message and answers are all that
// standard output gets.
#include "api/sampling_fields.h"
#include "ask_server.h"
#include "buf.h"
#include "commands.h"
#include "line_input.h"
#include "log.h"
#include "process/console.h"
#include "talk.h"
#include "terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stop, answering;

static void on_interrupt(int number) {
    static const char hint[] = "\n(ctrl-D or /quit ends)\n";
    (void)number;
    stop = 1;
    if (!answering && write(STDOUT_FILENO, hint, sizeof hint - 1) < 0)
        stop = 1;
}

struct chat_session {
    struct talk *talk;
    struct line_input in;
    json_t *messages; // without the system prompt
    char *system;     // NULL: none
    struct talk_result last;
    struct buf answer;
    enum talk_part part; // that was written last
    bool any;            // of this answer
    bool styled;         // reasoning and numbers are dim
};

static json_t *all_messages(const struct chat_session *c) {
    json_t *all = json_array();
    if (c->system)
        json_array_append_new(all, json_pack("{s:s,s:s}", "role", "system", "content", c->system));
    json_array_extend(all, c->messages);
    return all;
}

// ---- an answer

// Reasoning is dim on a terminal, and not written elsewhere; a call is a line of its own.
static void take_part(void *arg, enum talk_part part, const char *text, size_t len) {
    struct chat_session *c = arg;
    bool changed = !c->any || part != c->part;
    if (part == TALK_CONTENT)
        buf_add(&c->answer, text, len);
    if (part == TALK_REASONING && !c->in.tty)
        return;
    if (changed && c->any && c->part == TALK_REASONING)
        fputs(c->styled ? "\033[0m\n" : "\n", stdout);
    if (changed && part == TALK_REASONING && c->styled)
        fputs("\033[2m", stdout);
    if (part == TALK_CALL)
        fputs(c->any ? "\n[calls " : "[calls ", stdout);
    console_text(stdout, text, len);
    if (part == TALK_CALL)
        fputs("] ", stdout);
    fflush(stdout);
    c->part = part;
    c->any = true;
}

static void print_result(const struct chat_session *c) {
    const struct talk_result *r = &c->last;
    fputs(c->styled ? "\033[2m[" : "[", stdout);
    if (r->output >= 0)
        printf("%lld tokens, ", (long long)r->output);
    if (r->prompt >= 0)
        printf("prompt %lld (%lld cached), ", (long long)r->prompt, (long long)r->cached);
    printf("first after %.0f ms", r->first_ms);
    if (r->output > 1 && r->ms > r->first_ms)
        printf(", %.1f tokens/s", (double)(r->output - 1) * 1e3 / (r->ms - r->first_ms));
    printf("%s%s]%s\n", strcmp(r->finish, "stop") == 0 ? "" : ", ",
           strcmp(r->finish, "stop") == 0 ? "" : r->finish, c->styled ? "\033[0m" : "");
}

// Answers the messages so far. False: there is no answer, and stderr has said why.
static bool answer(struct chat_session *c) {
    const struct talk_sink sink = {take_part, c};
    struct err err = {0};
    json_t *all = all_messages(c);
    c->answer.len = 0;
    c->any = false;
    stop = 0;
    answering = 1;
    enum status status = c->talk->answer(c->talk, all, &sink, &stop, &c->last, &err);
    answering = 0;
    json_decref(all);
    if (c->any && c->part == TALK_REASONING && c->styled)
        fputs("\033[0m", stdout);
    if (c->any || status == STATUS_OK)
        putchar('\n');
    bool said = status == STATUS_OK || (status == STATUS_CANCELLED && c->answer.len);
    if (said)
        json_array_append_new(c->messages, json_pack("{s:s,s:s%}", "role", "assistant", "content",
                                                     c->answer.data ? c->answer.data : "", c->answer.len));
    if (said && c->in.tty)
        print_result(c);
    fflush(stdout);
    if (status != STATUS_OK && status != STATUS_CANCELLED)
        complain("%s", err.msg);
    return said;
}

static void drop_last(struct chat_session *c) {
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

static bool say(struct chat_session *c, const char *text, size_t len) {
    json_t *message = json_pack("{s:s,s:s%}", "role", "user", "content", text, len);
    if (!message) {
        complain("the message is not UTF-8");
        return false;
    }
    json_array_append_new(c->messages, message);
    if (answer(c))
        return true;
    drop_last(c);
    return false;
}

// ---- commands

static const char help[] =
    "/system [TEXT]     tells the model TEXT first; without TEXT, nothing\n"
    "/retry             answers the last message again\n"
    "/set [NAME VALUE]  sets how answers are sampled, such as temperature 0.7; alone, shows it\n"
    "/tokens            counts the tokens of the conversation\n"
    "/new               begins a new conversation\n"
    "/save FILE         writes the conversation to FILE, as JSON\n"
    "/load FILE         goes on with the conversation in FILE\n"
    "/help              shows this list\n"
    "/quit              ends, as /exit and ctrl-D do; ctrl-C stops an answer\n"
    "A line that ends in \\ goes on in the next; \"\"\" begins and ends several lines.\n";

static bool count_tokens(struct chat_session *c) {
    struct err err = {0};
    int64_t tokens, most;
    json_t *all = all_messages(c);
    if (json_array_size(all) == 0)
        json_array_append_new(all, json_pack("{s:s,s:s}", "role", "user", "content", ""));
    enum status status = c->talk->count(c->talk, all, &tokens, &most, &err);
    json_decref(all);
    if (status != STATUS_OK) {
        complain("%s", err.msg);
        return false;
    }
    printf("%lld tokens", (long long)tokens);
    if (most)
        printf(" of %lld", (long long)most);
    putchar('\n');
    return true;
}

static bool save(const struct chat_session *c, const char *path) {
    json_t *all = all_messages(c), *root = json_pack("{s:O}", "messages", all);
    FILE *f = fopen(path, "we");
    bool ok = f && root && json_dumpf(root, f, JSON_INDENT(2)) == 0 && putc('\n', f) != EOF;
    if (f && fclose(f) != 0)
        ok = false;
    if (!ok)
        complain("%s: %s", path, strerror(errno));
    json_decref(root);
    json_decref(all);
    return ok;
}

static bool load(struct chat_session *c, const char *path) {
    json_error_t why;
    json_t *root = json_load_file(path, 0, &why), *messages = json_object_get(root, "messages"), *m;
    size_t i;
    bool ok = json_is_array(messages);
    json_array_foreach(messages, i, m) {
        ok =
            ok && json_is_string(json_object_get(m, "role")) && json_is_string(json_object_get(m, "content"));
    }
    if (!ok) {
        complain("%s: %s", path, root ? "expected {\"messages\": [{\"role\", \"content\"}, …]}" : why.text);
        json_decref(root);
        return false;
    }
    free(c->system);
    c->system = NULL;
    m = json_array_get(messages, 0);
    if (m && strcmp(json_string_value(json_object_get(m, "role")), "system") == 0) {
        c->system = strdup(json_string_value(json_object_get(m, "content")));
        json_array_remove(messages, 0);
    }
    json_decref(c->messages);
    c->messages = json_incref(messages);
    json_decref(root);
    return true;
}

static bool retry(struct chat_session *c) {
    size_t n = json_array_size(c->messages);
    if (n == 0) {
        complain("there is nothing to answer again");
        return false;
    }
    json_t *last = json_incref(json_array_get(c->messages, n - 1));
    bool answered = strcmp(json_string_value(json_object_get(last, "role")), "assistant") == 0;
    if (answered)
        drop_last(c);
    bool ok = answer(c);
    if (!ok && answered)
        json_array_append(c->messages, last);
    json_decref(last);
    return ok;
}

// temperature 0.8, top_k 40, …
static void print_sampling(const struct chat_session *c, const char *behind) {
    const char *name;
    json_t *v;
    bool any = false;
    json_object_foreach(c->talk->sampling, name, v) {
        printf("%s%s %.6g", any ? ", " : "", name, json_number_value(v));
        any = true;
    }
    printf("%s%s\n", any ? "" : "as the server has it", behind);
}

static bool set_sampling(struct chat_session *c, char *rest) {
    struct sampling_params scratch = sampling_plain;
    struct api_error e = {0};
    size_t n = strcspn(rest, " \t");
    if (!*rest) {
        print_sampling(c, "");
        return true;
    }
    json_t *one = json_object(), *value = json_loads(rest + n, JSON_DECODE_ANY, NULL);
    rest[n] = '\0';
    bool ok = value && json_object_set(one, rest, value) == 0 &&
              sampling_read_defaults(&scratch, one, true, &e) &&
              json_object_update(c->talk->sampling, one) == 0;
    if (!ok)
        complain("%s", e.status ? e.message : "/set wants a NAME and a number, such as /set temperature 0.7");
    json_decref(value);
    json_decref(one);
    return ok;
}

// Flags go before the defaults of the model and of the server.
static void take_flags(json_t *sampling, const struct config *c) {
    if (c->answer_temperature >= 0)
        json_object_set_new(sampling, "temperature", json_real(c->answer_temperature));
    if (c->top_p < 1)
        json_object_set_new(sampling, "top_p", json_real(c->top_p));
    if (c->top_k > 0)
        json_object_set_new(sampling, "top_k", json_integer(c->top_k));
}

static bool set_system(struct chat_session *c, const char *text) {
    free(c->system);
    c->system = *text ? strdup(text) : NULL;
    return c->system || !*text;
}

// Runs a line that begins with /. *quit: it was /quit. False: it failed, and has said so.
static bool run_command(struct chat_session *c, char *line, bool *quit) {
    size_t n = strcspn(line, " \t\n");
    char *rest = line + n + strspn(line + n, " \t\n");
    line[n] = '\0';
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0 || strcmp(line, "/bye") == 0) {
        *quit = true;
        return true;
    }
    if (strcmp(line, "/help") == 0 || strcmp(line, "/?") == 0)
        return fputs(help, stdout) >= 0;
    if (strcmp(line, "/system") == 0)
        return set_system(c, rest);
    if (strcmp(line, "/set") == 0)
        return set_sampling(c, rest);
    if (strcmp(line, "/new") == 0 || strcmp(line, "/clear") == 0)
        return json_array_clear(c->messages) == 0;
    if (strcmp(line, "/tokens") == 0)
        return count_tokens(c);
    if (strcmp(line, "/retry") == 0)
        return retry(c);
    bool saves = strcmp(line, "/save") == 0;
    if ((saves || strcmp(line, "/load") == 0) && *rest)
        return saves ? save(c, rest) : load(c, rest);
    if (saves || strcmp(line, "/load") == 0)
        complain("%s wants a FILE", line);
    else
        complain("there is no command '%.40s'; /help lists them", line);
    return false;
}

// ---- lines

// The next message: one line, or more where it ends in a backslash or begins with """. False: standard input has ended.
static bool read_message(struct chat_session *c, struct buf *out) {
    static const char fence[] = "\"\"\"";
    out->len = 0;
    if (!line_input_read(&c->in, "> ", out))
        return false;
    bool fenced = out->len >= 3 && memcmp(out->data, fence, 3) == 0;
    for (bool more = true; more;) {
        more = fenced ? out->len < 6 || memcmp(out->data + out->len - 3, fence, 3) != 0
                      : out->len > 0 && out->data[out->len - 1] == '\\';
        if (!more)
            break;
        if (!fenced)
            out->len--;
        buf_char(out, '\n');
        if (!line_input_read(&c->in, ". ", out))
            break;
    }
    buf_char(out, '\0');
    if (out->failed)
        return false;
    line_input_remember(&c->in, out->data);
    out->len--;
    if (fenced) {
        size_t end = out->len >= 6 && memcmp(out->data + out->len - 3, fence, 3) == 0 ? 3 : 0;
        out->len -= 3 + end;
        memmove(out->data, out->data + 3, out->len);
        out->data[out->len] = '\0';
    }
    return true;
}

int cmd_chat(const struct config *config) {
    struct chat_session c = {0};
    struct buf line = {0};
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    int rc;
    const char *named = config->args.len > 0 ? config->args.items[0] : NULL, *url = config->url;
    if (url && named) {
        complain("give a MODEL or --url, not both");
        return EXIT_USAGE;
    }
    if (named && server_is_named(named))
        url = named;
    log_set_level(LOG_WARN); // a person reads here, not a log
    c.talk = url ? talk_open_url(config, url, &rc) : talk_open_local(config, &rc);
    if (!c.talk)
        return rc;
    take_flags(c.talk->sampling, config);
    c.messages = json_array();
    line_input_open(&c.in);
    c.styled = c.in.tty && terminal_styles(STDOUT_FILENO);
    sigaction(SIGINT, &action, NULL);
    if (config->system)
        c.system = strdup(config->system);
    if (c.in.tty) {
        puts("/help lists the commands, ctrl-D ends");
        print_sampling(&c, "; /set changes it");
    }
    for (bool quit = false; !quit && read_message(&c, &line);) {
        if (line.len == 0)
            continue;
        bool ok = line.data[0] == '/' ? run_command(&c, line.data, &quit) : say(&c, line.data, line.len);
        fflush(stdout);
        if (!ok && !c.in.tty && !stop)
            rc = EXIT_FAILED;
    }
    if (c.in.tty)
        putchar('\n');
    c.talk->close(c.talk);
    json_decref(c.messages);
    free(c.system);
    buf_free(&line);
    buf_free(&c.answer);
    return rc;
}
