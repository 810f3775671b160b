// The load client's prompts: files, traces, shared prefixes, and the requests written of them.
#include "dataset.h"
#include "harness.h"
#include "log.h"
#include "prompt.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

// A dataset of a file with this text, as by the command line.
static struct dataset *open_with(const char *name, const char *text, struct options *o, char *message,
                                 const char *const *flags) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/quire-bench-test-XXXXXX");
    int fd = mkstemp(path);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    char *argv[24] = {(char *)"quire-bench", (char *)"--dataset-name", (char *)name, (char *)"--dataset-path",
                      path};
    int argc = 5;
    for (; flags && *flags; flags++)
        argv[argc++] = (char *)*flags;
    options_read(o, argc, argv);
    message[0] = 0;
    struct dataset *d = dataset_open(o, message, 200);
    unlink(path);
    return d;
}

TEST(azure) {
    struct options o;
    char message[200];
    const char *const flags[] = {
        "--input-scale", "0.1", "--output-scale", "0.5", "--max-input-len", "80", "--time-scale",
        "0.5",           NULL};
    struct dataset *d = open_with("azure",
                                  "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                  "2023-11-16 23:59:59.5000000,374,44\r\n"
                                  "2023-11-17 00:00:01.2500000,1000,1\n"
                                  "2023-11-17 00:00:02.5000000+00:00,4,0\n",
                                  &o, message, flags);
    assert_non_null(d);
    assert_int_equal(o.arrival, ARRIVAL_TRACE);
    assert_int_equal(dataset_size(d), 3);
    static const struct {
        int64_t at;
        uint32_t in, out;
    } want[] = {{0, 37, 22}, {875000000, 80, 1}, {1500000000, 1, 1}};
    for (size_t i = 0; i < 3; i++) {
        struct item it = dataset_item(d, i);
        assert_true(llabs(it.at - want[i].at) < 200); // a double of the year 2023 has 0.2 µs
        assert_int_equal(it.turns[0].input, want[i].in);
        assert_int_equal(it.turns[0].output, want[i].out);
        item_free(&it);
    }
    dataset_free(d);
    const char *const part[] = {"--trace-start", "1", "--trace-seconds", "1", NULL};
    d = open_with("azure",
                  "T,C,G\n2023-11-16 18:00:00.0,1,1\n2023-11-16 18:00:01.5,2,2\n2023-11-16 18:00:02.5,3,3\n",
                  &o, message, part);
    assert_non_null(d);
    assert_int_equal(dataset_size(d), 1);
    assert_int_equal(d->items[0].turns[0].input, 2);
    dataset_free(d);
    assert_null(open_with("azure", "T,C,G\nyesterday,1,1\n", &o, message, NULL));
    assert_non_null(strstr(message, "line 2"));
}

static uint32_t tokens_of(const struct turn *t) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < t->num_segments; i++)
        sum += t->segments[i].tokens;
    return sum;
}

