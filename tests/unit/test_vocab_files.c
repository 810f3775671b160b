// Folders with SentencePiece's tokenizer.model or tiktoken.model in place of tokenizer.json, and what is refused of these.
// test_json_vocab has real ones.
#include "folder_fixture.h"

static unsigned char model[4096];
static size_t model_len;

static void add_bytes(const void *data, size_t len) {
    memcpy(model + model_len, data, len);
    model_len += len;
}

// A field of bytes, of less than 128 of them.
static void add_field(int number, const void *data, size_t len) {
    add_bytes((unsigned char[]){(unsigned char)(number << 3 | 2), (unsigned char)len}, 2);
    add_bytes(data, len);
}

static void add_piece(const char *text, float score, int type) {
    unsigned char piece[100] = {10, (unsigned char)strlen(text)};
    size_t n = 2 + strlen(text);
    memcpy(piece + 2, text, strlen(text));
    piece[n++] = 21;
    memcpy(piece + n, &score, 4);
    n += 4;
    if (type != 1) { // which is the default
        piece[n++] = 24;
        piece[n++] = (unsigned char)type;
    }
    add_field(1, piece, n);
}

#define A                                                                                                    \
    "\xe2\x96\x81"                                                                                           \
    "a"
// The six pieces of the folder's embedding, but `less` of them.
static void begin(int less) {
    static const struct {
        const char *text;
        int type;
    } pieces[] = {{"<unk>", 2}, {"<s>", 3}, {"</s>", 3}, {"a", 1}, {A, 1}, {"\xe2\x96\x81", 1}};
    model_len = 0;
    for (int i = 0; i < 6 - less; i++)
        add_piece(pieces[i].text, -1.5f * (float)i, pieces[i].type);
}

static void set_trainer(const char *settings) { add_field(2, settings, strlen(settings)); }
static void write_model(void) { write_file("tokenizer.model", model, model_len); }

#define BPE "\x18\x02"
static void write_bpe(const char *config) {
    write_sound();
    remove_file("tokenizer.json");
    begin(0);
    set_trainer(BPE);
    write_model();
    if (config)
        write_text("tokenizer_config.json", config);
}

static void expect_ids(const char *text, unsigned flags, const char *ids) {
    struct err err = {0};
    struct token_buf b = {0};
    struct tokenizer *t = tokenizer_open(folder, &err);
    char got[256] = "";
    if (!t)
        fail_msg("%s", err.msg);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &b), STATUS_OK);
    for (size_t i = 0; i < b.len; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", b.ids[i]);
    assert_string_equal(got, ids);
    token_buf_free(&b);
    tokenizer_free(t);
}

TEST(test_sentencepiece) {
    write_bpe(NULL);
    expect("a model of pieces", NULL);
    expect_ids("a a", TOKENIZE_ADD_SPECIAL, "1 4 4");
    expect_ids("  a   a ", 0, "4 4"); // remove_extra_whitespaces is true where nothing says otherwise
    expect_ids("a<s>a", TOKENIZE_PARSE_SPECIAL, "4 1 4");
    expect_ids("a<s>a", 0, "4 0 3");
    add_field(3, "\x20\x00", 2);
    write_model();
    expect_ids(" a  a", 0, "5 4 5 4");
    add_field(3, "\x18\x00", 2);
    write_model();
    expect_ids("a a", 0, "3 4");
    // Unigram is the default, and its texts have an end
    begin(0);
    write_model();
    expect_ids("a  a", TOKENIZE_ADD_SPECIAL, "4 4 2");
    struct tokenizer *t = tokenizer_open(folder, NULL);
    struct token_buf b = {0};
    size_t second;
    assert_int_equal(tokenizer_encode_pair(t, "a", 1, "a", 1, TOKENIZE_ADD_SPECIAL, &b, &second), STATUS_OK);
    assert_true(b.len == 4 && second == 2 && b.ids[1] == 2);
    token_buf_free(&b);
    tokenizer_free(t);
}

