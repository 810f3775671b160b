// The server's text: JSON strings, server-sent events, metrics, keys, hosts.
#include "buf.h"
#include "dialects/openai.h"
#include "harness.h"
#include "http/auth.h"
#include "http/framing.h"
#include "http/sse.h"
#include "observe/metrics.h"

#include <jansson.h>
#include <math.h>

static void check_round_trip(const char *text, size_t len) {
    struct buf b = {0};
    json_quote(&b, text, len);
    json_error_t error;
    json_t *v = json_loadb(b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    assert_non_null(v);
    for (size_t i = 0; i < b.len; i++)
        assert_true((unsigned char)b.data[i] >= 0x20 && b.data[i] != 0x7f);
    json_decref(v);
    buf_free(&b);
}

TEST(escape_every_byte) {
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        check_round_trip(&c, 1);
        for (int j = 0; j < 256; j++) {
            char two[2] = {(char)i, (char)j};
            check_round_trip(two, 2);
        }
    }
    uint32_t x = 1;
    for (int round = 0; round < 20000; round++) { // any bytes at all
        char text[24];
        for (size_t i = 0; i < sizeof text; i++) {
            x = x * 1664525 + 1013904223;
            text[i] = (char)(x >> 24);
        }
        check_round_trip(text, sizeof text);
    }
}

TEST(escape_text) {
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "plain"},
        {"\"\\/", "\\\"\\\\/"},
        {"a\nb\r\t\x01", "a\\nb\\r\\t\\u0001"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, // a surrogate: three parts
        {"\xe2\x82", "\xef\xbf\xbd"},                             // an unfinished one: one part
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},                 // overlong
        {"\xf4\x90\x80\x80x", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf b = {0};
        json_escape(&b, cases[i].in, strlen(cases[i].in));
        assert_string_equal(buf_cstr(&b), cases[i].out);
        buf_free(&b);
    }
}

TEST(floats_read_back) {
    float values[] = {0.1f, -0.0f, -3.4e38f, 1e-45f, -4.6848325729370117f, 16777217.0f};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct buf b = {0};
        json_float(&b, values[i]);
        assert_true((float)strtod(buf_cstr(&b), NULL) == values[i]);
        buf_free(&b);
    }
    struct buf b = {0};
    json_float(&b, -INFINITY); // JSON has none
    assert_string_equal(buf_cstr(&b), "-9999.0");
    buf_free(&b);
}

TEST(sse_gives_one_event_at_a_time) {
    struct sse_queue q = {0};
    char out[64];
    for (int round = 0; round < 20000; round++) {
        buf_fmt(sse_begin(&q), "data: %d\n\n", round);
        sse_end(&q);
        sse_ping(&q);
        char want[32];
        snprintf(want, sizeof want, "data: %d\n\n", round);
        size_t n = sse_read(&q, out, 4); // a small reader gets a part, and never of two events
        assert_int_equal(n, 4);
        n += sse_read(&q, out + 4, sizeof out - 4);
        assert_int_equal(n, strlen(want));
        assert_memory_equal(out, want, n);
        if (round % 3 == 0) {
            n = sse_read(&q, out, sizeof out);
            assert_int_equal(n, 8);
            assert_memory_equal(out, ": ping\n\n", 8);
            assert_int_equal(sse_read(&q, out, sizeof out), 0);
            assert_int_equal(sse_pending(&q), 0);
        } else {
            assert_int_equal(sse_read(&q, out, sizeof out), 8);
        }
    }
    sse_done(&q);
    assert_int_equal(sse_read(&q, out, sizeof out), 14);
    assert_memory_equal(out, "data: [DONE]\n\n", 14);
    sse_free(&q);
}

TEST(errors_have_four_keys) {
    struct api_error e = {0};
    api_fail(&e, 400, "out_of_range", "a\"b", "why \x01 %s", "not");
    api_fail(&e, 500, NULL, NULL, "the first one wins");
    struct buf b = {0};
    openai_write_error(&b, &e);
    assert_string_equal(buf_cstr(&b),
                        "{\"error\":{\"message\":\"why \\u0001 not\",\"type\":\"invalid_request_error\","
                        "\"param\":\"a\\\"b\",\"code\":\"out_of_range\"}}");
    buf_free(&b);
    e = (struct api_error){0};
    api_fail(&e, 503, NULL, NULL, "x");
    openai_write_error(&b, &e);
    assert_string_equal(
        buf_cstr(&b),
        "{\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"param\":null,\"code\":null}}");
    buf_free(&b);
}

static const char *first_route(int index) { return index == 0 ? "/a" : NULL; }