TEST(mooncake) {
    struct options o;
    char message[200];
    const char *text =
        "{\"timestamp\": 27482, \"input_length\": 1500, \"output_length\": 52, \"hash_ids\": [46, 47, 48]}\n"
        "{\"timestamp\": 30535, \"input_length\": 1100, \"output_length\": 26, \"hash_ids\": [46, 47, 50]}\n"
        "{\"timestamp\": 30535, \"input_length\": 1500, \"output_length\": 1, \"hash_ids\": [46, 47, 48]}\n";
    struct dataset *d = open_with("mooncake", text, &o, message, NULL);
    assert_non_null(d);
    struct prefix_ideal *p = prefix_ideal_new();
    struct item a = dataset_item(d, 0), b = dataset_item(d, 1), c = dataset_item(d, 2);
    assert_int_equal(a.at, 0);
    assert_true(llabs(b.at - 3053000000) < 200);
    assert_int_equal(tokens_of(a.turns), 1500);
    assert_int_equal(tokens_of(b.turns), 1100);
    assert_int_equal(prefix_ideal_add(p, a.turns), 0);
    assert_int_equal(prefix_ideal_add(p, b.turns), 1024); // two blocks of 512
    assert_int_equal(prefix_ideal_add(p, c.turns), 1499); // all but the last token
    prefix_ideal_free(p);
    // The shared part is shared as tokens, too.
    struct prompt_maker m = {.ids = true, .first_id = 100, .ids_n = 1000, .model = "m"};
    struct history none = {0};
    struct buf one = {0}, two = {0};
    prompt_request(&o, &m, a.turns, &none, &one, NULL);
    prompt_request(&o, &m, b.turns, &none, &two, NULL);
    json_t *x = json_loads(strstr(buf_cstr(&one), "\r\n\r\n") + 4, 0, NULL);
    json_t *y = json_loads(strstr(buf_cstr(&two), "\r\n\r\n") + 4, 0, NULL);
    const json_t *ids_x = json_object_get(x, "prompt"), *ids_y = json_object_get(y, "prompt");
    assert_int_equal(json_array_size(ids_x), 1500);
    assert_int_equal(json_array_size(ids_y), 1100);
    size_t same = 0;
    while (same < 1100 && json_equal(json_array_get(ids_x, same), json_array_get(ids_y, same)))
        same++;
    assert_true(same >= 1024 && same < 1030);
    for (size_t i = 0; i < 1500; i++)
        assert_in_range(json_integer_value(json_array_get(ids_x, i)), 100, 1099);
    json_decref(x);
    json_decref(y);
    buf_free(&one);
    buf_free(&two);
    item_free(&a);
    item_free(&b);
    item_free(&c);
    dataset_free(d);
    // Scaled: blocks of 512 / 64 tokens; what is longer than the limit loses its end.
    const char *const flags[] = {"--input-scale", "0.015625", "--max-input-len", "20", NULL};
    d = open_with("mooncake", text, &o, message, flags);
    assert_non_null(d);
    a = dataset_item(d, 0);
    assert_int_equal(a.turns[0].input, 20);
    assert_int_equal(a.turns[0].num_segments, 3);
    assert_int_equal(a.turns[0].segments[0].tokens, 8);
    assert_int_equal(tokens_of(a.turns), 20);
    item_free(&a);
    dataset_free(d);
}

TEST(other_traces) {
    struct options o;
    char message[200];
    struct dataset *d = open_with(
        "vidur", "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8\n", &o,
        message, NULL);
    assert_non_null(d);
    assert_int_equal(o.arrival, ARRIVAL_CLOSED); // it has no times
    assert_int_equal(d->items[0].turns[0].input, 3772);
    assert_int_equal(d->items[0].turns[0].output, 54);
    dataset_free(d);
    d = open_with(
        "aibrix",
        "{\"timestamp\": 655, \"requests\": [{\"Prompt Length\": 9, \"Output Length\": 22, \"prompt\": "
        "\"b\"}]}\n"
        "{\"timestamp\": 21, \"requests\": [{\"Prompt Length\": 3, \"Output Length\": 2, \"prompt\": \"a\"}, "
        "{\"Prompt Length\": 5, \"Output Length\": 7}]}\n",
        &o, message, NULL);
    assert_non_null(d);
    assert_int_equal(d->num, 3);
    assert_string_equal(d->items[0].turns[0].text, "a"); // in the order of their times
    assert_int_equal(d->items[0].at, 0);
    assert_null(d->items[1].turns[0].text);
    assert_int_equal(tokens_of(d->items[1].turns), 5);
    assert_string_equal(d->items[2].turns[0].text, "b");
    assert_true(llabs(d->items[2].at - 634000000) < 200);
    dataset_free(d);
}

TEST(files) {
    struct options o;
    char message[200];
    const char *const all[] = {"--multi-turn", "--disable-shuffle", NULL};
    struct dataset *d =
        open_with("sharegpt",
                  "[{\"conversations\":[{\"from\":\"human\",\"value\":\"q1\"},{\"from\":\"gpt\",\"value\":"
                  "\"a long enough answer of 36 bytes, so\"},{\"from\":\"human\",\"value\":\"q2\"},"
                  "{\"from\":\"gpt\",\"value\":\"a2\"}]},{\"conversations\":[]}]",
                  &o, message, all);
    assert_non_null(d);
    assert_int_equal(d->num, 1);
    struct item it = dataset_item(d, 5); // begins anew
    assert_int_equal(it.num_turns, 2);
    assert_string_equal(it.turns[1].text, "q2");
    assert_int_equal(it.turns[0].output, 9);
    item_free(&it);
    dataset_free(d);
    d = open_with("mtbench", "{\"turns\": [\"one\", \"two\"]}\n\n{\"turns\": [\"three\"]}\n", &o, message,
                  NULL);
    assert_non_null(d);
    assert_int_equal(d->num, 2);
    assert_int_equal(d->items[0].num_turns, 1);
    dataset_free(d);
    d = open_with("text", "first\nparagraph\n\n\nsecond", &o, message, all + 1);
    assert_non_null(d);
    assert_int_equal(d->num, 2);
    assert_string_equal(d->items[0].turns[0].text, "first\nparagraph");
    assert_string_equal(d->items[1].turns[0].text, "second");
    dataset_free(d);
    assert_null(open_with("custom", "{\"prompt\": \"x\"}\n{\"nothing\": 1}\n", &o, message, NULL));
    assert_non_null(strstr(message, "line 2"));
    assert_null(open_with("sharegpt", "{}", &o, message, NULL));
    assert_null(open_with("text", "\n\n", &o, message, NULL));
    assert_non_null(strstr(message, "no prompts"));
}

