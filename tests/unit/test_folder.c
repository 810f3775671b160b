// Hugging Face folders: safetensors headers, configurations, vocabularies, indexes and links, made wrong on purpose;
// cut at every length; the bytes that tensors are made of. Over 600 lines: one folder, broken in each of its files.
#include "folder_fixture.h"

#include "models/hf/safetensors.h"
#include "models/model_hash.h"
#include "models/tensor_read.h"

// ---- safetensors

TEST(test_header) {
#define T(name, type, shape, from, to)                                                                       \
    "\"" name "\": {\"dtype\": \"" type "\", \"shape\": " shape ", \"data_offsets\": [" from ", " to "]}"
    static const struct {
        const char *text;
        uint64_t data;
        const char *word;
    } cases[] = {
        {"{}", 0, NULL},
        {"{\"__metadata__\": {\"a\": \"b\"}, " T("x", "F32", "[2, 2]", "0", "16") "}", 16, NULL},
        {"{" T("y", "BF16", "[3]", "4", "10") ", " T("x", "F32", "[]", "0", "4") "}", 10, NULL},
        {"{" T("x", "F32", "[0]", "0", "0") ", " T("y", "F32", "[1]", "0", "4") "}", 4, NULL},
        {"[]", 0, "expected an object"},
        {"{\"x\": 1}", 0, "dtype ?"},
        {"{" T("x", "F31", "[1]", "0", "4") "}", 4, "dtype F31"},
        {"{" T("x", "F32", "[-1]", "0", "4") "}", 4, "a shape"},
        {"{" T("x", "F32", "[1.5]", "0", "4") "}", 4, "a shape"},
        {"{" T("x", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "a shape"},
        {"{" T("x", "F32", "[4294967296, 4294967296, 4294967296]", "0", "4") "}", 4, "a shape"},
        {"{" T("x", "F32", "[1]", "0", "5") "}", 5, "has 5 bytes, expected 4"},
        {"{" T("x", "F32", "[1]", "4", "0") "}", 4, "data_offsets"},
        {"{" T("x", "F32", "[1]", "-4", "0") "}", 4, "data_offsets"},
        {"{" T("x", "F32", "[1]", "0", "4") "}", 3, "cut short"},
        {"{" T("x", "F32", "[1]", "9007199254740988", "9007199254740992") "}", 8, "cut short"},
        {"{" T("x", "F32", "[1]", "0", "4") "}", 5, "the file's end"},
        {"{" T("x", "F32", "[1]", "1", "5") "}", 5, "no hole"},
        {"{" T("x", "F32", "[2]", "0", "8") ", " T("y", "F32", "[2]", "4", "12") "}", 12,
         "where the one before"},
        {"{" T("x", "F32", "[1]", "0", "4") ", " T("x", "F32", "[1]", "4", "8") "}", 8, "there twice"},
        {"{" T("", "F32", "[1]", "0", "4") "}", 4, "empty"},
        {"{" T("a\\u0000", "F32", "[1]", "0", "4") "}", 4, "NUL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct st_header h;
        struct err err = {0};
        size_t len = strlen(cases[i].text);
        char *copy = malloc(len + 1);
        assert_non_null(copy);
        memcpy(copy, cases[i].text, len);
        enum status st = st_parse(&h, "x.safetensors", copy, len, 8 + len + cases[i].data, &err);
        if (cases[i].word ? st != STATUS_FORMAT || !strstr(err.msg, cases[i].word) : st != STATUS_OK)
            fail_msg("%s: expected '%s', got '%s'", cases[i].text, cases[i].word ? cases[i].word : "ok",
                     err.msg);
        st_free(&h);
    }
}

TEST(test_config) {
#define LLAMA(more) "config.json", CONFIG(", " more)
#define STATES(heads)                                                                                        \
    ", \"mamba_n_heads\": " heads ", \"mamba_n_groups\": 2, \"mamba_d_state\": 4, \"mamba_d_head\": 4"
#define FULL ", \"layer_types\": [\"full_attention\"]"
#define PARTS(letters)                                                                                       \
    ", \"mamba_num_heads\": 2, \"n_groups\": 2, \"ssm_state_size\": 4, \"mamba_head_dim\": 4, "              \
    "\"conv_kernel\": 3, \"hybrid_override_pattern\": " letters
#define NOMIC_MOE ", \"num_experts\": 2, \"moe_top_k\": 1, \"moe_every_n_layers\": "
#define OTHER(type, more) "config.json", "{\"model_type\": \"" type "\", " SIZES more "}"
    static const struct change changes[] = {
        {LLAMA("\"use_cache\": true"), NULL},
        {"config.json", NULL, "cannot open config.json"},
        {"config.json", "[]", "expected an object"},
        {"config.json", "{" SIZES "}", "model_type is absent"},
        {OTHER("nobody", ""), "model_type 'nobody' is not supported yet; supported: llama, "},
        {OTHER("jamba", ""),
         "model_type 'jamba' is not supported yet: Mamba 1's scan is not computed; supported: "},
        {"config.json", "{\"model_type\": \"llama\"}", "key num_hidden_layers is missing"},
        {LLAMA("\"head_dim\": \"x\""), "key head_dim at byte 225 is x, expected an integer"},
        {LLAMA("\"head_dim\": 2.5"), "expected an integer"},
        {LLAMA("\"head_dim\": -4"), "expected an integer"},
        {LLAMA("\"head_dim\": 0"), "expected at least 1"},
        {LLAMA("\"rope_theta\": NaN"), "a finite number"},
        {LLAMA("\"rope_theta\": {}"), "a finite number"},
        {LLAMA("\"hidden_act\": \"gelu\""), "key hidden_act at byte 227 is gelu, expected silu"},
        {LLAMA("\"attention_multiplier\": 2"), "does not know how to compute"},
        {LLAMA("\"attention_multiplier\": null, \"qk_layernorm\": false, \"clip_qkv\": null"), NULL},
        {OTHER("falcon_h1", ""), "key mamba_n_heads is missing"},
        {OTHER("falcon_h1", STATES("3")), "in 2 groups"},
        {OTHER("falcon_h1", STATES("0")), "in 2 groups"},
        {OTHER("falcon_h1", STATES("2") ", \"mlp_multipliers\": [1]"), "an array of 2 numbers"},
        {OTHER("falcon_h1", STATES("2") ", \"ssm_multipliers\": [1, 1, 1, 1, NaN]"), "a finite number"},
        {OTHER("falcon_h1", STATES("2") ", \"mamba_rms_norm\": true"), "key mamba_norm_before_gate"},
        {OTHER("falcon_h1", STATES("2") ", \"tie_word_embeddings\": true, \"lm_head_multiplier\": 2"),
         "key tie_word_embeddings"},
        {OTHER("lfm2", ", \"full_attn_idxs\": [1]"), "key full_attn_idxs"},
        {OTHER("lfm2", ", \"layer_types\": [\"mamba\"]"), "expected conv"},
        {OTHER("granitemoehybrid", ", \"layer_types\": [\"attention\"], \"position_embedding_type\": \"x\""),
         "expected rope or nope"},
        {OTHER("ernie4_5_moe", ", \"moe_layer_end_index\": 7"), "-1 or the last layer"},
        {OTHER("hunyuan_v1_moe", ", \"moe_topk\": [1, 2]"), "the same integer for all layers"},
        {OTHER("phimoe", ", \"router_jitter_noise\": 0.1"), "expected 0.01"},
        {OTHER("phimoe",
               ", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1],"
               " \"short_mscale\": 1.2, \"long_mscale\": 1.3}"),
         "short_mscale is 1.2 and long_mscale 1.3, expected the same"},
        {OTHER("dots1", ", \"scoring_func\": \"softmax\""), "expected sigmoid"},
        {OTHER("gemma4_text", ""), "key layer_types is missing"},
        {OTHER("gemma3n_text", ", \"activation_sparsity_pattern\": 0.5"), "an element for each layer"},
        {OTHER("gemma3n_text", ", \"activation_sparsity_pattern\": [1]"), "at least 0 and below 1"},
        {OTHER("gemma3n_text", ", \"altup_correct_scale\": false"), "expected true"},
        {OTHER("gemma4_text", ", \"layer_types\": []"), "an array with an element for each layer"},
        {OTHER("gemma4_text", FULL ", \"enable_moe_block\": 1"), "key enable_moe_block"},
        {OTHER("gemma4_text", FULL ", \"enable_moe_block\": true, \"num_experts\": 4"), "key top_k_experts"},
        {OTHER("gemma4_text", ", \"use_bidirectional_attention\": \"all\""), "expected null or vision"},
        {OTHER("gemma4_text", ", \"num_global_key_value_heads\": 2, \"attention_k_eq_v\": 1"),
         "true or false"},
        {LLAMA("\"rope_scaling\": {\"rope_type\": \"proportional\"}"), "rope_type at byte"},
        {LLAMA("\"rope_scaling\": 1"), "expected an object"},
        {LLAMA("\"rope_scaling\": {\"rope_type\": \"magic\"}"), "rope_type at byte"},
        {LLAMA("\"rope_scaling\": {\"type\": \"linear\"}"), "key factor of the scaling of RoPE is missing"},
        {LLAMA("\"rope_scaling\": {\"type\": \"llama3\", \"factor\": null}"), "key factor of the scaling"},
        {LLAMA("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"x\": 3}"), "key x of the scaling"},
        {LLAMA("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 2, \"truncate\": false}"), "key truncate"},
        {LLAMA("\"rope_scaling\": {\"type\": \"longrope\"}"), "key short_factor"},
        {LLAMA("\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 1], \"long_factor\": [1]}"),
         "expected as many"},
        {LLAMA("\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, \"a\"], \"long_factor\": [1, 1]}"),
         "a finite number"},
        {LLAMA(
             "\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 1, 1], \"long_factor\": [2, 2, 2]}"),
         "rope_factors_short.weight"},
        {OTHER("qwen2", ", \"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [1, 1]}"),
         "expected three numbers"},
        {OTHER("qwen2", ", \"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [1, 1, -1]}"),
         "expected a size"},
        {OTHER("qwen2", ", \"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [1, 1, 1]}"),
         "key qwen2.rope.dimension_sections"},
        {OTHER("qwen2", ", \"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [0, 1, 1]}"),
         "share the 2 pairs"},
        {OTHER("qwen2", ", \"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [1, 1, 0], "
                        "\"mrope_interleaved\": true}"),
         "mrope_interleaved at byte"},
        {LLAMA("\"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [1, 1]}"),
         NULL}, // knows one axis
        {LLAMA("\"original_max_position_embeddings\": 0"), "original positions"},
        {LLAMA("\"partial_rotary_factor\": 0.5"), "does not know how"},
        {LLAMA("\"layer_types\": [\"full_attention\", \"full_attention\"]"), "an element for each layer"},
        {LLAMA("\"layer_types\": [\"linear_attention\"]"), "linear_attention, expected full_attention"},
        {LLAMA("\"layer_types\": [\"sliding_attention\"]"), "no positive integer"},
        {LLAMA("\"sliding_window\": 4, \"layer_types\": [\"sliding_attention\"]"), NULL},
        {LLAMA("\"tie_word_embeddings\": true"), NULL}, // lm_head is there and ignored
        {OTHER("qwen2", ", \"use_sliding_window\": 3"), "true or false"},
        {OTHER("smollm3", ", \"no_rope_layers\": [2]"), "is 2, expected 0 or 1"},
        {OTHER("smollm3", ", \"no_rope_layers\": [1, 1]"), "no_rope_layers at byte"},
        {OTHER("qwen3_moe", ", \"decoder_sparse_step\": 0"), "is 0, expected a positive integer"},
        {OTHER("qwen3_moe", ", \"mlp_only_layers\": [-1]"), "is -1, expected a layer"},
        {OTHER("glm4_moe_lite", ", \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 4, \"v_head_dim\": 4, "
                                "\"mlp_layer_types\": [\"thin\"]"),
         "is thin, expected dense or sparse"},
        {OTHER("gemma4_text", ", \"layer_types\": [\"sliding_attention\"], "
                              "\"per_layer_config\": {\"0\": {\"head_dim\": 8}}"),
         "per_layer_config at byte"},
        {LLAMA("\"per_layer_config\": {\"0\": {\"head_dim\": 8}}"), "key per_layer_config at byte"},
        {LLAMA("\"rope_scaling\": {\"sliding_attention\": {\"rope_type\": \"yarn\"}}"),
         "expected default for layers with a window"},
        {OTHER("mixtral", ", \"num_local_experts\": 2, \"num_experts_per_tok\": 1"),
         "tensor model.layers.0.block_sparse_moe.gate.weight is missing"},
        {OTHER("gpt_neox", ", \"rotary_pct\": 0.5"),
         "tensor model.layers.0.mlp.gate_proj.weight is not part of architecture gptneox"},
        {OTHER("qwen2", ""), "tensor model.layers.0.self_attn.q_proj.bias is missing"},
        {OTHER("gpt_oss", ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2}"),
         "key truncate of the scaling of RoPE is missing, expected false"},
        {OTHER("gpt_oss", ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, \"truncate\": true}"),
         "key truncate of the scaling of RoPE, at byte"},
        {OTHER("gpt_oss", ", \"swiglu_limit\": 5.0"), "is 5.0, expected 7.0"},
        {OTHER("stablelm", ", \"norm_eps\": 1e-5"), "norm_eps of config.json says what another one says"},
        {OTHER("llama4_text", ", \"num_local_experts\": 2, \"use_qk_norm\": false"),
         "expected true, or false with 128"},
        {OTHER("llama4_text", ", \"num_local_experts\": 128, \"use_qk_norm\": true"),
         "expected true, or false with 128"},
        {OTHER("llama4_text", ", \"layer_types\": [\"sliding_attention\"]"),
         "is sliding_attention, expected full_attention or chunked_attention"},
        {OTHER("llama4_text", ", \"moe_layers\": [-1]"), "is -1, expected a layer"},
        {OTHER("llama4_text", ", \"floor_scale\": 0.5"), "expected 1 to 2^24"},
        {OTHER("deepseek_v3", ""), "key qk_nope_head_dim is missing"},
        {OTHER("deepseek_v3", ", \"scoring_func\": \"softmax\""), "expected sigmoid"},
        {OTHER("deepseek_v2", ", \"rope_interleave\": false"), "expected true"},
        {OTHER("minicpm3", ", \"scale_emb\": 10"), "scale_emb at byte 228 is 10, expected 12"},
        {OTHER("minicpm3", ", \"qk_nope_head_dim\": 4"), "key qk_rope_head_dim is missing"},
        {OTHER("nomic_bert", ", \"activation_function\": \"gelu\""), "expected swiglu"},
        {OTHER("nomic_bert", NOMIC_MOE "2, \"moe_normalize_expert_weights\": 1.0"),
         "moe_normalize_expert_weights at byte"},
        {OTHER("nomic_bert", NOMIC_MOE "2, \"num_shared_experts\": 1"), "num_shared_experts at byte"},
        {OTHER("mamba2", ""), "tensor backbone.layers.0.mixer.in_proj.weight is missing"},
        {OTHER("mamba2", ", \"use_bias\": true"), "use_bias at byte"},
        {OTHER("mamba2", ", \"time_step_limit\": [0.0, 1.0]"), "time_step_limit at byte"},
        {OTHER("nomic_bert", ", \"n_layer\": 3.5"), "is not part of model_type"}, // num_hidden_layers says it
        {OTHER("gemma3_text", ", \"use_bidirectional_attention\": 3"), "does not know how"},
        {OTHER("nemotron_h", PARTS("\"-\"")), "for every layer"},
        {OTHER("nemotron_h", PARTS("\"*\"") ", \"mamba_n_heads\": 3"), "in 2 groups"},
        {OTHER("nemotron_h", PARTS("\"*M\"")),
         "tensor backbone.layers.1.norm.weight is missing"}, // not by num_hidden_layers
        {OTHER("nemotron_h", PARTS("[1]")), "expected recurrent layers, attention and feed-forwards"},
        {OTHER("nemotron_h", PARTS("1")), "is a number, expected the kind of each layer"},
        {OTHER("nemotron_h", PARTS("\"E-\"")), "is E-, expected recurrent layers, attention and experts"},
        {OTHER("nemotron_h", PARTS("\"-\"") ", \"n_routed_experts\": 4"), "for every layer"}, // and has none
        {OTHER("nemotron_h", PARTS("\"*\"") ", \"mlp_hidden_act\": \"silu\""), "expected relu2"},
        {"config.json", CONFIG("") "x", "nothing behind"},
    };
    EXPECT_ALL(changes);
}

TEST(test_vocabulary) {
#define TOK(text) "tokenizer.json", "{" text "}"
#define BYTE_LEVEL "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"use_regex\": true}"
#define SPLIT(regex, behavior)                                                                               \
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "    \
    "{\"Regex\": "                                                                                           \
    "\"" regex "\"}, \"behavior\": \"" behavior "\"}, {\"type\": \"ByteLevel\", \"use_regex\": false}]}"
    static const struct change changes[] = {
        {"tokenizer.json", NULL, "cannot open tokenizer.json"},
        {TOK("\"model\": {\"type\": \"WordLevel\"}"),
         "the model of the tokenizer at byte 20 is WordLevel, expected BPE"},
        {TOK("\"model\": {\"type\": \"Unigram\"}"), "model.vocab"},
        {TOK("\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}"), "a string and a score"},
        {TOK("\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", NaN]]}"), "has the score"},
        {TOK("\"model\": {\"type\": \"Unigram\", \"unk_id\": 6, \"vocab\": [[\"a\", -1]]}"), "unk_id"},
        {TOK("\"model\": {\"type\": \"WordPiece\", \"continuing_subword_prefix\": \"@@\", \"vocab\": {\"a\": "
             "0}}"),
         "@@, expected ##"},
        {TOK("\"model\": {\"type\": \"WordPiece\", \"max_input_chars_per_word\": 0, \"vocab\": {\"a\": 0}}"),
         "max_input_chars_per_word"},
        {TOK(REPLACE ", \"model\": {\"type\": \"BPE\", \"fuse_unk\": true, \"merges\": []}"), "model.vocab"},
        {TOK(REPLACE ", \"model\": {\"type\": \"BPE\", " VOCAB ", \"merges\": []}"),
         "byte_fallback or fuse_unk"},
        {TOK(REPLACE ", \"model\": {\"type\": \"BPE\", \"fuse_unk\": true, \"dropout\": 0.5, " VOCAB
                     ", \"merges\": []}"),
         "dropout"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}"),
         "token 0 is 'a' and"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, \"vocab\": {\"a\": -1}, \"merges\": []}"),
         "ids from 0 to 2^22"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, \"vocab\": {\"a\": 4194304}, \"merges\": []}"),
         "ids from 0 to 2^22"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, \"vocab\": {\"a\": 6}, \"merges\": []}"),
         "there is a token 6"},
        {TOK(REPLACE ", \"model\": {\"unk_token\": \"<unk>\", \"fuse_unk\": true, " VOCAB
                     ", \"merges\": [\"a b\"]}"),
         "merge 0 ('a b')"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, " VOCAB ", \"merges\": [[\"a\"]]}"), "two tokens"},
        {TOK(REPLACE ", \"model\": {\"fuse_unk\": true, " VOCAB ", \"merges\": [[\"a b\", \"a\"]]}"),
         "without a space"},
        {TOK("\"normalizer\": {\"type\": \"Nmt\"}, " MODEL), "the normalizer at byte 25 is Nmt"},
        {TOK(MODEL), "spaces as U+2581"},
        {TOK(REPLACE ", \"pre_tokenizer\": {\"type\": \"Whitespace\"}, " MODEL),
         "is Whitespace, expected Metaspace"},
        {TOK(REPLACE ", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\"}, " MODEL),
         "Metaspace"},
        {TOK("\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", "
             "\"prepend_scheme\": \"last\"}, " MODEL),
         "last, expected first"},
        {TOK(REPLACE ", \"post_processor\": {\"type\": \"BertProcessing\"}, " MODEL),
         "a token of the post_processor"},
        {TOK(REPLACE ", \"post_processor\": {\"type\": \"Other\"}, " MODEL), "is Other"},
        {TOK(REPLACE ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                     "[{\"SpecialToken\": {\"id\": \"<x>\"}}]}, " MODEL),
         "one of the vocabulary"},
        {TOK(REPLACE ", \"added_tokens\": [{\"id\": 3, \"content\": \"b\"}], " MODEL), "token 3 is 'a' and"},
        {TOK(REPLACE ", \"added_tokens\": [{\"id\": 5}], " MODEL), "an added token's content"},
        {TOK(REPLACE ", \"added_tokens\": [{\"id\": 5, \"content\": \"<unk>\"}], " MODEL), "twice"},
        {TOK(SPLIT("a[b", "Isolated") ", " MODEL), "'a[b' of the tokenizer has a class without an end"},
        {TOK(SPLIT("(a", "Isolated") ", " MODEL), "missing closing parenthesis"},
        {TOK(SPLIT("(?<n>a)", "Isolated") ", " MODEL), "has a group"},
        {TOK(SPLIT("a{2}+", "Isolated") ", " MODEL), "a + behind an interval"},
        {TOK(SPLIT("\\\\K", "Isolated") ", " MODEL), "an escape"},
        {TOK(SPLIT("\\\\p{N}", "Merged") ", " MODEL), "is Merged"},
        {TOK("\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"_\"}, " BYTE_LEVEL
             ", " MODEL),
         "expected Base64"},
        {TOK("\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": "
             "\"AAAAAAAA\"}, " BYTE_LEVEL ", " MODEL),
         "the precompiled charsmap has 6 bytes"},
        {TOK("\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, "
             "{\"type\": "
             "\"Metaspace\"}]}, " MODEL),
         "is Metaspace, expected "},
        {TOK("\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}, \"model\": {\"type\": \"Unigram\", "
             "\"vocab\": "
             "[[\"a\", -1]]}"),
         "is UnicodeScripts"},
        {TOK(BYTE_LEVEL ", " MODEL), "lacks a token for the byte 0xEF"},
    };
    EXPECT_ALL(changes);
}

