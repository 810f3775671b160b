// Messages to tokens, by templates people use: for benign messages the segments give exactly the tokens of
// the whole rendered text read with special tokens on, which is what every other stack feeds the model; and
// no text of a client becomes a control token.
#include "harness.h"

#include "api/chat_formats.h"
#include "api/messages.h"
#include "jinja/chat.h"
#include "vocabularies.h"

#include <jansson.h>

enum { MAX_TURNS = 5 };

static const struct {
    const char *vocab, *chat_template;
} pairs[] = {
    {QWEN2, "chatml.jinja"},
    {QWEN2, "qwen2-instruct.json"},
    {QWEN2, "qwen2.5-instruct.jinja"},
    {LLAMA3, "llama-3-instruct.jinja"},
    {LLAMA3, "llama-3.1-instruct.json"},
    {GGML "phi-3.gguf", "phi-3.jinja"},
    {GGML "llama-spm.gguf", "llama-2-chat.json"},
    {GGML "llama-spm.gguf", "mistral-instruct.json"},
    {GGML "llama-spm.gguf", "zephyr.jinja"},
    {GGML "deepseek-llm.gguf", "vicuna.jinja"},
};
enum { NUM_PAIRS = sizeof pairs / sizeof pairs[0] };

// The template's text; of a tokenizer_config.json its member.
static char *template_text(const char *name) {
    char path[256];
    size_t len;
    snprintf(path, sizeof path, "templates/chat_templates/%s", name);
    const char *file = test_data(path);
    if (!file)
        skip();
    char *text = read_file(file, &len);
    if (!strstr(name, ".json"))
        return text;
    json_t *root = json_loads(text, 0, NULL);
    const char *inner = json_string_value(json_object_get(root, "chat_template"));
    assert_non_null(inner);
    free(text);
    text = strdup(inner);
    json_decref(root);
    return text;
}

// Texts of people: naughty strings, instructions, a poem, all without the marks of templates.
static json_t *texts(void) {
    json_t *list = json_array(), *kept = json_array(), *v;
    size_t i, len;
    const char *file = test_data("prompts/blns.json");
    if (!file)
        skip();
    char *text = read_file(file, &len);
    json_t *blns = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_true(json_is_array(blns));
    json_array_extend(list, blns);
    json_decref(blns);
    free(text);
    text = read_file(test_data("prompts/sonnet.txt"), &len);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        json_array_append_new(list, json_string(line));
    free(text);
    static const char *const edges[] = {"",    " ",   "\n",  "\n\n",   "  two", "two  ", "\ttab",
                                        "a\n", "\na", "é",   "日本語", "…",     "123",   "'s",
                                        "'",   "!",   ".\n", "\r\n",   "user",  "system"};
    for (i = 0; i < sizeof edges / sizeof edges[0]; i++)
        json_array_append_new(list, json_string(edges[i]));
    json_array_foreach(list, i, v) {
        const char *s = json_string_value(v);
        if (s && !strstr(s, "<|") && !strstr(s, "<s>") && !strstr(s, "</s>") && !strstr(s, "<unk>"))
            json_array_append(kept, v);
    }
    json_decref(list);
    assert_true(json_array_size(kept) > 600);
    return kept;
}

static json_t *message(const char *role, json_t *content) {
    return json_pack("{s:s, s:O}", "role", role, "content", content);
}

// A conversation of texts from number `at`.
static json_t *conversation(const json_t *list, size_t at) {
    json_t *messages = json_array();
    size_t n = json_array_size(list), turns = at % MAX_TURNS;
    if (at % 3 == 0)
        json_array_append_new(messages, message("system", json_array_get(list, (at * 7 + 1) % n)));
    for (size_t i = 0; i <= 2 * turns; i++)
        json_array_append_new(messages,
                              message(i % 2 ? "assistant" : "user", json_array_get(list, (at + i * 11) % n)));
    return json_pack("{s:o}", "messages", messages);
}

static struct chat_value *text_of(struct chat_arena *a, const char *s, size_t len) {
    return chat_string(a, s, len, true);
}

static void set(struct chat_arena *a, struct chat_value *dict, const char *key, struct chat_value *v) {
    chat_dict_set(a, dict, key, strlen(key), v);
}

static struct chat_value *name_of(struct chat_arena *a, const struct tokenizer *t, token_id id) {
    size_t len = 0;
    const char *name = id >= 0 ? tokenizer_name(t, id, &len) : "";
    return text_of(a, name, len);
}

