// The Messages API: requests as the chat completions that they stand for, and the blocks and events of responses.
#include "../tools/fake_service.c"
#include "api/messages.h"
#include "dialects/anthropic.h"
#include "harness.h"

#include <jansson.h>

// Single quotes stand for double ones.
static json_t *loaded(const char *text) {
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *v = json_loads(copy, 0, NULL);
    assert_non_null(v);
    free(copy);
    return v;
}

static void assert_rewritten(const struct served_model *m, const char *body, const char *wanted) {
    json_t *root = loaded(body), *chat = json_object(), *expected = loaded(wanted);
    struct api_error e = {0};
    struct anthropic_extras extras = {0};
    assert_true(anthropic_rewrite(chat, m, root, &extras, &e));
    if (!json_equal(chat, expected)) {
        char *got = json_dumps(chat, 0);
        fail_msg("%s gives %s", body, got);
    }
    json_decref(root);
    json_decref(chat);
    json_decref(expected);
}

#define TEXT(s) "{'type':'text','text':'" s "'}"
#define USER(s) "{'role':'user','content':[" TEXT(s) "]}"
#define ASSISTANT(blocks) "{'role':'assistant','content':[" blocks "]}"
#define USE(id) "{'type':'tool_use','id':'" id "','name':'f','input':{'x':1}}"
#define CALL(id) "{'id':'" id "','type':'function','function':{'name':'f','arguments':{'x':1}}}"

TEST(rewrites) {
    static const struct served_model m;
    // clang-format off
    static const char *const cases[][2] = {
        // Messages of one role in a row are one; the system's comes first.
        {"{'messages':[{'role':'user','content':'a'}],'system':'s','max_tokens':3,'top_k':2,'stop_sequences':['x']}",
         "{'messages':[{'role':'system','content':[" TEXT("s") "]}," USER("a") "],'max_tokens':3,'top_k':2,'stop':['x']}"},
        {"{'messages':[{'role':'user','content':'a'},{'role':'user','content':[" TEXT("b") "," TEXT("c") "]}],'system':''}",
         "{'messages':[{'role':'user','content':[" TEXT("a") "," TEXT("b") "," TEXT("c") "]}]}"},
        {"{'messages':[{'role':'user','content':'a'},{'role':'assistant','content':'b'}]}",
         "{'messages':[" USER("a") "," ASSISTANT(TEXT("b")) "],'continue_final_message':true}"},
        // Claude Code's line of accounting is left out of the system prompt; nobody else's words are.
        {"{'messages':[" USER("a") "],'system':[" TEXT("x-anthropic-billing-header: cc_version=2; cch=1;") "," TEXT("s") "]}",
         "{'messages':[{'role':'system','content':[" TEXT("s") "]}," USER("a") "]}"},
        {"{'messages':[" USER("a") "],'system':'x-anthropic-billing-header: cch=1;\\ns'}",
         "{'messages':[{'role':'system','content':[" TEXT("s") "]}," USER("a") "]}"},
        {"{'messages':[" USER("x-anthropic-billing-header: 1") "],'system':[" TEXT("s") "," TEXT("x-anthropic-billing-header: 2") "]}",
         "{'messages':[{'role':'system','content':[" TEXT("s") "," TEXT("x-anthropic-billing-header: 2") "]},"
         USER("x-anthropic-billing-header: 1") "]}"},
        // One without blocks is one, too, but for a last one of the assistant.
        {"{'messages':[{'role':'user','content':[]},{'role':'assistant','content':[]}," USER("a") "]}",
         "{'messages':[{'role':'user','content':[]},{'role':'assistant','content':[]}," USER("a") "]}"},
        {"{'messages':[" USER("a") "," ASSISTANT("{'type':'redacted_thinking','data':'x'}") "]}", "{'messages':[" USER("a") "]}"},
        // Calls end a message, results are messages, and what comes with them is the user's.
        {"{'messages':[" USER("a") "," ASSISTANT(TEXT("b") "," USE("1") "," USE("2") "," TEXT("c")) ","
         ASSISTANT(TEXT("d")) ",{'role':'user','content':[{'type':'tool_result','tool_use_id':'1','content':'r'},"
         "{'type':'tool_result','tool_use_id':'2','is_error':true}," TEXT("e") "]}]}",
         "{'messages':[" USER("a") ",{'role':'assistant','content':[" TEXT("b") "," TEXT("c") "],'tool_calls':["
         CALL("1") "," CALL("2") "]}," ASSISTANT(TEXT("d")) ",{'role':'tool','tool_call_id':'1','content':["
         TEXT("r") "]},{'role':'tool','tool_call_id':'2','content':[" TEXT("Error:") "]}," USER("e") "]}"},
        // Blocks of Anthropic's servers say nothing; a compaction stands for all before it.
        {"{'messages':[" USER("a") "," ASSISTANT("{'type':'server_tool_use','id':'s'}," TEXT("b")) "," USER("c") "]}",
         "{'messages':[" USER("a") "," ASSISTANT(TEXT("b")) "," USER("c") "]}"},
        {"{'messages':[" USER("a") "," ASSISTANT(TEXT("b") ",{'type':'compaction','content':'s'}," TEXT("c")) "," USER("d") "],'system':'x'}",
         "{'messages':[{'role':'system','content':[" TEXT("x") "]}," USER("A summary of our conversation so far:\\n\\ns") ","
         ASSISTANT(TEXT("c")) "," USER("d") "]}"},
        {"{'messages':[" USER("a") ",{'role':'system','content':[{'type':'tool_addition','tool':{'type':'tool_definition',"
         "'definition':{'name':'g','input_schema':{}}}},{'type':'tool_removal','tool':{'type':'tool_reference','name':'f'}}]}],"
         "'tools':[{'name':'f','input_schema':{}}]}",
         "{'messages':[" USER("a") "],'tools':[{'type':'function','function':{'name':'g','parameters':{}}}]}"},
        // Tools and the choice of them.
        {"{'messages':[" USER("a") "],'tools':[{'name':'f','input_schema':{},'strict':true}],"
         "'tool_choice':{'type':'any','disable_parallel_tool_use':true}}",
         "{'messages':[" USER("a") "],'tools':[{'type':'function','function':{'name':'f','parameters':{},'strict':true}}],"
         "'tool_choice':'required','parallel_tool_calls':false}"},
        {"{'messages':[" USER("a") "],'tool_choice':{'type':'tool','name':'f'}}",
         "{'messages':[" USER("a") "],'tool_choice':{'type':'function','function':{'name':'f'}}}"},
        {"{'messages':[" USER("a") "],'output_format':{'type':'json_schema','schema':{'a':1}}}",
         "{'messages':[" USER("a") "],'response_format':{'type':'json_schema','json_schema':{'name':'output','schema':{'a':1}}}}"},
        {"{'messages':[" USER("a") "],'output_config':{'format':{'type':'json_schema','schema':{'a':1}}}}",
         "{'messages':[" USER("a") "],'response_format':{'type':'json_schema','json_schema':{'name':'output','schema':{'a':1}}}}"},
    };
    // clang-format on
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_rewritten(&m, cases[i][0], cases[i][1]);
}