TEST(test_tokens) {
    struct err err = {0};
    struct token_buf ids = {0};
    static const char text[] = "a <s>  a b";
    write_sound();
    write_text("tokenizer_config.json",
               "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"a\", \"chat_template\": [{\"name\": "
               "\"default\", \"template\": \"T\"}], \"model_max_length\": 1000000000000000019884624838656}");
    write_text("generation_config.json",
               "{\"eos_token_id\": [3, 4], \"temperature\": 0.5, \"top_k\": 3, \"top_p\": null}");
    struct tokenizer *t = tokenizer_open(folder, &err);
    if (!t)
        fail_msg("%s", err.msg);
    assert_int_equal(tokenizer_vocab(t), 6); // the embedding's rows: the last is unused
    assert_int_equal(tokenizer_bos(t), 1);
    assert_int_equal(tokenizer_eos(t), 3);
    assert_true(tokenizer_is_end(t, 3) && tokenizer_is_end(t, 4) && !tokenizer_is_end(t, 2));
    assert_false(tokenizer_adds_bos(t));
    size_t len;
    assert_memory_equal(tokenizer_chat_template(t, &len), "T", 1);
    assert_int_equal(tokenizer_encode(t, text, strlen(text), TOKENIZE_PARSE_SPECIAL, &ids), STATUS_OK);
    static const token_id expected[] = {3, 2, 1,
                                        3, 2, 0}; // <s> takes the spaces behind it, not the one before
    assert_int_equal(ids.len, 6);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    token_buf_free(&ids);
    tokenizer_free(t);
    struct sampling_advice advice;
    struct model_file *f = model_file_open(folder, &err);
    assert_non_null(f);
    model_config_advice(f, &advice);
    assert_true(advice.temperature == 0.5 && advice.top_k == 3 && advice.top_p == -1);
    model_file_close(f);
    write_text("chat_template.jinja", "U");
    t = tokenizer_open(folder, &err);
    assert_memory_equal(tokenizer_chat_template(t, &len), "U", 1);
    assert_null(tokenizer_tool_template(t, &len));
    tokenizer_free(t);
}

