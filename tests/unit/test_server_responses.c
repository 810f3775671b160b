// /v1/responses without a server: items to messages, and events and bodies of outputs that are cut everywhere. A tokenizer
// of bytes stands in.
#include "../tools/fake_service.c"
#include "dialects/response_store.h"
#include "dialects/responses.h"
#include "harness.h"
#include "requests/completion_state.h"

// ---- in

TEST(items_become_messages) {
#define CALL(id) "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":\"f\",\"arguments\":\"{}\"}"
#define CALLED(id)                                                                                           \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"
#define THINK                                                                                                \
    "{\"type\":\"reasoning\",\"content\":[{\"text\":\"r\"},{\"text\":\"s\"}],\"summary\":[{\"text\":\"t\"}]" \
    "}"
#define THOUGHT "\"reasoning_content\":\"r\\ns\",\"reasoning\":\"r\\ns\",\"thinking\":\"r\\ns\""
    static const struct {
        const char *items, *messages, *param;
    } cases[] = {
        {"[{\"role\":\"system\",\"content\":\"a\"}]", "[{\"role\":\"system\",\"content\":\"a\"}]", NULL},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\\u0000b\"}]}]",
         "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\\u0000b\"}]}]", NULL},
        {"[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}]",
         "[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}]", NULL},
        {"[{\"type\":\"local_shell_call\",\"call_id\":\"1\",\"action\":{\"type\":\"exec\",\"command\":["
         "\"ls\"],\"env\":{}}},"
         "{\"type\":\"local_shell_call_output\",\"id\":\"1\",\"output\":\"x\"}]",
         "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{"
         "\"name\":"
         "\"local_shell\",\"arguments\":{\"command\":[\"ls\"]}}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"name\":\"local_shell\",\"content\":\"x\"}]",
         NULL},
        {"[" THINK "," CALL("1") "," CALL("2") "]",
         "[{\"role\":\"assistant\"," THOUGHT ",\"tool_calls\":[" CALLED("1") "," CALLED("2") "]}]", NULL},
        {"[" THINK ",{\"role\":\"assistant\",\"content\":\"a\"}," CALL("1") "," THINK "]",
         "[{\"role\":\"assistant\"," THOUGHT
         ",\"content\":\"a\",\"tool_calls\":[" CALLED("1") "]},"
                                                           "{\"role\":\"assistant\"," THOUGHT "}]",
         NULL},
        {"[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]",
         "[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]", NULL},
        {"[" CALL("1") ",{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"x\"}," CALL(
             "2") "]",
         "[{\"role\":\"assistant\",\"tool_calls\":[" CALLED(
             "1") "]},"
                  "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"name\":\"f\",\"content\":\"x\"},"
                  "{\"role\":\"assistant\",\"tool_calls\":[" CALLED("2") "]}]",
         NULL},
        {"[{\"type\":\"reasoning\",\"summary\":[{\"text\":3},4],\"content\":5}]", "[]", NULL},
        {"[{\"type\":\"reasoning\",\"summary\":[{\"text\":\"t\"}]}]",
         "[{\"role\":\"assistant\",\"reasoning_content\":\"t\",\"reasoning\":\"t\",\"thinking\":\"t\"}]",
         NULL},
        {"[{\"type\":\"compaction\",\"encrypted_content\":\"quire-summary:a\"}]",
         "[{\"role\":\"user\",\"content\":\"A summary of our conversation so far, which you "
         "wrote:\\n\\na\"}]",
         NULL},
        {"[{\"type\":\"compaction\",\"encrypted_content\":\"gAAA\"}]", NULL, "input[0].encrypted_content"},
        {"[{}]", NULL, "input[0].role"},
        {"[null]", NULL, "input[0]"},
        {"[{\"type\":3}]", NULL, "input[0]"},
        {"[{\"type\":\"computer_call\"}]", NULL, "input[0]"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_file\"}"
         "]}]",
         NULL, "input[0].content[1]"},
        {"[" CALL("1") ",{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\"}]", NULL,
         "input[1].arguments"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct api_error e = {0};
        json_t *items = json_loads(cases[i].items, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL),
               *messages = json_array();
        assert_non_null(items);
        bool ok = responses_read_items(messages, items, 0, &e);
        char *text = json_dumps(messages, JSON_COMPACT);
        if (ok != (cases[i].messages != NULL) || (ok && strcmp(text, cases[i].messages) != 0) ||
            (!ok && strcmp(e.param, cases[i].param) != 0))
            fail_msg("%s: %s %s %s", cases[i].items, text, e.param, e.message);
        free(text);
        json_decref(items);
        json_decref(messages);
    }
}