// The whole text that the template gives, segments or not; NULL: it refuses these messages.
static char *rendered(const struct chat_template *t, const struct tokenizer *tokenizer, const json_t *root,
                      size_t *len) {
    struct chat_arena *a = chat_arena_new();
    struct chat_value *list = chat_list(a), *globals = chat_dict(a);
    const struct chat_segment *s;
    const json_t *m;
    size_t i, n;
    struct err err = {0};
    char *text = NULL;
    json_array_foreach(json_object_get(root, "messages"), i, m) {
        struct chat_value *dict = chat_dict(a);
        const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
        set(a, dict, "role", text_of(a, json_string_value(role), json_string_length(role)));
        set(a, dict, "content", text_of(a, json_string_value(content), json_string_length(content)));
        chat_list_add(a, list, dict);
    }
    set(a, globals, "messages", list);
    set(a, globals, "bos_token", name_of(a, tokenizer, tokenizer_bos(tokenizer)));
    set(a, globals, "eos_token", name_of(a, tokenizer, tokenizer_eos(tokenizer)));
    set(a, globals, "add_generation_prompt", chat_bool(a, true));
    if (chat_render(t, a, globals, &s, &n, &err) == STATUS_OK) {
        *len = 0;
        for (i = 0; i < n; i++)
            *len += s[i].len;
        text = calloc(1, *len + 1);
        for (i = 0, *len = 0; i < n; *len += s[i++].len)
            memcpy(text + *len, s[i].text, s[i].len);
    }
    chat_arena_free(a);
    return text;
}

struct subject {
    struct tokenizer *tokenizer;
    struct served_model model;
    struct chat_template *whole;
};

static void open_subject(struct subject *s, size_t pair) {
    struct err err = {0};
    char *text = template_text(pairs[pair].chat_template), path[] = "/tmp/quire-chat-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    s->tokenizer = open_vocab(pairs[pair].vocab);
    s->model = (struct served_model){
        .tokenizer = s->tokenizer, .max_model_len = 1 << 24, .max_token_bytes = 1 << 10};
    if (chat_open(&s->model, path, &err) != STATUS_OK)
        fail_msg("%s: %s", pairs[pair].chat_template, err.msg);
    s->whole = chat_template_new(text, strlen(text), &err);
    unlink(path);
    free(text);
}

static void close_subject(struct subject *s) {
    chat_close(&s->model);
    chat_template_free(s->whole);
    tokenizer_free(s->tokenizer);
}

TEST(test_segments_are_the_whole) {
    json_t *list = texts();
    for (size_t p = 0; p < NUM_PAIRS; p++) {
        struct subject s;
        size_t compared = 0, refused = 0;
        open_subject(&s, p);
        for (size_t i = 0; i < json_array_size(list); i++) {
            json_t *root = conversation(list, i);
            struct token_buf got = {0}, want = {0};
            struct api_error e = {0};
            size_t len;
            char *text = rendered(s.whole, s.tokenizer, root, &len);
            if (text && chat_prompt(&s.model, root, true, false, &got, NULL, &e)) {
                // The sequence begins with BOS once, whether the template writes it or the model asks for it.
                size_t n = 0;
                const char *bos = tokenizer_bos(s.tokenizer) < 0
                                      ? ""
                                      : tokenizer_name(s.tokenizer, tokenizer_bos(s.tokenizer), &n);
                bool written = n && n <= len && memcmp(text, bos, n) == 0;
                unsigned add = tokenizer_adds_bos(s.tokenizer) && !written ? TOKENIZE_ADD_SPECIAL : 0;
                assert_int_equal(
                    tokenizer_encode(s.tokenizer, text, len, TOKENIZE_PARSE_SPECIAL | add, &want), STATUS_OK);
                assert_true(same_ids(&got, want.ids, want.len, pairs[p].chat_template, i));
                compared++;
            } else {
                assert_true(!text && !chat_prompt(&s.model, root, true, false, &got, NULL, &e) &&
                            e.status == 400);
                refused++;
            }
            token_buf_free(&got);
            token_buf_free(&want);
            free(text);
            json_decref(root);
        }
        printf("  %-26s %-24s %zu conversations, %zu refused by the template\n", pairs[p].vocab,
               pairs[p].chat_template, compared, refused);
        assert_true(compared > 400);
        close_subject(&s);
    }
    json_decref(list);
}

static int count_controls(const struct tokenizer *t, const struct token_buf *b) {
    int n = 0;
    for (size_t i = 0; i < b->len; i++)
        n += tokenizer_is_special(t, b->ids[i]);
    return n;
}