// Templates by name, and where they may lie: a list, chat_template.json, files of their own, of which the last win.
TEST(test_named_templates) {
    static const struct {
        const char *file, *text, *chat, *tools;
    } steps[] = {
        {"tokenizer_config.json",
         "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"B\"}, {\"name\": \"rag\", "
         "\"template\": \"R\"}, "
         "{\"name\": \"default\", \"template\": \"A\"}]}",
         "A", "B"},
        {"chat_template.json", "{\"chat_template\": \"C\"}", "C", "B"},
        {"chat_template.jinja", "D", "D", "B"},
        {"additional_chat_templates/tool_use.jinja", "E", "D", "E"},
    };
    char path[4096];
    size_t len, tool_len;
    write_sound();
    remove_file("chat_template.jinja");
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct err err = {0};
        if (strchr(steps[i].file, '/')) {
            snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
            assert_int_equal(mkdir(path, 0700), 0);
        }
        write_text(steps[i].file, steps[i].text);
        struct tokenizer *t = tokenizer_open(folder, &err);
        if (!t)
            fail_msg("%s", err.msg);
        const char *chat = tokenizer_chat_template(t, &len), *tools = tokenizer_tool_template(t, &tool_len);
        assert_true(chat && tools && len == 1 && tool_len == 1);
        assert_true(*chat == *steps[i].chat && *tools == *steps[i].tools);
        tokenizer_free(t);
    }
    snprintf(path, sizeof path, "%s/additional_chat_templates/tool_use.jinja", folder);
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
    remove_file("chat_template.jinja");
    remove_file("chat_template.json");
    remove_file("tokenizer_config.json");
}