// The variables that the template names are set.
TEST(reasoning) {
    static char source[] = "{{ enable_thinking }}{{ reasoning_effort }}{{ m.reasoning_content }}";
    struct err err = {0};
    struct served_model m = {.template_source = source,
                             .chat = chat_template_new(source, strlen(source), &err)};
    assert_rewritten(
        &m, "{'messages':[{'role':'user','content':'a'}],'thinking':{'type':'enabled','budget_tokens':1024}}",
        "{'messages':[" USER("a") "],'enable_thinking':true,'thinking_token_budget':1024}");
    assert_rewritten(
        &m,
        "{'messages':[{'role':'user','content':'a'}],'thinking':{'type':'disabled'},'output_config':{"
        "'effort':'max'}}",
        "{'messages':[" USER("a") "],'enable_thinking':false,'reasoning_effort':'max'}");
    assert_rewritten(
        &m,
        "{'messages':[{'role':'assistant','content':[{'type':'thinking','thinking':'t'},{'type':'thinking',"
        "'thinking':'u'}," TEXT("b") "]},{'role':'user','content':'a'}]}",
        "{'messages':[{'role':'assistant','reasoning_content':'t\\nu','content':[" TEXT("b") "]}," USER(
            "a") "]}");
    chat_template_free(m.chat);
}

// ---- responses

static char *read_all(struct sse_queue *q, char *text, size_t size) {
    size_t len = 0, n;
    while ((n = sse_read(q, text + len, size - 1 - len)) > 0)
        len += n;
    text[len] = '\0';
    return text;
}

#define START(index, block)                                                                                  \
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":" index                   \
    ",\"content_block\":" block "}\n\n"
#define DELTA(index, delta)                                                                                  \
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":" index                   \
    ",\"delta\":" delta "}\n\n"
#define STOP(index)                                                                                          \
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":" index "}\n\n"
#define USAGE                                                                                                \
    "\"usage\":{\"input_tokens\":3,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":4,"         \
    "\"output_tokens\":9}"