// The names of all control tokens, written by a client, in every place: as many control tokens as without
// them.
TEST(test_no_control_token_from_a_client) {
    for (size_t p = 0; p < NUM_PAIRS; p++) {
        struct subject s;
        struct token_buf benign = {0};
        struct api_error e = {0};
        open_subject(&s, p);
        json_t *root = json_pack("{s:[{s:s,s:s},{s:s,s:s},{s:s,s:s}]}", "messages", "role", "user", "content",
                                 "x", "role", "assistant", "content", "y", "role", "user", "content", "z");
        if (!chat_prompt(&s.model, root, true, false, &benign, NULL, &e))
            fail_msg("%s", e.message);
        json_decref(root);
        int want = count_controls(s.tokenizer, &benign), tried = 0;
        for (token_id id = 0; id < tokenizer_vocab(s.tokenizer) && tried < 40; id++) {
            struct token_buf got = {0};
            size_t len;
            if (!tokenizer_is_special(s.tokenizer, id))
                continue;
            tried++;
            const char *name = tokenizer_name(s.tokenizer, id, &len);
            char content[256];
            snprintf(content, sizeof content, "%.*s system\n%.*s", (int)len, name, (int)len, name);
            root = json_pack("{s:[{s:s,s:s},{s:s,s:s},{s:s,s:s}]}", "messages", "role", "user", "content",
                             content, "role", "assistant", "content", content, "role", "user", "content",
                             content);
            if (!root)
                continue; // a name that is no UTF-8
            assert_true(chat_prompt(&s.model, root, true, false, &got, NULL, &e));
            if (count_controls(s.tokenizer, &got) != want)
                fail_msg("%s: %s became a control token", pairs[p].chat_template, content);
            token_buf_free(&got);
            json_decref(root);
        }
        assert_true(tried > 0);
        token_buf_free(&benign);
        close_subject(&s);
    }
}

// The built-in formats, as their models' cards write them: a system message, two turns, and the next answer's
// beginning.
TEST(test_formats) {
#define B "<s>"
#define E "</s>"
    static const struct {
        const char *name, *text;
    } cases[] = {
        {"chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<"
                   "|im_end|>\n"
                   "<|im_start|>user\nC<|im_end|>\n<|im_start|>assistant\n"},
        {"command-r", B "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>"
                        "<|USER_TOKEN|>A<|"
                        "END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>B<|END_OF_TURN_TOKEN|><|"
                        "START_OF_TURN_TOKEN|"
                        "><|USER_TOKEN|>C<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
        {"llama3",
         B "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>"
           "\n\nA"
           "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|><|start_header_id|>user"
           "<|end_header_id|>\n\nC<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"llama2", B "[INST] <<SYS>>\nS\n<</SYS>>\n\nA [/INST] B " E B "[INST] C [/INST]"},
        {"mistral", B "[INST] S\n\nA [/INST] B" E "[INST] C [/INST]"},
        {"gemma", B "<start_of_turn>user\nS\n\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n<start_"
                    "of_turn>user\n"
                    "C<end_of_turn>\n<start_of_turn>model\n"},
        {"phi3", "<|system|>\nS<|end|>\n<|user|>\nA<|end|>\n<|assistant|>\nB<|end|>\n<|user|>\nC<|end|>\n<|"
                 "assistant|>\n"},
        {"zephyr",
         "<|system|>\nS" E "\n<|user|>\nA" E "\n<|assistant|>\nB" E "\n<|user|>\nC" E "\n<|assistant|>\n"},
        {"vicuna", B "S USER: A ASSISTANT: B" E "USER: C ASSISTANT:"},
        {"deepseek2", B "S\n\nUser: A\n\nAssistant: B" E "User: C\n\nAssistant:"},
        {"deepseek3", B "S<｜User｜>A<｜Assistant｜>B<｜end▁of▁sentence｜><｜User｜>C<｜Assistant｜>"},
    };
    struct tokenizer *t = open_vocab(GGML "llama-spm.gguf");
    json_t *root = json_pack("{s:[{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s,s:s}]}", "messages", "role", "system",
                             "content", "S", "role", "user", "content", "A", "role", "assistant", "content",
                             "B", "role", "user", "content", "C");
    const char *names = chat_format_names();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct served_model m = {.tokenizer = t, .max_model_len = 1 << 20, .max_token_bytes = 1};
        struct err err = {0};
        struct api_error e = {0};
        struct buf text = {0};
        assert_non_null(strstr(names, cases[i].name));
        if (chat_open(&m, cases[i].name, &err) != STATUS_OK || !chat_text(&m, root, true, false, &text, &e))
            fail_msg("%s: %s%s", cases[i].name, err.msg, e.message);
        assert_string_equal(buf_cstr(&text), cases[i].text);
        buf_free(&text);
        chat_close(&m);
    }
    for (size_t i = 0, commas = 0; i <= strlen(names); i++) // each is tried
        if ((commas += names[i] == ',') && !names[i])
            assert_int_equal(commas + 1, sizeof cases / sizeof cases[0]);
    struct served_model m = {.tokenizer = t};
    struct err err = {0};
    assert_int_equal(chat_open(&m, "chatlm", &err), STATUS_IO);
    assert_non_null(strstr(err.msg, "built in are chatml"));
    chat_close(&m);
    json_decref(root);
    tokenizer_free(t);
}

int main(void) { return run_all_tests(NULL, NULL); }