// Which of two files names the first token: null says that there is none, and does not ask the other.
TEST(test_named_tokens) {
    static const struct {
        const char *config, *map;
        int bos;
    } cases[] = {
        {"{\"bos_token\": \"<s>\"}", NULL, 1},
        {"{}", "{\"bos_token\": {\"content\": \"<s>\"}}", 1},
        {"{\"bos_token\": null, \"added_tokens_decoder\": {}}", "{\"bos_token\": \"<s>\"}", -1},
        {"{\"bos_token\": null}", "{\"bos_token\": \"<s>\"}", 1},
        {"{\"bos_token\": \"a\", \"added_tokens_decoder\": {}}", "{\"bos_token\": \"<s>\"}", 3},
        {"{\"bos_token\": \"a\"}", "{\"bos_token\": \"<s>\"}", 1},
        {"{\"bos_token\": \"a\"}", "{\"bos_token\": null}", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        write_sound();
        write_text("tokenizer_config.json", cases[i].config);
        if (cases[i].map)
            write_text("special_tokens_map.json", cases[i].map);
        struct tokenizer *t = tokenizer_open(folder, &err);
        if (!t || tokenizer_bos(t) != cases[i].bos)
            fail_msg("case %zu: %s%d, expected %d", i, err.msg, t ? (int)tokenizer_bos(t) : 0, cases[i].bos);
        tokenizer_free(t);
    }
}

static void link_file(const char *target, const char *name) {
    char path[512];
    remove_file(name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(symlink(target, path), 0);
}

TEST(test_files) {
    char path[512], other[512];
    static const char first[] = "{\"weight_map\": {\"model.embed_tokens.weight\": ", second[] = "}}";
    static const struct {
        const char *file, *word;
    } names[] = {
        {"\"../x.safetensors\"", "expected the name of a file in the folder"},
        {"\"/etc/passwd\"", "expected the name of a file in the folder"},
        {"\".hidden\"", "expected the name of a file in the folder"},
        {"\"a/b\"", "expected the name of a file in the folder"},
        {"\"a\\u0000b\"", "expected the name of a file in the folder"},
        {"7", "expected the name of a file in the folder"},
        {"\"absent.safetensors\"", "cannot open absent.safetensors: No such file"},
        {"\"config.json\"", "no safetensors file"},
        {"\"b.safetensors\"", "tensor model.embed_tokens.weight at byte 17 is not in b.safetensors"},
    };
    write_sound();
    remove_file("model.safetensors");
    expect("no weights", "neither model.safetensors nor model.safetensors.index.json");
    write_shard("a.safetensors", 0, 5);
    write_shard("b.safetensors", 5, NUM_SHAPES);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s%s", first, names[i].file, second);
        write_text("model.safetensors.index.json", text);
        expect(text, names[i].word);
    }
    write_text("model.safetensors.index.json", "{\"weight_map\": {}}");
    expect("an empty index", "expected an object with tensors");
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"model.embed_tokens.weight\": \"a.safetensors\", "
               "\"model.layers.0.mlp.down_proj.weight\": \"b.safetensors\"}}");
    expect("two shards", NULL);
    write_shard("b.safetensors", 4, NUM_SHAPES);
    expect("twice", "self_attn.q_proj.weight is in two files");

    static const char header[] =
        "{\"model.layers.0.mlp.x.weight\": {\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\": [0, 0]}}";
    static char file[8 + sizeof header];
    write_sound();
    memcpy(file, &(uint64_t){sizeof header - 1}, 8);
    memcpy(file + 8, header, sizeof header - 1);
    write_file("model.safetensors", file, 8 + sizeof header - 1);
    expect(header, "tensor model.layers.0.mlp.x.weight is not part of model_type llama");

    // links: within the folder, to the blobs of a cache, elsewhere
    write_sound();
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(other, sizeof other, "%s/blobs/0123", root);
    assert_int_equal(rename(path, other), 0);
    link_file("../../blobs/0123", "model.safetensors");
    expect("a link to a blob", NULL);
    write_text("real.json", CONFIG(""));
    link_file("real.json", "config.json");
    expect("a link in the folder", NULL);
    snprintf(path, sizeof path, "%s/snapshots/config.json", root);
    snprintf(other, sizeof other, "%s/real.json", folder);
    assert_int_equal(rename(other, path), 0);
    link_file("../config.json", "config.json");
    expect("a link elsewhere", "outside the folder");
    remove_file("config.json");
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect("a FIFO", "not a regular file");
    remove_file("config.json");
    assert_int_equal(mkdir(path, 0700), 0);
    expect("a folder", "not a regular file");
    assert_int_equal(rmdir(path), 0);
}