// ---- out

static const struct served_model model = {.vocab = VOCAB, .max_model_len = 4096};

// Pieces of a text whose parser gets `cut` bytes at a time, into a body (out NULL) or events.
static void write_text(struct sse_queue *out, struct buf *body, const struct output_format *format,
                       const char *text, size_t cut, enum finish_reason finish) {
    json_t *tools = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", 0, NULL);
    struct completion_request q = {
        .base.model = "m", .tools = tools, .format = format, .reads_reasoning = true};
    buf_lit(&q.repeated, ",\"model\":\"m\"");
    struct response r = {.request = &q, .model = &model, .id = "resp_x", .created = 7, .num_choices = 1};
    struct usage usage = {.prompt = 3, .completion = 4, .cached = 1, .reasoning = 2};
    struct piece p = {.output = output_parser_new(format, tools, true, false)};
    openai_responses.begin(&r);
    if (out)
        openai_responses.role(out, &r, NULL);
    for (size_t at = 0, len = strlen(text), n; at <= len; at += n) {
        for (n = cut; at + n < len && ((unsigned char)text[at + n] & 0xc0) == 0x80;)
            n++; // no character is cut
        bool last = at + n > len;
        output_push(p.output, text + at, last ? len - at : n);
        if (last)
            output_end(p.output);
        p.finish = last ? finish : FINISH_NONE;
        size_t num;
        const char *bytes;
        output_parts(p.output, &num, &bytes);
        if (out && (num || last)) {
            openai_responses.piece(out, &r, &p, NULL);
            output_clear(p.output);
        }
    }
    if (out)
        openai_responses.done(out, &r, &usage);
    else
        openai_responses.whole(body, &r, &p, &usage);
    assert_true(openai_responses.state_bytes(&r) > 0);
    openai_responses.end(&r);
    output_parser_free(p.output);
    buf_free(&r.head);
    completion_request_free(&q);
}