TEST(metrics_are_prometheus_text) {
    static struct metrics m;
    struct service_stats stats = {.num_blocks = 10,
                                  .free_blocks = 5,
                                  .running = 3,
                                  .waiting = 6,
                                  .waiting_deferred = 2,
                                  .prompt_tokens = 100,
                                  .prefix_hits = 30};
    struct engine_info info = {.block_size = 16, .num_blocks = 10, .kv_dtype = "f16"};
    const struct metrics_census census = {0};
    struct metrics_page page = {.name_space = "vllm",
                                .model = "m\"\\x",
                                .stats = &stats,
                                .info = &info,
                                .census = &census,
                                .route_name = first_route,
                                .num_routes = 1};
    metrics_observe(&m, M_TTFT, 0.001);
    metrics_observe(&m, M_TTFT, 0.0011);
    metrics_observe(&m, M_TTFT, 1e9);
    metrics_observe(&m, M_TTFT, NAN);
    metrics_http(&m, 0, "GET", 200, 0.1);
    metrics_http(&m, 0, "GET", 204, 0.6);
    metrics_http(&m, 0, "BREW", 418, 2); // a status of no column of its own
    struct buf b = {0};
    metrics_write(&m, &page, &b);
    const char *text = buf_cstr(&b);
    const char *wanted[] = {
        "# TYPE vllm:time_to_first_token_seconds histogram\n",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"m\\\"\\\\x\",engine=\"0\",le=\"0.001\"} 2\n",
        "le=\"0.005\"} 3\n",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"m\\\"\\\\x\",engine=\"0\",le=\"+Inf\"} 4\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"m\\\"\\\\x\",engine=\"0\"} 4\n",
        "vllm:kv_cache_usage_perc{model_name=\"m\\\"\\\\x\",engine=\"0\"} 0.5\n",
        "vllm:num_requests_running{model_name=\"m\\\"\\\\x\",engine=\"0\"} 3\n",
        "finished_reason=\"abort\"} 0\n",
        "route=\"/a\",status=\"200\"} 1\n",
        "http_requests_total{handler=\"/a\",method=\"GET\",status=\"2xx\"} 2\n",
        "http_requests_total{handler=\"/a\",method=\"other\",status=\"4xx\"} 1\n",
        "http_request_duration_seconds_bucket{handler=\"/a\",method=\"GET\",le=\"0.1\"} 1\n",
        "http_request_duration_seconds_bucket{handler=\"/a\",method=\"GET\",le=\"1\"} 2\n",
        "http_request_duration_seconds_bucket{handler=\"/a\",method=\"other\",le=\"1\"} 0\n",
        "http_request_duration_seconds_count{handler=\"/a\",method=\"other\"} 1\n",
        "engine=\"0\",reason=\"capacity\"} 4\n",
        "engine=\"0\",reason=\"deferred\"} 2\n",
        "engine=\"0\",source=\"local_compute\"} 70\n",
        "engine=\"0\",source=\"local_cache_hit\"} 30\n",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!strstr(text, wanted[i]))
            fail_msg("missing: %s", wanted[i]);
    for (const char *line = text; *line;
         line = strchr(line, '\n') + 1) { // name{labels} number, or name number
        if (*line == '#')
            continue;
        const char *space = line + strcspn(line, " {\n");
        char *end;
        if (*space == '{')
            space = strstr(space, "} ") + 1;
        assert_int_equal(*space, ' ');
        strtod(space + 1, &end);
        assert_true(end > space + 1);
        assert_int_equal(*end, '\n');
    }
    buf_free(&b);
}

TEST(sha256_vectors) {
    static const struct { // the examples of FIPS 180-4
        const char *unit;
        int times;
        const char *hex;
    } cases[] = {
        {"", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf b = {0};
        for (int k = 0; k < cases[i].times; k++)
            buf_str(&b, cases[i].unit);
        uint8_t digest[SHA256_BYTES];
        char hex[2 * SHA256_BYTES + 1];
        sha256(b.data ? b.data : "", b.len, digest);
        for (int k = 0; k < SHA256_BYTES; k++)
            snprintf(hex + 2 * k, 3, "%02x", digest[k]);
        assert_string_equal(hex, cases[i].hex);
        buf_free(&b);
    }
}

TEST(keys_are_compared_whole) {
    struct auth a = {0};
    assert_false(auth_check(&a, "", 0));
    assert_int_equal(auth_add(&a, "one", 3, NULL), STATUS_OK);
    assert_int_equal(auth_add(&a, "two", 3, "second"), STATUS_OK);
    assert_true(auth_check(&a, "one", 3));
    assert_true(auth_check(&a, "two", 3));
    assert_string_equal(auth_name(&a, "two", 3), "second");
    assert_null(auth_name(&a, "one", 3));
    assert_null(auth_name(&a, "third", 5));
    assert_false(auth_check(&a, "on", 2));
    assert_false(auth_check(&a, "onee", 4));
    assert_false(auth_check(&a, "", 0));
    auth_free(&a);
}

TEST(hosts_and_ids) {
    const char *local[] = {"localhost", "LOCALHOST:80", "127.0.0.1",  "127.0.0.1:8000",
                           "[::1]",     "[::1]:1",      "127.0.0.2:3"};
    const char *other[] = {
        "evil.com", "localhost.evil.com", "localhost:80@evil", "127.0.0.1.evil", "", "[::1",
        "::1x",     "localhost:8x"};
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        assert_true(http_host_is_local(local[i], "127.0.0.2"));
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_false(http_host_is_local(other[i], "127.0.0.2"));
    assert_true(http_request_id_ok("aZ0._:-"));
    assert_false(http_request_id_ok(""));
    assert_false(http_request_id_ok("a b"));
    assert_false(http_request_id_ok("a\"b"));
    char longest[130];
    memset(longest, 'x', sizeof longest);
    longest[129] = 0;
    assert_false(http_request_id_ok(longest));
    longest[128] = 0;
    assert_true(http_request_id_ok(longest));
}

int main(void) { return run_all_tests(NULL, NULL); }