// Keys of sentence-transformers: the pooling, whether vectors have length 1.
TEST(test_modules) {
#define MODULE(path, type) "{\"path\": \"" path "\", \"type\": \"sentence_transformers.models." type "\"}"
#define MODULES(last) "[" MODULE("", "Transformer") ", " MODULE("1_Pooling", "Pooling") last "]"
    static const struct {
        const char *modules, *pooling, *word; // word NULL: must be right
        enum pooling kind;
        bool raw;
    } cases[] = {
        {MODULES(""), "{\"pooling_mode_cls_token\": true}", NULL, POOLING_CLS, true},
        {MODULES(", " MODULE("2_Normalize", "Normalize")), "{\"pooling_mode_lasttoken\": true}", NULL,
         POOLING_LAST, false},
        {MODULES(""), "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_max_tokens\": false}", NULL,
         POOLING_MEAN, true},
        {MODULES(""), "{\"pooling_mode_max_tokens\": true}", "pooling_mode_max_tokens", 0, false},
        {MODULES(""), "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}", "only one of",
         0, false},
        {MODULES(""), "{}", "no pooling_mode is true", 0, false},
        {MODULES(", " MODULE("2_Dense", "Dense")), "{\"pooling_mode_cls_token\": true}", "Dense", 0, false},
        {MODULES(", " MODULE("2_LSTM", "LSTM")), "{\"pooling_mode_cls_token\": true}",
         "LSTM is not supported yet", 0, false},
        {"[" MODULE("Pooling", "Pooling") "]", "{}", "another folder than 1_Pooling", 0, false},
    };
    char path[128];
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct model_config config;
        write_sound();
        write_text("modules.json", cases[i].modules);
        write_text("1_Pooling/config.json", cases[i].pooling);
        expect(cases[i].modules, cases[i].word);
        struct model_file *f = cases[i].word ? NULL : model_file_open(folder, &err);
        if (f && model_config_read(f, &config, &err) == STATUS_OK &&
            (config.pooling != cases[i].kind || config.raw_vectors != cases[i].raw))
            fail_msg("%s: pooling %d, raw %d", cases[i].pooling, (int)config.pooling, config.raw_vectors);
        model_file_close(f);
    }
    remove_file("1_Pooling/config.json");
    remove_file("modules.json");
    rmdir(path);
}