// The data of the events of a queue, in a list.
static json_t *events_of(struct sse_queue *out) {
    json_t *list = json_array();
    static char chunk[1 << 16];
    struct buf event = {0};
    size_t n;
    while ((n = sse_read(out, chunk, sizeof chunk)) > 0) {
        buf_add(&event, chunk, n);
        if (event.len < 2 || memcmp(event.data + event.len - 2, "\n\n", 2) != 0)
            continue;
        const char *data = strstr(buf_cstr(&event), "\ndata: ");
        assert_non_null(data);
        json_t *v = json_loads(data + 7, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(v);
        const char *type = json_string_value(json_object_get(v, "type"));
        assert_memory_equal(event.data, "event: ", 7);
        assert_memory_equal(event.data + 7, type, strlen(type));
        json_array_append_new(list, v);
        buf_clear(&event);
    }
    assert_int_equal(event.len, 0);
    buf_free(&event);
    return list;
}

static const char *string_of(const json_t *v, const char *key) {
    return json_string_value(json_object_get(v, key));
}

// However the text is cut, the last event has the body, and the deltas add up to the texts.
TEST(streams_are_the_whole) {
#define ONE(args) "<tool_call>\n{\"name\": \"f\", \"arguments\": " args "}\n</tool_call>"
    static const char *const kinds[] = {"m", "m", "rm", "f", "rmffm", "r", "ff"}; // first letters of types
    static const char *const texts[] = {
        "",
        "Hello \xc3\xa9\xe2\x82\xac \"there\"",
        "<think>\nWhy?\n</think>\n\nBecause.",
        ONE("{\"a\": 1}"),
        "<think>a</think>b" ONE("{}") ONE("{\"b\": [2]}") " c",
        "<think>never",
        ONE("{}") ONE("{\"half"),
    };
    const struct output_format *format = output_format_named("hermes");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (int k = 0; k < 2; k++) {
            enum finish_reason finish = k ? FINISH_LENGTH : FINISH_STOP;
            struct buf body = {0};
            write_text(NULL, &body, format, texts[i], 1000, finish);
            json_t *whole = json_loads(buf_cstr(&body), 0, NULL);
            assert_non_null(whole);
            assert_string_equal(string_of(whole, "status"), k ? "incomplete" : "completed");
            size_t num = json_array_size(json_object_get(whole, "output"));
            assert_int_equal(num, strlen(kinds[i]));
            for (size_t j = 0; j < num; j++)
                assert_int_equal(string_of(json_array_get(json_object_get(whole, "output"), j), "type")[0],
                                 kinds[i][j]);
            assert_string_equal(
                string_of(json_array_get(json_object_get(whole, "output"), num - 1), "status"),
                k ? "incomplete" : "completed");
            for (size_t cut = 1; cut < 40; cut += 3) {
                struct sse_queue out = {0};
                write_text(&out, NULL, format, texts[i], cut, finish);
                json_t *events = events_of(&out);
                size_t n = json_array_size(events), added = 0, done = 0, at;
                json_t *event, *last = json_object_get(json_array_get(events, n - 1), "response");
                struct buf deltas = {0}, all = {0};
                json_array_foreach(events, at, event) {
                    const char *type = string_of(event, "type");
                    assert_int_equal(json_integer_value(json_object_get(event, "sequence_number")),
                                     (json_int_t)at);
                    added += strcmp(type, "response.output_item.added") == 0;
                    done += strcmp(type, "response.output_item.done") == 0;
                    assert_true(added - done <= 1);
                    if (string_of(event, "delta"))
                        buf_str(&deltas, string_of(event, "delta"));
                    if (strstr(type, "_text.done"))
                        buf_str(&all, string_of(event, "text"));
                    if (strstr(type, "arguments.done"))
                        buf_str(&all, string_of(event, "arguments"));
                }
                assert_int_equal(added, num);
                assert_int_equal(done, num);
                assert_string_equal(buf_cstr(&deltas), buf_cstr(&all));
                if (!json_equal(whole, last))
                    fail_msg("%s cut by %zu", texts[i], cut);
                buf_free(&deltas);
                buf_free(&all);
                json_decref(events);
                sse_free(&out);
            }
            json_decref(whole);
            buf_free(&body);
        }
    }
}

// A failure has a sequence number, the response so far, and a first event where there was none.
TEST(failures_are_events) {
    for (int begun = 0; begun < 2; begun++) {
        struct completion_request q = {.base.model = "m"};
        struct response r = {.request = &q, .model = &model, .id = "resp_x", .num_choices = 1};
        struct sse_queue out = {0};
        struct api_error e = {0};
        api_fail(&e, begun ? 500 : 400, "internal_error", NULL, "It \"broke\".");
        openai_responses.begin(&r);
        if (begun)
            openai_responses.role(&out, &r, NULL);
        (openai_responses.fail)(&out, &r, &e);
        json_t *events = events_of(&out), *error = json_array_get(events, begun ? 2 : 1);
        assert_int_equal(json_array_size(events), begun ? 4 : 3);
        assert_string_equal(string_of(json_array_get(events, 0), "type"), "response.created");
        assert_string_equal(string_of(error, "type"), "error");
        assert_string_equal(string_of(error, "message"), "It \"broke\".");
        json_t *failed = json_object_get(json_array_get(events, begun ? 3 : 2), "response");
        assert_string_equal(string_of(failed, "status"), "failed");
        assert_string_equal(string_of(json_object_get(failed, "error"), "code"),
                            begun ? "server_error" : "invalid_prompt");
        json_decref(events);
        openai_responses.end(&r);
        buf_free(&r.head);
        sse_free(&out);
    }
}