TEST(test_configuration) {
    static const struct {
        const char *config, *ids; // of "a<s>a"
    } cases[] = {
        {"{\"tokenizer_class\": \"InternLM2Tokenizer\"}", "1 4 1 4"},
        {"{\"tokenizer_class\": \"InternLM2Tokenizer\", \"add_bos_token\": false, \"add_eos_token\": true}",
         "4 1 4 2"},
        {"{\"tokenizer_class\": \"LlamaTokenizer\"}", "1 4 1 3"},
        {"{\"tokenizer_class\": \"LlamaTokenizerFast\", \"legacy\": true}", "1 4 1 4"},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"legacy\": false, \"add_prefix_space\": false}",
         "1 3 1 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_bpe(cases[i].config);
        expect_ids("a<s>a", TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, cases[i].ids);
    }
    // Added tokens take the place of pieces, and their types
    write_bpe("{\"added_tokens_decoder\": {\"5\": {\"content\": \"<|x|>\", \"special\": true}, \"0\": "
              "{\"content\": "
              "\"<unk>\", \"special\": true}, \"77\": {\"content\": \"<|y|>\"}}}");
    expect("an added token without a row", NULL);
    expect_ids("a<|x|>", TOKENIZE_PARSE_SPECIAL, "4 5");
    expect_ids("b", 0, "0");
    // or come from the file of old
    write_bpe("{}");
    write_text("added_tokens.json", "{\"<y>\": 5}");
    expect_ids("a<y>", 0, "4 5");
    write_text("special_tokens_map.json", "{\"additional_special_tokens\": [\"<y>\"]}");
    expect_ids("<y>", TOKENIZE_PARSE_SPECIAL, "5");
    struct tokenizer *t = tokenizer_open(folder, NULL);
    assert_true(t && tokenizer_is_special(t, 5) && tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2);
    tokenizer_free(t);
    remove_file("added_tokens.json");
    static const struct change bad[] = {
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {\"content\": \"y\"}}}",
         "an added token at byte 27 has no id from 0 to 2^22"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"4194304\": {\"content\": \"y\"}}}",
         "has no id"},
        {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"5\": {\"content\": \"\"}}}", "has no text"},
        {"added_tokens.json", "{\"y\": -1}", "has no id"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_bpe("{}");
        write_text(bad[i].file, bad[i].text);
        expect(bad[i].text, bad[i].word);
    }
    remove_file("added_tokens.json");
}

TEST(test_bad_models) {
    static const char none[] = "tokenizer.model: this is no model of SentencePiece with 1 to 2^22 pieces";
    static const struct {
        const char *bytes; // behind the six pieces
        int less;          // fewer of them
        const char *word;
    } cases[] = {
        {"", 6, none},
        {"\x0a", 0, none},              // a length is missing
        {"\x0a\x05xx", 0, none},        // it is too long
        {"\x0b", 0, none},              // groups are not read
        {"\x0f", 0, none},              // nor is what does not exist
        {"\x15xxx", 0, none},           // a word of three bytes
        {"\x12\x03\x1a\x05x", 0, none}, // settings of training end early, and would have named the model
        {"\x1a\x03\x12\x05x", 0, none}, // those of texts
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 0, none}, // a number of 12 bytes
        {"\x12\x02\x18\x03", 0, "the model is one of words or characters"},
        {"\x12\x03\xc0\x01\x01", 0, "treat_whitespace_as_suffix"},
        {"\x1a\x02\x28\x00", 0, "escape_whitespaces that is false"},
        {"", 5, NULL},
        {"\x0a\x03\x0a\x01x", 0, "there are 7 tokens, and config.json has vocab_size 6"},
        {"\x0a\x05\x0a\x01x\x18\x07", 1, "piece 5 is not a text with a type from 1 to 6"},
        {"\x0a\x00", 1, "piece 5 is not a text"},
        {"\x0a\x03\x0a\x02x", 1, "piece 5 is not a text"},
        {"\x0a\x05\x0a\x01x\x18\x02", 1, "the model has no unknown piece, or two"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const size_t lens[] = {0, 1, 4, 1, 1, 4, 5, 5, 13, 4, 5, 4, 0, 5, 7, 2, 5, 7};
        write_sound();
        remove_file("tokenizer.json");
        begin(cases[i].less);
        add_bytes(cases[i].bytes, lens[i]);
        write_model();
        expect("a bad model", cases[i].word);
    }
    begin(0);
    model[4] = 'x'; // "<unk>" is unknown by its type, whatever its name
    write_model();
    expect("another name", NULL);
}

// ---- tiktoken.model

static char lines[16384];
static const char kimi[] =
    "{\"tokenizer_class\": \"TikTokenTokenizer\", \"bos_token\": \"[BOS]\", "
    "\"added_tokens_decoder\": {\"258\": {\"content\": \"[BOS]\", \"special\": true}}}";

static void add_line(const char *base64, int rank) {
    size_t n = strlen(lines);
    snprintf(lines + n, sizeof lines - n, "%s %d\n", base64, rank);
}

static void begin_ranks(int first) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    lines[0] = 0;
    for (int i = first; i < 256; i++)
        add_line((char[]){digits[i >> 2], digits[(i & 3) << 4], '=', '=', 0}, i);
}