TEST(made_up) {
    char *argv[] = {(char *)"quire-bench", (char *)"--random-input-len",
                    (char *)"100",         (char *)"--random-range-ratio",
                    (char *)"0.5",         (char *)"--random-prefix-len=7",
                    (char *)"--num-turns", (char *)"2"};
    struct options o;
    options_read(&o, 8, argv);
    char message[200];
    struct dataset *d = dataset_open(&o, message, sizeof message);
    uint32_t least = UINT32_MAX, most = 0;
    double sum = 0;
    for (size_t i = 0; i < 2000; i++) {
        struct item it = dataset_item(d, i), again = dataset_item(d, i);
        assert_int_equal(it.num_turns, 2);
        assert_int_equal(it.turns[0].input, again.turns[0].input);
        assert_int_equal(it.turns[0].segments[0].tokens, 7);
        uint32_t n = it.turns[0].segments[1].tokens;
        least = n < least ? n : least;
        most = n > most ? n : most;
        sum += n;
        item_free(&it);
        item_free(&again);
    }
    assert_int_equal(least, 50);
    assert_int_equal(most, 150);
    assert_true(fabs(sum / 2000 - 100) < 3);
    // Words: as many as the server's count says, and the history before them.
    struct prompt_maker m = {.tokens_per_word = 2, .overhead = 5, .model = "m"};
    struct item it = dataset_item(d, 0);
    struct buf text = {0};
    prompt_words(&m, &it.turns[1], false, &text);
    size_t words = 1;
    for (size_t i = 0; i < text.len; i++)
        words += text.data[i] == ' ';
    assert_true(fabs((double)words - it.turns[1].input / 2.0) <= 1);
    o.chat = true;
    o.ignore_eos = true;
    o.extra_body = " {\"top_k\": 1 } ";
    struct history h = {0};
    history_add(&h, "hi \"you\"", 8);
    history_add(&h, "yes?", 4);
    struct buf out = {0}, user = {0};
    prompt_request(&o, &m, &it.turns[1], &h, &out, &user);
    json_t *root = json_loads(strstr(buf_cstr(&out), "\r\n\r\n") + 4, 0, NULL);
    assert_non_null(root);
    const json_t *list = json_object_get(root, "messages");
    assert_int_equal(json_array_size(list), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "content")), "hi \"you\"");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "role")), "assistant");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 2), "content")),
                        buf_cstr(&user));
    assert_string_equal(buf_cstr(&user), buf_cstr(&text));
    assert_int_equal(json_integer_value(json_object_get(root, "top_k")), 1);
    assert_true(json_is_true(json_object_get(root, "ignore_eos")));
    assert_int_equal(json_integer_value(json_object_get(root, "max_tokens")), it.turns[1].output);
    json_decref(root);
    history_free(&h);
    buf_free(&out);
    buf_free(&user);
    buf_free(&text);
    item_free(&it);
    dataset_free(d);
}

TEST(urls) {
    static const struct {
        const char *url, *host, *port, *path;
    } cases[] = {
        {"http://localhost", "localhost", "80", "/v1/completions"},
        {"http://10.0.0.1:8000/", "10.0.0.1", "8000", "/v1/completions"},
        {"http://[::1]:9/v1", "::1", "9", "/v1/completions"},
        {"http://gateway/models/a", "gateway", "80", "/models/a/v1/completions"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *argv[] = {(char *)"quire-bench", (char *)"--base-url", (char *)cases[i].url};
        struct options o;
        options_read(&o, 3, argv);
        assert_string_equal(o.url_host, cases[i].host);
        assert_string_equal(o.url_port, cases[i].port);
        assert_string_equal(o.path, cases[i].path);
    }
}

int main(void) { return run_all_tests(NULL, NULL); }