// Reasoning, text and a call, in pieces and whole; each block is opened once and closed.
TEST(blocks) {
    const struct output_format *f = output_format_named("hermes");
    struct completion_request request = {.base.model = "m", .format = f, .reads_reasoning = true};
    struct response r = {.request = &request, .id = "msg_1", .num_choices = 1};
    const struct usage usage = {.prompt = 7, .cached = 4, .completion = 9, .reasoning = -1};
    const char *const pushed[] = {"<think>why", " not</think>", "so",
                                  "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"", ": 1}}</tool_call>"};
    json_t *tools = loaded("[{'type':'function','function':{'name':'f'}}]");
    struct output_parser *output = output_parser_new(f, tools, true, false),
                         *all = output_parser_new(f, tools, true, false);
    struct sse_queue out = {0};
    char text[8192], id[31];
    anthropic_messages.begin(&r);
    for (size_t i = 0; i < 5; i++) {
        const struct piece p = {.output = output, .finish = i == 4 ? FINISH_STOP : FINISH_NONE};
        output_push(output, pushed[i], strlen(pushed[i]));
        output_push(all, pushed[i], strlen(pushed[i]));
        if (i == 4)
            output_end(output);
        anthropic_messages.piece(&out, &r, &p, &usage);
        output_clear(output);
    }
    read_all(&out, text, sizeof text);
    snprintf(id, sizeof id, "%.30s", strstr(text, "toolu_"));
    struct buf wanted = {0};
    buf_lit(&wanted, START("0", "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"));
    buf_lit(&wanted, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    buf_lit(&wanted, DELTA("0", "{\"type\":\"thinking_delta\",\"thinking\":\"why\"}"));
    buf_lit(&wanted, DELTA("0", "{\"type\":\"thinking_delta\",\"thinking\":\" not\"}"));
    buf_lit(&wanted, DELTA("0", "{\"type\":\"signature_delta\",\"signature\":\"msg_1\"}") STOP("0"));
    buf_lit(&wanted, START("1", "{\"type\":\"text\",\"text\":\"\"}"));
    buf_lit(&wanted, DELTA("1", "{\"type\":\"text_delta\",\"text\":\"so\"}") STOP("1"));
    buf_fmt(&wanted, START("2", "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":\"f\",\"input\":{}}"), id);
    buf_lit(&wanted, DELTA("2", "{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\"\"}"));
    buf_lit(&wanted, DELTA("2", "{\"type\":\"input_json_delta\",\"partial_json\":\": 1}\"}") STOP("2"));
    buf_lit(&wanted,
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\","
            "\"stop_sequence\":null}," USAGE "}\n\n");
    assert_string_equal(text, buf_cstr(&wanted));

    struct buf b = {0};
    const struct piece whole = {.output = all, .finish = FINISH_LENGTH};
    output_end(all);
    anthropic_messages.whole(&b, &r, &whole, &usage);
    buf_clear(&wanted);
    buf_fmt(&wanted,
            "{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":["
            "{\"type\":\"thinking\",\"thinking\":\"why "
            "not\",\"signature\":\"msg_1\"},{\"type\":\"text\",\"text\":\"so\"},"
            "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":\"f\",\"input\":{\"a\": "
            "1}}],\"stop_reason\":\"max_tokens\","
            "\"stop_sequence\":null," USAGE "}",
            id);
    assert_string_equal(buf_cstr(&b), buf_cstr(&wanted));
    anthropic_messages.end(&r);
    output_parser_free(output);
    output_parser_free(all);
    sse_free(&out);
    buf_free(&b);
    buf_free(&wanted);
    json_decref(tools);
}

TEST(errors) {
    static const struct {
        int status;
        const char *type;
    } cases[] = {{400, "invalid_request_error"}, {401, "authentication_error"},  {403, "permission_error"},
                 {404, "not_found_error"},       {405, "invalid_request_error"}, {408, "timeout_error"},
                 {413, "request_too_large"},     {429, "rate_limit_error"},      {500, "api_error"},
                 {503, "overloaded_error"},      {529, "overloaded_error"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct api_error e = {
            .status = cases[i].status, .param = "a", .message = "no \"b\"", .request_id = "r"};
        struct buf b = {0};
        char wanted[200];
        anthropic_form.error(&b, &e);
        snprintf(wanted, sizeof wanted,
                 "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"a: no "
                 "\\\"b\\\"\"},\"request_id\":\"r\"}",
                 cases[i].type);
        assert_string_equal(buf_cstr(&b), wanted);
        buf_free(&b);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