// Log-probabilities are those of the tokens that are content.
TEST(logprobs_of_content) {
    static const struct {
        const char *text, *tokens;
    } cases[] = {
        {"plain", "plain"},
        {"<think>ab</think>cd", "cd"},
        {"<think>a</think>\n\nb\n", "b\n"},
        {"a < b", "a < b"},
        {"a<tool_call>{\"name\": \"f\"}</tool_call>", "a"},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>b", "b"},
        {"a <tool_call> b", "a <tool_call> b"},
    };
    struct err err = {0};
    json_t *tools = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", 0, NULL);
    const struct output_format *format = output_format_named("hermes");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct app app = {.model = {.tokenizer = tokenizer_open("", &err), .vocab = VOCAB}};
        struct completion c = {.exchange.app = &app, .dialect = &openai_responses};
        c.request =
            (struct completion_request){.n = 1, .skip_special = true, .logprobs = 0, .format = format};
        c.response = (struct response){.request = &c.request, .model = &app.model};
        struct detok_params d = {.tokenizer = app.model.tokenizer, .skip_special = true};
        struct engine_request engine = {0};
        struct choice ch = {.completion = &c,
                            .engine = &engine,
                            .detok = detok_new(&d),
                            .output = output_parser_new(format, tools, true, false)};
        for (const char *s = cases[i].text; *s; s++) {
            struct service_event ev = {.token = (token_id)(unsigned char)*s, .logprob = -1};
            engine.num_tokens++;
            assert_false(choice_add_token(&ch, &ev, false));
        }
        choice_end_text(&ch);
        struct buf text = {0}, got = {0};
        buf_char(&text, '[');
        buf_add(&text, ch.lists.tops.data, ch.lists.tops.len);
        buf_char(&text, ']');
        json_t *list = json_loads(buf_cstr(&text), 0, NULL), *one;
        size_t at;
        assert_non_null(list);
        json_array_foreach(list, at, one) buf_str(&got, string_of(one, "token"));
        assert_string_equal(buf_cstr(&got), cases[i].tokens);
        json_decref(list);
        buf_free(&text);
        buf_free(&got);
        choice_free(&ch);
    }
    json_decref(tools);
}