static void write_ranks(void) {
    write_sound();
    remove_file("tokenizer.json");
    remove_file("tokenizer.model");
    write_text("config.json",
               "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, "
               "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 8, "
               "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"vocab_size\": 300}");
    write_text("tokenizer_config.json", kimi);
    write_text("tiktoken.model", lines);
}

static void expect_ranks(const char *word) {
    struct err err = {0};
    write_ranks();
    struct tokenizer *t = tokenizer_open(folder, &err);
    if (t || !strstr(err.msg, word))
        fail_msg("expected '%s', got '%s'", word, err.msg);
    tokenizer_free(t);
}

TEST(test_tiktoken) {
    begin_ranks(0);
    add_line("YWE=", 256); // aa
    add_line("YWFh", 257); // aaa
    write_ranks();
    expect_ids("aaaa[BOS]", TOKENIZE_PARSE_SPECIAL, "256 256 258");
    expect_ids("aaa<|reserved_token_259|>\xe4\xb8\xad", TOKENIZE_PARSE_SPECIAL, "257 259 228 184 173");
    expect_ids("aa", TOKENIZE_ADD_SPECIAL, "256");
    write_text("tokenizer_config.json", "{\"tokenizer_class\": \"QWenTokenizer\"}");
    struct err err = {0};
    assert_null(tokenizer_open(folder, &err));
    assert_non_null(
        strstr(err.msg, "tiktoken.model: how words are cut is in the code of tokenizer_class QWenTokenizer"));
    remove_file("tokenizer_config.json");
    err = (struct err){0};
    assert_null(tokenizer_open(folder, &err));
    assert_non_null(strstr(err.msg, "tokenizer_class unnamed"));
    write_text("config.json", CONFIG(""));
    write_text("tokenizer_config.json", kimi);
    err = (struct err){0};
    assert_null(tokenizer_open(folder, &err));
    assert_non_null(strstr(err.msg, "there are 258 tokens, and config.json has vocab_size 6"));
}

TEST(test_bad_ranks) {
    static const struct {
        const char *base64;
        int rank;
        const char *word;
    } cases[] = {
        {"YWE", 258, "line 257 has a rank that another line has, or that is not below the number of lines"},
        {"YWE", 255, "has a rank that another line has"},
        {"YWE", -1, "has a rank that another line has"},
        {"YQ", 256, "line 257 has a token that another line has"},
        {"Y*E", 256, "line 257 is not a token in Base64, a space and a rank"},
        {"", 256, "is not a token in Base64"},
        {"Y", 256, "has a token that is not 1 to 512 bytes long"},
        {"YWFh", 256, "the token of rank 256 is not two of lower ranks, merged"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin_ranks(0);
        add_line(cases[i].base64, cases[i].rank);
        expect_ranks(cases[i].word);
    }
    begin_ranks(1);
    expect_ranks("a file of less than 256 tokens");
    begin_ranks(0);
    strcat(lines, "YWE=");
    expect_ranks("line 257 is not a token in Base64");
    static char longest[700];
    memset(longest, 'Y', 684); // 513 bytes
    begin_ranks(0);
    add_line(longest, 256);
    expect_ranks("has a token that is not 1 to 512 bytes long");
}

int main(void) { return run_all_tests(make_folder, remove_folder); }
