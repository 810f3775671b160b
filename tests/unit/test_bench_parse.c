// The load client's parsers: HTTP/1.1 responses and server-sent events give the same whatever the cuts, and
// refuse what is broken.
#include "event_stream.h"
#include "harness.h"
#include "http1.h"
#include "reply.h"

static void collect(void *context, const char *data, size_t len) { buf_add(context, data, len); }

// Feeds text in pieces; returns the parser's end state and, in `body`, what it gave.
static struct http1 feed(const char *text, size_t len, size_t piece, struct buf *body, size_t *used) {
    struct http1 h = {0};
    http1_reset(&h);
    *used = 0;
    buf_clear(body);
    for (size_t at = 0; at < len && h.state != HTTP1_DONE && h.state != HTTP1_BAD; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        // exactly n bytes of memory, so that a sanitizer sees a step too far
        char *copy = malloc(n);
        assert_non_null(copy);
        memcpy(copy, text + at, n);
        *used += http1_feed(&h, copy, n, collect, body);
        free(copy);
    }
    return h;
}

TEST(responses) {
    static const struct {
        const char *text, *body;
        int status;
        bool keep, events, rest; // rest: bytes follow that are not of this response
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200, true, false, false},
        {"HTTP/1.1 204 No Content\r\n\r\n", "", 204, true, false, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "", 200, false, false, false},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\nab", "ab", 200, true, false,
         false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream; "
         "charset=utf-8\r\n\r\n"
         "4\r\nwiki\r\nA;x=y\r\npedia in\r\n\r\n0\r\nTrailer: x\r\n\r\n",
         "wikipedia in\r\n", 200, true, true, false},
        {"HTTP/1.1 503\nContent-Length: 1\n\nx", "x", 503, true, false, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200", "a", 200, true, false, true},
    };
    struct buf body = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t piece = 1; piece <= strlen(cases[i].text); piece++) {
            size_t used;
            struct http1 h = feed(cases[i].text, strlen(cases[i].text), piece, &body, &used);
            assert_int_equal(h.state, HTTP1_DONE);
            assert_int_equal(h.status, cases[i].status);
            assert_true(h.keep_alive == cases[i].keep);
            assert_true(h.event_stream == cases[i].events);
            assert_string_equal(buf_cstr(&body), cases[i].body);
            if (!cases[i].rest)
                assert_int_equal(used, strlen(cases[i].text));
            else
                assert_int_equal(used, strlen(cases[i].text) - strlen("HTTP/1.1 200"));
            http1_free(&h);
        }
    buf_free(&body);
}

TEST(body_until_close) {
    const char *text = "HTTP/1.0 200 OK\r\n\r\nall of it";
    struct buf body = {0};
    size_t used;
    struct http1 h = feed(text, strlen(text), 3, &body, &used);
    assert_int_equal(h.state, HTTP1_BODY);
    assert_true(http1_closed(&h));
    assert_false(h.keep_alive);
    assert_string_equal(buf_cstr(&body), "all of it");
    http1_free(&h);
    // A body that has a length, or chunks, is not whole when the peer closes.
    static const char *const cut[] = {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
                                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                                      "HTTP/1.1 200 OK\r\nContent-Le"};
    for (size_t i = 0; i < 3; i++) {
        h = feed(cut[i], strlen(cut[i]), 100, &body, &used);
        assert_false(http1_closed(&h));
        http1_free(&h);
    }
    buf_free(&body);
}

TEST(broken_responses) {
    static const char *const cases[] = {
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/2 200\r\n",
        "HTTP/1.1 2x0 OK\r\n",
        "HTTP/1.1 2000 OK\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
    };
    struct buf body = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t piece = 1; piece <= strlen(cases[i]); piece++) {
            size_t used;
            struct http1 h = feed(cases[i], strlen(cases[i]), piece, &body, &used);
            if (h.state != HTTP1_BAD)
                fail_msg("taken: %s", cases[i]);
            assert_non_null(h.why);
            http1_free(&h);
        }
    buf_free(&body);
    // A head without an end is refused, not gathered.
    struct http1 h = {0};
    http1_reset(&h);
    struct buf none = {0};
    for (int i = 0; i < 100000 && h.state == HTTP1_HEAD; i++)
        http1_feed(&h, "HTTP/1.1 2", 10, collect, &none);
    assert_int_equal(h.state, HTTP1_BAD);
    assert_true(h.line.len <= 17 << 10);
    http1_free(&h);
    buf_free(&none);
}

static void on_event(void *context, bool is_error, const char *data, size_t len) {
    struct buf *out = context;
    assert_int_equal(strlen(data), len);
    buf_str(out, is_error ? "E<" : "<");
    buf_add(out, data, len);
    buf_char(out, '>');
}