// How many tokens of a text they look at: of 64, what the module says, or else the tokenizer.
TEST(test_length) {
    static const struct {
        const char *module, *tokenizer, *word; // word NULL: must be right
        int length;
    } cases[] = {
        {"{\"max_seq_length\": 16, \"do_lower_case\": false}", "{\"model_max_length\": 32}", NULL, 16},
        {"{\"max_seq_length\": 100}", "{}", NULL, 64},
        {"{\"max_seq_length\": null}", "{\"model_max_length\": 32}", NULL, 32},
        {NULL, "{\"model_max_length\": 32}", NULL, 32},
        {NULL, "{\"model_max_length\": 1000000000000000019884624838656}", NULL, 64},
        {"{\"max_seq_length\": 0}", "{}", "max_seq_length", 0},
        {"{\"max_seq_length\": \"16\"}", "{}", "max_seq_length", 0},
        {"{\"do_lower_case\": true}", "{}", "do_lower_case", 0},
    };
    char path[128];
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct model_config config = {0};
        write_sound();
        write_text("modules.json", MODULES(""));
        write_text("1_Pooling/config.json", "{\"pooling_mode_cls_token\": true}");
        write_text("tokenizer_config.json", cases[i].tokenizer);
        remove_file("sentence_bert_config.json");
        if (cases[i].module)
            write_text("sentence_bert_config.json", cases[i].module);
        expect(cases[i].tokenizer, cases[i].word);
        struct model_file *f = cases[i].word ? NULL : model_file_open(folder, &err);
        if (f && (model_config_read(f, &config, &err) != STATUS_OK || config.max_context != cases[i].length))
            fail_msg("case %zu: length %d, expected %d", i, config.max_context, cases[i].length);
        model_file_close(f);
    }
    remove_file("1_Pooling/config.json");
    remove_file("modules.json");
    remove_file("sentence_bert_config.json");
    rmdir(path);
}