// In the background it is queued until its first piece; cancelled, it has what was written; ended with its server, its
// last event has the next number.
TEST(the_background_has_stages) {
    static const char *const types[] = {"response.created",
                                        "response.queued",
                                        "response.in_progress",
                                        "response.output_item.added",
                                        "response.content_part.added",
                                        "response.output_text.delta",
                                        "response.output_text.delta",
                                        "response.output_text.done",
                                        "response.content_part.done",
                                        "response.output_item.done",
                                        "response.incomplete",
                                        "response.failed"};
    struct completion_request q = {.base.model = "m", .background = true};
    buf_lit(&q.items, "[]"); // it is kept
    struct response r = {.request = &q, .model = &model, .id = "resp_x", .num_choices = 1};
    struct sse_queue out = {0};
    struct piece piece = {.text = "ab", .len = 2};
    struct buf body = {0};
    openai_responses.begin(&r);
    openai_responses.role(&out, &r, NULL);
    openai_responses.piece(&out, &r, &piece, NULL);
    openai_responses.piece(&out, &r, &piece, NULL);
    openai_responses.snapshot(&body, &r, RESPONSE_RUNNING, NULL, NULL);
    (openai_responses.fail)(&out, &r, NULL);
    responses_ended(&body, &out.bytes);
    json_t *events = events_of(&out), *event, *failed = json_loadb(body.data, body.len, 0, NULL);
    size_t at;
    assert_int_equal(json_array_size(events), sizeof types / sizeof *types);
    json_array_foreach(events, at, event) {
        assert_string_equal(string_of(event, "type"), types[at]);
        assert_int_equal(json_integer_value(json_object_get(event, "sequence_number")), (json_int_t)at);
    }
    const json_t *first = json_object_get(json_array_get(events, 0), "response"),
                 *cut = json_object_get(json_array_get(events, 10), "response"),
                 *item = json_array_get(json_object_get(cut, "output"), 0);
    assert_string_equal(string_of(first, "status"), "queued");
    assert_true(json_is_true(json_object_get(first, "store")));
    assert_string_equal(string_of(cut, "status"), "cancelled");
    assert_string_equal(string_of(item, "status"), "incomplete");
    assert_string_equal(string_of(json_array_get(json_object_get(item, "content"), 0), "text"), "abab");
    assert_true(json_equal(failed, json_object_get(json_array_get(events, 11), "response")));
    assert_string_equal(string_of(failed, "status"), "failed");
    assert_string_equal(string_of(json_object_get(failed, "error"), "code"), "server_error");
    r.unkept = true;
    buf_clear(&body);
    openai_responses.snapshot(&body, &r, RESPONSE_CANCELLED, NULL, NULL);
    assert_non_null(strstr(buf_cstr(&body), "\"store\":false"));
    r.unkept = false;
    struct buf none = {0};
    buf_clear(&body);
    buf_lit(&body, "{}");
    responses_ended(&body, &none); // a response that nobody streams
    assert_int_equal(none.len, 0);
    json_decref(events);
    json_decref(failed);
    openai_responses.end(&r);
    buf_free(&r.head);
    buf_free(&q.items);
    buf_free(&body);
    sse_free(&out);
}

// Against a list of what must be there: the newest that fit, of their owners.
TEST(the_oldest_go_first) {
    enum { NUM = 40, ROOM = 8 };
    struct response_store *store = response_store_new(ROOM * (100 + 256));
    uint8_t owners[2][SHA256_BYTES] = {{1}, {2}};
    char text[NUM][101], id[32];
    for (int i = 0; i < NUM; i++) {
        memset(text[i], 'a' + i % 26, 100);
        struct buf body = {.data = text[i], .len = 60}, items = {.data = text[i], .len = 40};
        snprintf(id, sizeof id, "resp_%d", i / 2);
        response_store_put(store, owners[i % 2], id, &body, &items, NULL, STORED_WHOLE);
        for (int k = 0; k <= i; k++) {
            struct buf got = {0}, led = {0};
            snprintf(id, sizeof id, "resp_%d", k / 2);
            bool there = response_store_get(store, owners[k % 2], id, &got, &led, NULL);
            assert_int_equal(there, k > i - ROOM);
            assert_true(!there || (got.len == 60 && led.len == 40 && memcmp(got.data, text[k], 60) == 0));
            buf_free(&got);
            buf_free(&led);
        }
    }
    struct buf big = {.data = text[0], .len = 100}, small = {.data = text[1], .len = 1};
    response_store_put(store, owners[0], "resp_19", &small, &small, NULL,
                       STORED_WHOLE); // in place of the older one
    struct buf got = {0};
    assert_true(response_store_get(store, owners[0], "resp_19", &got, NULL, NULL) && got.len == 1);
    buf_free(&got);
    assert_true(response_store_delete(store, owners[0], "resp_19"));
    assert_false(response_store_delete(store, owners[0], "resp_19"));
    assert_false(response_store_get(store, owners[0], "resp_19", NULL, NULL, NULL));
    assert_true(response_store_get(store, owners[1], "resp_19", NULL, NULL, NULL));
    response_store_free(store);
    store = response_store_new(200);
    response_store_put(store, owners[0], "resp_0", &big, &small, NULL, STORED_WHOLE); // does not fit
    assert_false(response_store_get(store, owners[0], "resp_0", NULL, NULL, NULL));
    response_store_free(store);
}

int main(void) { return run_all_tests(NULL, NULL); }