TEST(events_at_every_cut) {
    static const struct {
        const char *text, *events;
    } cases[] = {
        {"data: one\n\ndata: two\n\n", "<one><two>"},
        {"data: one\r\n\r\ndata:two\r\n\r\n", "<one><two>"},
        {"data: one\r\rdata: two\r\r", "<one><two>"},
        {"\xef\xbb\xbf"
         "data: bom\n\n",
         "<bom>"},
        {": ping\n\ndata: a\ndata: b\n\n", "<a\nb>"},
        {"event: error\ndata: {\"x\":1}\n\ndata: next\n\n", "E<{\"x\":1}><next>"},
        {"data\n\ndata:\n\ndata:  two spaces\n\n", "<><>< two spaces>"},
        {"id: 1\nretry: 5\n\nunknown: x\ndata: y\n\n", "<y>"},
        {"data: never ended\n", ""},
        {"data: {\"t\":\"\xe2\x82\xac \xf0\x9f\x98\x80\"}\n\ndata: [DONE]\n\n",
         "<{\"t\":\"\xe2\x82\xac \xf0\x9f\x98\x80\"}><[DONE]>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t len = strlen(cases[i].text);
        for (size_t first = 0; first <= len; first++)
            for (size_t second = first; second <= len; second++) { // two cuts anywhere: three pieces
                struct event_stream s = {0};
                struct buf out = {0};
                size_t cuts[] = {0, first, second, len};
                for (int k = 0; k < 3; k++) {
                    size_t n = cuts[k + 1] - cuts[k];
                    char *copy = malloc(n + 1);
                    assert_non_null(copy);
                    memcpy(copy, cases[i].text + cuts[k], n);
                    event_stream_feed(&s, copy, n, on_event, &out);
                    free(copy);
                }
                assert_string_equal(buf_cstr(&out), cases[i].events);
                event_stream_free(&s);
                buf_free(&out);
            }
    }
}

TEST(random_bytes) { // no cut, no byte may crash it; any two cuts give the same
    (void)state;
    static const char alphabet[] = "data: \n\r\n\n:event error[]{}\"x\xef\xbb\xbf"
                                   "0123456789abcdef\r\nHTTP/1.1 200 OK";
    uint32_t x = 7;
    for (int round = 0; round < 3000; round++) {
        char text[200];
        size_t len = 1 + (size_t)(x >> 8) % (sizeof text - 1);
        for (size_t i = 0; i < len; i++) {
            x = x * 1664525 + 1013904223;
            text[i] = alphabet[(x >> 16) % (sizeof alphabet - 1)];
        }
        struct buf whole = {0}, split = {0};
        struct event_stream a = {0}, b = {0};
        event_stream_feed(&a, text, len, on_event, &whole);
        for (size_t i = 0; i < len; i++)
            event_stream_feed(&b, text + i, 1, on_event, &split);
        assert_string_equal(buf_cstr(&whole), buf_cstr(&split));
        event_stream_free(&a);
        event_stream_free(&b);
        size_t used, used_whole;
        struct http1 h = feed(text, len, len, &whole, &used_whole);
        struct http1 k = feed(text, len, 1, &split, &used);
        assert_int_equal(h.state, k.state);
        assert_int_equal(whole.len, split.len);
        http1_free(&h);
        http1_free(&k);
        buf_free(&whole);
        buf_free(&split);
    }
}

TEST(an_event_without_end) {
    struct event_stream s = {0};
    struct buf out = {0};
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 400 && !s.failed; i++)
        event_stream_feed(&s, block, sizeof block, on_event, &out);
    assert_true(s.failed);
    assert_true(s.line.len <= EVENT_MAX + sizeof block);
    event_stream_free(&s);
    buf_free(&out);
}

TEST(replies) {
    struct reply r = {0};
    struct buf text = {0};
#define READ(json) reply_read(&r, json, strlen(json), &text)
    READ("{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}");
    assert_true(r.has_choice && !r.has_text && !r.finished);
    READ("{\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}");
    assert_true(r.has_text);
    READ("{\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}");
    assert_true(r.has_text);
    READ("{\"choices\":[{\"text\":\" there\",\"finish_reason\":\"length\"}]}");
    assert_true(r.has_text && r.finished);
    READ("{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,"
         "\"prompt_tokens_details\":{\"cached_tokens\":4}}}");
    assert_false(r.has_text || r.has_choice);
    assert_true(r.finished && r.has_usage && r.has_cached && !r.done && !r.bad);
    assert_int_equal(r.input, 7);
    assert_int_equal(r.output, 3);
    assert_int_equal(r.cached, 4);
    READ("[DONE]");
    assert_true(r.done);
    assert_string_equal(buf_cstr(&text), "Hi there");

    r = (struct reply){0};
    READ("{\"error\":{\"message\":\"out of blocks\",\"code\":500}}");
    assert_string_equal(r.error, "out of blocks");
    static const char *const bad[] = {"",          "{", "[]", "3", "{\"choices\":", "{\"object\":\"x\"}",
                                      "\"[DONE]\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        r = (struct reply){0};
        READ(bad[i]);
        assert_true(r.bad);
    }
    char message[40];
    reply_error("{\"detail\":\"Not Found\"}", 22, message, sizeof message);
    assert_string_equal(message, "Not Found");
    reply_error("<html>\n\n\xff", 9, message, sizeof message); // a proxy's page
    assert_string_equal(message, "<html> ?");
    reply_error("0123456789012345678901234567890123456789", 40, message, 11);
    assert_string_equal(message, "0123456789");
    reply_error("", 0, message, sizeof message);
    assert_string_equal(message, "");
    buf_free(&text);
}

int main(void) { return run_all_tests(NULL, NULL); }