TEST(test_cut) {
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors"};
    for (int i = 0; i < 3; i++) {
        char path[512];
        struct stat st;
        write_sound();
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        assert_int_equal(stat(path, &st), 0);
        for (off_t len = st.st_size - 1; len >= 0; len -= len > 2000 ? 97 : 1) {
            struct err err = {0};
            assert_int_equal(truncate(path, len), 0);
            struct model_file *f = model_file_open(folder, &err);
            if (f || err.code != STATUS_FORMAT || !strstr(err.msg, files[i]))
                fail_msg("%s cut at %lld: '%s'", files[i], (long long)len, err.msg);
        }
    }
}

TEST(test_tensors) {
    struct err err = {0};
    struct stat st;
    char path[512], before[MODEL_HASH_BYTES], after[MODEL_HASH_BYTES];
    unsigned char whole[128];
    write_sound();
    struct model_file *f = model_file_open(folder, &err);
    if (!f)
        fail_msg("%s", err.msg);
    // norms become F32; rows of q and k, in heads of 4, go from (0, 1, 2, 3) to (0, 2, 1, 3)
    assert_int_equal(model_file_find(f, "output_norm.weight")->view.dtype, DTYPE_F32);
    assert_true(value_at(f, "output_norm.weight", 7) == 107);
    assert_true(value_at(f, "token_embd.weight", 47) == 47);
    static const int order[] = {0, 2, 1, 3, 4, 6, 5, 7};
    for (int r = 0; r < 8; r++)
        assert_true(value_at(f, "blk.0.attn_q.weight", (uint64_t)(8 * r + 3)) ==
                    (float)((400 + 8 * order[r] + 3) & ~1));
    assert_true(value_at(f, "blk.0.attn_v.weight", 9) == (float)((600 + 9) & ~3));
    check_pieces(f, model_file_find(f, "blk.0.attn_q.weight"));
    assert_int_equal(model_hash_file(f, before, &err), STATUS_OK);
    model_file_close(f);

    // every file counts
    write_text("config.json", CONFIG(" "));
    f = model_file_open(folder, &err);
    assert_int_equal(model_hash_file(f, after, &err), STATUS_OK);
    assert_string_not_equal(before, after);

    // cut while it is open; then a NaN, in the file's own words
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    const struct model_tensor *down = model_file_find(f, "blk.0.ffn_down.weight");
    assert_int_equal(tensor_read(f, down, whole, &err), STATUS_IO);
    assert_non_null(strstr(err.msg, "model.layers.0.mlp.down_proj.weight"));
    assert_non_null(strstr(err.msg, "of model.safetensors"));
    model_file_close(f);
    write_sound();
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -2, SEEK_END), 0);
    assert_int_equal(fwrite("\xc0\x7f", 1, 2, file), 2);
    assert_int_equal(fclose(file), 0);
    err = (struct err){0};
    f = model_file_open(folder, &err);
    assert_int_equal(tensor_read(f, model_file_find(f, "blk.0.ffn_down.weight"), whole, &err), STATUS_FORMAT);
    char word[64];
    snprintf(word, sizeof word, "byte %lld of model.safetensors", (long long)st.st_size - 2);
    if (!strstr(err.msg, word))
        fail_msg("expected '%s' in '%s'", word, err.msg);
    model_file_close(f);

    // Gemma's norms are stored less one
    write_sound();
    write_text("config.json",
               "{\"model_type\": \"gemma\", \"head_dim\": 4, \"hidden_act\": \"gelu_pytorch_tanh\", " SIZES
               "}");
    f = model_file_open(folder, &err);
    assert_non_null(f);
    assert_true(value_at(f, "blk.0.ffn_norm.weight", 2) == 801);
    assert_true(value_at(f, "blk.0.attn_q.weight", 8) == 408); // and its pairs are apart
    model_file_close(f);
}

