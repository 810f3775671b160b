// Ollama's API: requests as the engine gets them, and the lines of a response, in which a call is whole.
#include "../tools/fake_service.c"
#include "api/messages.h"
#include "dialects/ollama.h"
#include "harness.h"

#include <jansson.h>

static char source[] = "{% for m in messages %}{% if m.tool_calls %}[{{ m.tool_calls[0].id "
                       "}}]{% endif %}{{ m.content }}"
                       "{{ m.tool_call_id }}{{ m.name }}{% endfor %}{{ enable_thinking }}{{ tools }}";

static struct served_model model(void) {
    static char *names[] = {(char *)"m"};
    struct err err = {0};
    return (struct served_model){.tokenizer = tokenizer_open("", &err),
                                 .names = names,
                                 .num_names = 1,
                                 .vocab = 258,
                                 .max_model_len = 100,
                                 .max_token_bytes = 4,
                                 .template_source = source,
                                 .chat = chat_template_new(source, strlen(source), &err)};
}

typedef bool parse_fn(struct completion_request *r, const struct served_model *m, const char *body,
                      size_t len, struct api_error *e);

// Parses a body with single quotes for double ones.
static bool parse(parse_fn *fn, const struct served_model *m, const char *body, struct completion_request *c,
                  struct api_error *e) {
    char *copy = strdup(body);
    for (char *p = copy; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    *e = (struct api_error){0};
    bool ok = fn(c, m, copy, strlen(copy), e);
    free(copy);
    return ok;
}

// The prompt's letters; BOS is ^.
static void assert_prompt(parse_fn *fn, const char *body, const char *wanted) {
    struct served_model m = model();
    struct completion_request c;
    struct api_error e;
    struct buf b = {0};
    if (!parse(fn, &m, body, &c, &e))
        fail_msg("%s: %s", body, e.message);
    for (size_t i = 0; i < c.base.prompts[0].len; i++)
        buf_char(&b, c.base.prompts[0].ids[i] == 256 ? '^' : (char)c.base.prompts[0].ids[i]);
    assert_string_equal(buf_cstr(&b), wanted);
    buf_free(&b);
    completion_request_free(&c);
    chat_template_free(m.chat);
}

#define CALL "{'function':{'name':'f','arguments':{}}}"

TEST(prompts) {
    assert_prompt(ollama_parse_chat, "{'messages':[{'role':'user','content':'a'}],'think':false}", "aFalse");
    // Calls and results get numbers in their order; a result has the name of its tool.
    assert_prompt(ollama_parse_chat,
                  "{'messages':[{'role':'assistant','tool_calls':[" CALL "," CALL
                  "]},{'role':'tool','content':'r','tool_name':'f'},{'role':'tool','content':'s'},"
                  "{'role':'assistant','tool_calls':[" CALL "]},{'role':'tool','content':'t'}]}",
                  "[000000000]r000000000fs000000001[000000002]t000000002");
    assert_prompt(ollama_parse_generate, "{'prompt':'a','system':'s'}", "sa");
    assert_prompt(ollama_parse_generate, "{'prompt':'a','context':[256,98]}", "^ba");
    assert_prompt(ollama_parse_generate, "{'prompt':'a','raw':true}", "^a");
    assert_prompt(ollama_parse_generate, "{}", "^");
    assert_prompt(ollama_parse_chat, "{'messages':[]}", "^");
}

TEST(fields) {
    struct served_model m = model();
    struct completion_request c;
    struct api_error e;
    assert_true(parse(
        ollama_parse_chat, &m,
        "{'model':'m:latest','messages':[{'role':'user','content':'a'}],'logprobs':true,'top_logprobs':2,"
        "'options':{'num_predict':7,'temperature':0.5,'top_k':3,'seed':-1,'stop':'x','num_ctx':100}}",
        &c, &e));
    assert_true(c.stream && c.max_tokens == 7 && c.sampling.top_k == 3 && !c.has_seed && c.num_stops == 1);
    assert_true(c.logprobs == 2 && c.continuous_usage && !c.return_ids);
    assert_string_equal(c.base.model, "m");
    completion_request_free(&c);
    assert_true(parse(ollama_parse_generate, &m, "{'prompt':'a','stream':false}", &c, &e));
    assert_true(!c.stream && c.return_ids && c.max_tokens > 1000);
    completion_request_free(&c);
    assert_true(parse(ollama_parse_generate, &m, "{'model':'m'}", &c, &e));
    assert_int_equal(c.max_tokens, 0);
    completion_request_free(&c);
    static const struct {
        const char *body, *param;
    } refused[] = {{"{'options':{'num_ctx':0}}", "options.num_ctx"},
                   {"{'prompt':'a','options':{'top_p':0}}", "options.top_p"},
                   {"{'prompt':'a','options':{'stop':['']}}", "options.stop[0]"},
                   {"{'prompt':'a','options':{'num_predict':'x'}}", "options.num_predict"},
                   {"{'prompt':'a','context':[258]}", "context"},
                   {"{'prompt':'a','raw':true,'think':true}", "think"},
                   {"{'prompt':'a','suffix':'b'}", "suffix"},
                   {"{'prompt':'a','format':'xml'}", "format"},
                   {"{'prompt':'a','model':'m:late'}", "model"}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_false(parse(ollama_parse_generate, &m, refused[i].body, &c, &e));
        assert_string_equal(e.param, refused[i].param);
    }
    chat_template_free(m.chat);
}

// ---- responses

#define HEAD "{\"model\":\"m\",\"created_at\":\"1970-01-01T00:00:09Z\","
#define LINE(members) HEAD "\"message\":{\"role\":\"assistant\",\"content\":" members "},\"done\":false}\n"
#define TIMES                                                                                                \
    "\"total_duration\":4000000,\"load_duration\":0,\"prompt_eval_count\":7,\"prompt_eval_duration\":"       \
    "1500000,"                                                                                               \
    "\"eval_count\":9,\"eval_duration\":2000000}"

static void assert_read(struct sse_queue *q, const char *wanted) {
    char text[4096];
    size_t len = 0, n;
    while ((n = sse_read(q, text + len, sizeof text - 1 - len)) > 0)
        len += n;
    text[len] = '\0';
    assert_string_equal(text, wanted);
}

TEST(lines) {
    const struct output_format *f = output_format_named("kimi_k2");
    struct completion_request request = {
        .base.model = "m", .format = f, .reads_reasoning = true, .max_tokens = 99};
    struct response r = {.request = &request,
                         .id = "i",
                         .num_choices = 1,
                         .created = 9,
                         .timings = {.total_ms = 4, .prompt_ms = 1.5, .generation_ms = 2}};
    const struct usage usage = {.prompt = 7, .completion = 9};
    static const char *const pushed[] = {
        "<think>why</think>so",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\"",
        ": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{",
        "}<|tool_call_end|><|tool_calls_section_end|>"};
    static const char *const wanted[] = {
        LINE("\"so\",\"thinking\":\"why\""), "",
        LINE("\"\",\"tool_calls\":[{\"id\":\"functions.f:0\",\"function\":{\"index\":0,\"name\":\"f\","
             "\"arguments\":{\"a\": 1}}}]"),
        LINE("\"\",\"tool_calls\":[{\"id\":\"functions.g:1\",\"function\":{\"index\":1,\"name\":\"g\","
             "\"arguments\":{}}}]") HEAD
        "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\"," TIMES
        "\n"};
    json_error_t je;
    json_t *tools = json_loads("[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":"
                               "\"function\",\"function\":{\"name\":\"g\"}}]",
                               0, &je);
    struct output_parser *output = output_parser_new(f, tools, true, false);
    struct sse_queue out = {0};
    ollama_chat.begin(&r);
    for (size_t i = 0; i < 4; i++) {
        const struct piece p = {.output = output, .finish = i == 3 ? FINISH_STOP : FINISH_NONE};
        output_push(output, pushed[i], strlen(pushed[i]));
        if (i == 3)
            output_end(output);
        ollama_chat.piece(&out, &r, &p, &usage);
        output_clear(output);
        assert_read(&out, wanted[i]);
    }
    ollama_chat.end(&r);
    output_parser_free(output);
    sse_free(&out);
    json_decref(tools);
}

// The ids of prompt and output are the context, whatever pieces they come in.
TEST(context) {
    token_id ids[] = {256, 97};
    const struct token_buf prompt = {.ids = ids, .len = 2};
    struct completion_request request = {.base.model = "m", .max_tokens = 99};
    struct response r = {.request = &request,
                         .num_choices = 1,
                         .created = 9,
                         .timings = {.total_ms = 4, .prompt_ms = 1.5, .generation_ms = 2}};
    const struct usage usage = {.prompt = 7, .completion = 9};
    struct sse_queue out = {0};
    struct buf first = {0}, second = {0}, b = {0};
    buf_lit(&first, "104,105");
    buf_lit(&second, "46");
    ollama_generate.begin(&r);
    ollama_generate.piece(
        &out, &r, &(struct piece){.text = "hi", .len = 2, .prompt = &prompt, .token_ids = &first}, &usage);
    assert_read(&out, HEAD "\"response\":\"hi\",\"done\":false}\n");
    ollama_generate.piece(&out, &r,
                          &(struct piece){.text = "", .token_ids = &second, .finish = FINISH_LENGTH}, &usage);
    assert_read(
        &out, HEAD
        "\"response\":\"\",\"done\":true,\"done_reason\":\"length\",\"context\":[256,97,104,105,46]," TIMES
        "\n");
    ollama_generate.end(&r);
    ollama_generate.begin(&r);
    ollama_generate.whole(
        &b, &r,
        &(struct piece){
            .text = "hi", .len = 2, .prompt = &prompt, .token_ids = &first, .finish = FINISH_STOP},
        &usage);
    assert_string_equal(
        buf_cstr(&b), HEAD
        "\"response\":\"hi\",\"done\":true,\"done_reason\":\"stop\",\"context\":[256,97,104,105]," TIMES);
    ollama_generate.end(&r);
    buf_free(&first);
    buf_free(&second);
    buf_free(&b);
    sse_free(&out);
}

int main(void) { return run_all_tests(NULL, NULL); }
