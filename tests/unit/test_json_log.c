// Lines of the log as JSON objects.
#include "buf.h"
#include "harness.h"
#include "log.h"
#include "log_json.h"

#include <jansson.h>

static void says(const char *text, const char *object) {
    struct buf b = {0};
    log_json(&b, LOG_MAX_LINE, "T", "info", text);
    json_t *found = json_loadb(b.data, b.len, 0, NULL), *want = json_loads(object, 0, NULL);
    assert_non_null(want);
    json_object_set_new(want, "time", json_string("T"));
    json_object_set_new(want, "level", json_string("info"));
    if (!json_equal(found, want))
        fail_msg("%s: %.*s", text, (int)b.len, b.data);
    json_decref(found);
    json_decref(want);
    buf_free(&b);
}

TEST(test_words_and_keys) {
    says("", "{\"msg\":\"\"}");
    says("http id=12ab method=GET status=200 ms=0.5",
         "{\"msg\":\"http\",\"id\":\"12ab\",\"method\":\"GET\",\"status\":200,\"ms\":0.5}");
    says("model=\"a b\" arch=llama", "{\"msg\":\"\",\"model\":\"a b\",\"arch\":\"llama\"}");
    says("why=\"a\"b c\" n=-1", "{\"msg\":\"\",\"why\":\"a\\\"b c\",\"n\":-1}");
    says("open=\"a b", "{\"msg\":\"\",\"open\":\"a b\"}");
    says("empty= also=\"\"", "{\"msg\":\"\",\"empty\":\"\",\"also\":\"\"}");
    says("it runs, as X=1  here: =", "{\"msg\":\"it runs, as X=1 here: =\"}");
    says("a\tb\xff c=\x01", "{\"msg\":\"a\\tb\xef\xbf\xbd\",\"c\":\"\\u0001\"}");
}

TEST(test_numbers) {
    says("a=123456789012345 b=1234567890123456",
         "{\"msg\":\"\",\"a\":123456789012345,\"b\":\"1234567890123456\"}");
    says("a=1e5 b=01 c=1. d=.5 e=1.2.3 f=- g=0 h=0.25 i=-0.5",
         "{\"msg\":\"\",\"a\":\"1e5\",\"b\":\"01\",\"c\":\"1.\",\"d\":\".5\",\"e\":\"1.2.3\",\"f\":\"-\","
         "\"g\":0,\"h\":0.25,"
         "\"i\":-0.5}");
}

// A key that does not fit is left out, whole; a long sentence is cut.
TEST(test_long_lines) {
    struct buf text = {0}, b = {0};
    for (int i = 0; i < 1000; i++)
        buf_fmt(&text, "w\x01%d key%d=\x02value ", i, i);
    log_json(&b, LOG_MAX_LINE, "T", "info", buf_cstr(&text));
    json_t *found = json_loadb(b.data, b.len, 0, NULL);
    assert_non_null(found);
    assert_true(b.len <= LOG_MAX_LINE && b.len > LOG_MAX_LINE - 40);
    assert_true(json_string_length(json_object_get(found, "msg")) <= 600);
    assert_string_equal(json_string_value(json_object_get(found, "key0")), "\x02value");
    assert_null(json_object_get(found, "key999"));
    json_decref(found);
    buf_free(&b);
    buf_free(&text);
}

int main(void) { return run_all_tests(NULL, NULL); }