// Experts by columns: gate and up of gpt-oss in turns, of Llama 4 in halves.
TEST(test_turned) {
    enum { EXPERTS = 2, COLS = 3, ROWS = 4 };
    static const struct {
        const char *model, *name;
        int first, step;
    } cases[] = {{"gpt_oss", "mlp", 1, 2}, {"llama4_text", "feed_forward", ROWS / 2, 1}};
    float values[EXPERTS * COLS * ROWS];
    struct err err = {0};
    for (int i = 0; i < EXPERTS * COLS * ROWS; i++)
        values[i] = (float)i;
    for (int k = 0; k < 2; k++) {
        char config[512], name[128];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"%s\", \"rope_scaling\": {\"type\": \"default\"}, " SIZES "}",
                 cases[k].model);
        snprintf(name, sizeof name, "model.layers.0.%s.experts.gate_up_proj", cases[k].name);
        write_sound();
        write_text("config.json", config);
        write_raw(&(struct raw_tensor){name, "F32", "2, 3, 4", values, sizeof values}, 1);
        struct model_file *f = model_file_open(folder, &err);
        if (!f)
            fail_msg("%s", err.msg);
        const struct model_tensor *up = model_file_find(f, "blk.0.ffn_up_exps.weight");
        assert_true(up->view.ndim == 3 && up->view.shape[1] == ROWS / 2 && up->view.shape[2] == COLS);
        for (int e = 0; e < EXPERTS; e++)
            for (int r = 0; r < ROWS / 2; r++)
                for (int c = 0; c < COLS; c++)
                    assert_true(
                        value_at(f, "blk.0.ffn_up_exps.weight", (uint64_t)((e * ROWS / 2 + r) * COLS + c)) ==
                        values[(e * COLS + c) * ROWS + cases[k].first + cases[k].step * r]);
        check_pieces(f, up);
        model_file_close(f);
    }
}

int main(void) { return run_all_tests(make_folder, remove_folder); }
