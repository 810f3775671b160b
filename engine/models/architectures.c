// See architectures.h. docs/architecture.md says which files a new one touches.
#include "architectures.h"

#include <string.h>

#define LIST(...) ((const unsigned char[]){__VA_ARGS__, NUM_HPARAMS})
#define EXPERTS H_TOP_K, H_EXPERT_FFN, H_EXPERT_SCALE, H_EXPERT_NORM, H_EXPERT_GATING
#define SSM H_SSM_CONV, H_SSM_INNER, H_SSM_STATE, H_SSM_HEADS, H_SSM_GROUPS
#define EXPERT_GROUPS H_EXPERT_GROUPS, H_EXPERT_TOP_GROUPS
#define SCALES H_EMBED_SCALE, H_RESIDUAL_SCALE, H_LOGIT_SCALE
static const struct arch_experts
    chosen = {.gating = GATING_SOFTMAX_CHOSEN},
    chosen_biased = {.gating = GATING_SOFTMAX_CHOSEN, .biases = true}, plain = {.gating = GATING_SOFTMAX},
    with_gate = {.gating = GATING_SOFTMAX, .shared_gate = true},
    renormalised = {.gating = GATING_SOFTMAX, .renormalise = true},
    renormalised_biased = {.gating = GATING_SOFTMAX, .renormalise = true, .select_bias = true},
    renormalised_gate = {.gating = GATING_SOFTMAX, .renormalise = true, .shared_gate = true},
    sigmoid = {.gating = GATING_SIGMOID, .select_bias = true},
    sigmoid_renormalised = {.gating = GATING_SIGMOID, .renormalise = true, .select_bias = true},
    deepseek = {.gating = GATING_SOFTMAX, .select_bias = true, .bias_is_sigmoid = true},
    weighed = {.gating = GATING_SIGMOID, .shared = 1, .weigh_input = true},
    own_norms = {.gating = GATING_SOFTMAX, .renormalise = true, .own_norms = true},
    nomic = {.gating = GATING_SOFTMAX, .sum_bias = true}, in_turn = {.gating = GATING_IN_TURN, .near = 0.02f},
    sigmoid_by_tensors = {.gating = GATING_SIGMOID,
                          .renormalise = true,
                          .select_bias = true,
                          .by_tensors = true},
    average = {.gating = GATING_SIGMOID, .average = true},
    early = {.gating = GATING_SIGMOID, .renormalise = true, .early_router = true};
#define NORM_LAYERS .norm = NORM_LAYER, .norm_bias = OPTIONAL
#define FFN_BIASES .ffn_bias = OPTIONAL
#define BERT (TRAIT_SUM_NORMS | TRAIT_NO_PRE_NORMS | TRAIT_EMBED_NORM)
static const struct arch archs[] = {
    // Llama 1 to 3.2, Mistral, Mixtral
    {"llama", FFN_BIASES, .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .window_every_layer = true, .experts = &chosen, .may = LIST(H_TOP_K, H_NEXTN)},
    // Qwen2, Qwen2.5
    {"qwen2", .qkv_bias = ALWAYS, .may = LIST(H_ROPE_SECTIONS)},
    {"qwen2vl", .qkv_bias = ALWAYS, .may = LIST(H_ROPE_SECTIONS)}, // Qwen2-VL, Qwen2.5-VL
    {"qwen3vl", .qk_norm = QK_NORM_HEADS, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .axes_in_turns = true,
     .may = LIST(H_ROPE_SECTIONS, H_DEEPSTACK)},
    {"qwen3", .qk_norm = QK_NORM_HEADS, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL},
    // Arcee's AFM
    {"arcee", FFN_BIASES, .rope_interleaved = true, .traits = TRAIT_NO_GATE, .act = ACT_RELU2,
     .qkv_bias = OPTIONAL, .out_bias = OPTIONAL},
    // Llama-Nemotron Super and Ultra, DeciLM
    {"deci", FFN_BIASES, .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .traits = TRAIT_LAYERS_DIFFER | TRAIT_PARTS_MISSING},
    {"apertus", .qk_norm = QK_NORM_HEADS, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .traits = TRAIT_NO_GATE,
     .act = ACT_XIELU},
    // Granite 3 and 4 (dense, without recurrent layers)
    {"granite", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .logits_divided = true,
     .may = LIST(SCALES, H_ROPE_FINETUNED), .must = LIST(H_LOGIT_SCALE)},
    // MiniCPM 1 and 2, MiniCPM 4. Old files without the scales do not say what they mean.
    {"minicpm", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .logits_divided = true,
     .must = LIST(SCALES)},
    {"smollm3", .rope_interleaved = true, .qkv_bias = OPTIONAL, .no_rope_every = 4},
    // InternLM 2 and 2.5
    {"internlm2", .rope_interleaved = true},
    {"ernie4_5", FFN_BIASES, .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL},
    {"seed_oss", .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .traits = TRAIT_FFN_NORM_NAME},
    {"hunyuan-dense", .qk_norm = QK_NORM_ROTATED},
    // Phi 3, 3.5 and 4
    {"phi3", .traits = TRAIT_FUSED_FFN, .window_every_layer = true},
    // Phi 3.5 MoE
    {"phimoe", NORM_LAYERS, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .head_bias = OPTIONAL,
     .window_every_layer = true, .experts = &in_turn, .may = LIST(H_TOP_K)},
    // OLMo 1
    {"olmo", .norm = NORM_LAYER, .traits = TRAIT_BARE_NORMS, .rope_interleaved = true, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .may = LIST(H_ATTN_CLIP), .must = LIST(H_LAYER_NORM_EPS)},
    {"olmo2", .qk_norm = QK_NORM_WHOLE, .traits = TRAIT_POST_NORMS | TRAIT_NO_PRE_NORMS, .window_pattern = 4,
     .window_rope = true, .may = LIST(H_ROPE_WINDOW_BASE)}, // and OLMo 3
    {"glm4", .rope_interleaved = true, .qkv_bias = OPTIONAL, .traits = TRAIT_POST_NORMS | TRAIT_FUSED_FFN},
    {"chatglm", .rope_interleaved = true, .qkv_bias = OPTIONAL, .traits = TRAIT_FUSED_FFN}, // GLM-4-9B
    {"exaone4", .qk_norm = QK_NORM_HEADS, .traits = TRAIT_POST_NORMS | TRAIT_NO_PRE_NORMS,
     .window_pattern = 4, .full_no_rope = true},
    {"starcoder2", NORM_LAYERS, FFN_BIASES, .traits = TRAIT_NO_GATE, .act = ACT_GELU, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .window_every_layer = true, .must = LIST(H_LAYER_NORM_EPS)},
    // StableLM 1 and 2; the 12B has parallel blocks
    {"stablelm", NORM_LAYERS, .qkv_bias = OPTIONAL, .qk_norm = QK_NORM_EACH, .one_norm = OPTIONAL,
     .may = LIST(H_PARALLEL), .must = LIST(H_LAYER_NORM_EPS)},
    // Phi 1, 1.5 and 2
    {"phi2", NORM_LAYERS, FFN_BIASES, .traits = TRAIT_NO_GATE, .act = ACT_GELU, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .head_bias = OPTIONAL, .one_norm = ALWAYS, .must = LIST(H_LAYER_NORM_EPS)},
    {"gpt2", NORM_LAYERS, FFN_BIASES, .traits = TRAIT_NO_GATE | TRAIT_POSITIONS, .act = ACT_GELU,
     .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .no_rope_every = 1, .must = LIST(H_LAYER_NORM_EPS)},
    // Pythia, GPT-NeoX
    {"gptneox", NORM_LAYERS, FFN_BIASES, .traits = TRAIT_NO_GATE, .act = ACT_GELU_ERF, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .must = LIST(H_LAYER_NORM_EPS, H_PARALLEL)},
    // Falcon 7B, 40B and 180B, Falcon 2 11B
    {"falcon", NORM_LAYERS, FFN_BIASES, .traits = TRAIT_NO_GATE | TRAIT_TWO_ATTN_NORMS, .act = ACT_GELU_ERF,
     .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .one_norm = OPTIONAL, .must = LIST(H_LAYER_NORM_EPS)},
    // Nemotron 3 8B, Nemotron 4, Minitron
    {"nemotron", NORM_LAYERS, FFN_BIASES, .traits = TRAIT_NO_GATE, .act = ACT_RELU2, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .must = LIST(H_LAYER_NORM_EPS)},
    // Nemotron-H, Nemotron Nano 2 and 3
    {"nemotron_h", .mix = MIX_SSM, .act = ACT_RELU2, .no_rope_every = 1,
     .traits = TRAIT_SSM | TRAIT_NO_GATE | TRAIT_ONE_PART, .may = LIST(H_LAYER_NORM_EPS), .must = LIST(SSM)},
    {"nemotron_h_moe", .mix = MIX_SSM, .act = ACT_RELU2, .no_rope_every = 1,
     .traits = TRAIT_SSM | TRAIT_NO_GATE | TRAIT_ONE_PART, .experts = &sigmoid,
     .may = LIST(H_LAYER_NORM_EPS, EXPERTS, EXPERT_GROUPS, H_SHARED_EXPERTS, H_SHARED_FFN, H_NEXTN,
                 H_EXPERT_LATENT),
     .must = LIST(SSM, H_EXPERT_FFN)},
    // Command R and R+
    {"command-r", .norm = NORM_LAYER, .one_norm = ALWAYS, .rope_interleaved = true, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .qk_norm = QK_NORM_EACH, .may = LIST(H_LOGIT_SCALE),
     .must = LIST(H_LAYER_NORM_EPS)},
    // Command R7B, Command A
    {"cohere2", .norm = NORM_LAYER, .one_norm = ALWAYS, .rope_interleaved = true, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .window_pattern = 4, .full_no_rope = true,
     .must = LIST(H_LAYER_NORM_EPS, H_LOGIT_SCALE, H_WINDOW)},
    // Command A+, North Mini
    {"cohere2moe", .norm = NORM_LAYER, .one_norm = ALWAYS, .rope_interleaved = true, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .window_pattern = 4, .full_no_rope = true, .dense_rope = true, .experts = &average,
     .may = LIST(H_LAYER_NORM_EPS, EXPERTS, H_SHARED_EXPERTS, H_SHARED_FFN, H_DENSE_LAYERS, H_NEXTN),
     .must = LIST(H_LOGIT_SCALE, H_WINDOW, H_EXPERT_FFN)},
    {"gemma", .act = ACT_GELU, .embed_sqrt = true},
    {"gemma2", .act = ACT_GELU, .embed_sqrt = true, .traits = TRAIT_POST_NORMS, .window_pattern = 2,
     .wide_scale_layers = 46, .must = LIST(H_ATTN_SOFTCAP, H_LOGIT_SOFTCAP, H_WINDOW)},
    {"gemma3", .act = ACT_GELU, .embed_sqrt = true, .qk_norm = QK_NORM_HEADS, .traits = TRAIT_POST_NORMS,
     .window_pattern = 6, .window_rope = true, .window_theta = 10000, .wide_scale_layers = 62,
     .may = LIST(H_LOGIT_SOFTCAP, H_ROPE_WINDOW_BASE)},
    // Gemma 4
    {"gemma4", .act = ACT_GELU, .embed_sqrt = true, .attn_scale = 1, .qk_norm = QK_NORM_HEADS,
     .traits = TRAIT_POST_NORMS | TRAIT_LAYER_EMBED | TRAIT_V_NORM | TRAIT_LAYERS_DIFFER | TRAIT_OWN_NORMS,
     .window_rope = true, .window_theta = 10000, .experts = &own_norms,
     .may = LIST(H_LOGIT_SOFTCAP, H_ROPE_WINDOW_BASE, H_WINDOW_KEY_DIM, H_WINDOW_VALUE_DIM, H_WINDOW_ROPE_DIM,
                 H_SHARED_KV, H_LAYER_EMBED, EXPERTS),
     .must = LIST(H_WINDOW, H_KEY_DIM)},
    // Gemma 3n (text)
    {"gemma3n", .act = ACT_GELU, .embed_sqrt = true, .attn_scale = 1, .qk_norm = QK_NORM_HEADS,
     .traits = TRAIT_POST_NORMS | TRAIT_LAYER_EMBED | TRAIT_V_NORM | TRAIT_LAYERS_DIFFER | TRAIT_STREAMS,
     .window_pattern = 5, .window_rope = true, .window_theta = 10000, .logit_softcap = 30,
     .may = LIST(H_LOGIT_SOFTCAP, H_ROPE_WINDOW_BASE, H_SHARED_KV, H_ALTUP_STREAMS, H_ALTUP_STREAM),
     .must = LIST(H_WINDOW, H_KEY_DIM, H_LAYER_EMBED, H_SPARSITY)},
    {"lfm2", .mix = MIX_CONV, .qk_norm = QK_NORM_HEADS, .traits = TRAIT_SHORT_CONV,
     .must = LIST(H_SHORT_CONV)}, // LFM2, LFM2.5
    {"lfm2moe", .mix = MIX_CONV, .qk_norm = QK_NORM_HEADS, .traits = TRAIT_SHORT_CONV,
     .experts = &sigmoid_renormalised, .may = LIST(EXPERTS, H_DENSE_LAYERS),
     .must = LIST(H_SHORT_CONV, H_EXPERT_FFN)}, // LFM2 8B A1B
    // Granite 4 (hybrid)
    {"granitehybrid", .mix = MIX_SSM, .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .logits_divided = true, .traits = TRAIT_SSM, .experts = &chosen,
     .may = LIST(SCALES, H_ROPE_FINETUNED, EXPERTS, H_SHARED_FFN), .must = LIST(H_LOGIT_SCALE, SSM)},
    {"mamba2", .mix = MIX_SSM, .mix_alone = true, .traits = TRAIT_SSM, .must = LIST(SSM)},
    {"falcon-h1", .mix = MIX_SSM, .mix_beside = true, .traits = TRAIT_SSM | TRAIT_BARE_FFN_NORM,
     .must = LIST(SSM)},
    // Qwen 3.5 (dense)
    {"qwen35", .mix = MIX_DELTA, .mix_tiled = true, .qk_norm = QK_NORM_HEADS, .axes_in_turns = true,
     .traits = TRAIT_DELTA | TRAIT_ATTN_GATE | TRAIT_FFN_NORM_NAME, .must = LIST(SSM),
     .may = LIST(H_ATTN_INTERVAL, H_RECURRENT_LAYERS, H_ROPE_SECTIONS, H_NEXTN)},
    {"qwen35moe", .mix = MIX_DELTA, .mix_tiled = true, .qk_norm = QK_NORM_HEADS, .axes_in_turns = true,
     .traits = TRAIT_DELTA | TRAIT_ATTN_GATE | TRAIT_FFN_NORM_NAME, .experts = &renormalised_gate,
     .must = LIST(SSM, H_EXPERT_FFN, H_SHARED_FFN),
     .may = LIST(H_ATTN_INTERVAL, H_RECURRENT_LAYERS, H_ROPE_SECTIONS, H_NEXTN, EXPERTS)},
    // Qwen3 Next
    {"qwen3next", .mix = MIX_DELTA, .qk_norm = QK_NORM_HEADS,
     .traits = TRAIT_DELTA | TRAIT_BETA_ALPHA | TRAIT_ATTN_GATE | TRAIT_FFN_NORM_NAME,
     .experts = &renormalised_gate, .must = LIST(SSM, H_EXPERT_FFN, H_SHARED_FFN),
     .may = LIST(H_ATTN_INTERVAL, H_RECURRENT_LAYERS, H_NEXTN, EXPERTS)},
    // Mistral Small 3, Ministral 3
    {"mistral3", .rope_interleaved = true, .out_bias = OPTIONAL, .qkv_bias = OPTIONAL,
     .window_every_layer = true, .may = LIST(H_ATTN_TEMP, H_ROPE_YARN_LOG)},
    {"qwen3moe", .qk_norm = QK_NORM_HEADS, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .experts = &renormalised, .may = LIST(EXPERTS), .must = LIST(H_EXPERT_FFN)},
    {"qwen3vlmoe", .qk_norm = QK_NORM_HEADS, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .axes_in_turns = true, .experts = &renormalised, .may = LIST(EXPERTS, H_ROPE_SECTIONS, H_DEEPSTACK),
     .must = LIST(H_EXPERT_FFN)},
    {"minimax-m2", .qk_norm = QK_NORM_WHOLE, .experts = &sigmoid_renormalised, .may = LIST(EXPERTS),
     .must = LIST(H_EXPERT_FFN)},
    // Arcee's Trinity
    {"afmoe", .qk_norm = QK_NORM_HEADS, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .embed_sqrt = true,
     .traits = TRAIT_POST_NORMS | TRAIT_GATE_APART, .window_pattern = 4, .full_no_rope = true,
     .experts = &sigmoid_renormalised, .may = LIST(EXPERTS, H_SHARED_EXPERTS, H_DENSE_LAYERS, H_EMBED_SCALE),
     .must = LIST(H_EXPERT_FFN)},
    // Mistral Small 4
    {"mistral4", .rope_interleaved = true, .traits = TRAIT_LATENT, .experts = &renormalised,
     .may = LIST(EXPERTS, EXPERT_GROUPS, H_SHARED_EXPERTS, H_DENSE_LAYERS, H_ROPE_YARN_LOG, H_LATENT_KEY_DIM,
                 H_LATENT_VALUE_DIM, H_Q_LORA, H_ATTN_TEMP),
     .must = LIST(H_KV_LORA, H_ROPE_DIM)},
    // Ling and Ring 1; and 2
    {"bailingmoe", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .experts = &plain,
     .may = LIST(EXPERTS, H_SHARED_EXPERTS, H_DENSE_LAYERS), .must = LIST(H_EXPERT_FFN)},
    {"bailingmoe2", .qk_norm = QK_NORM_HEADS, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .experts = &sigmoid_renormalised,
     .may = LIST(EXPERTS, EXPERT_GROUPS, H_SHARED_EXPERTS, H_SHARED_FFN, H_DENSE_LAYERS, H_NEXTN),
     .must = LIST(H_EXPERT_FFN)},
    // Hunyuan 3
    {"hy_v3", .qk_norm = QK_NORM_HEADS, .traits = TRAIT_BARE_SELECT_BIAS, .experts = &sigmoid_by_tensors,
     .may = LIST(EXPERTS, H_SHARED_EXPERTS, H_SHARED_FFN, H_DENSE_LAYERS, H_NEXTN),
     .must = LIST(H_EXPERT_FFN)},
    {"smallthinker", .act = ACT_RELU, .window_pattern = 4, .full_first = true, .full_no_rope = true,
     .experts = &early, .may = LIST(EXPERTS), .must = LIST(H_EXPERT_FFN)},
    {"exaone-moe", .qk_norm = QK_NORM_HEADS, .window_pattern = 4, .full_no_rope = true, .experts = &sigmoid,
     .may = LIST(EXPERTS, EXPERT_GROUPS, H_SHARED_EXPERTS, H_DENSE_LAYERS, H_NEXTN),
     .must = LIST(H_EXPERT_FFN)},
    // DeepSeek V2, V3 and R1, Kimi K2, GLM 4.7 Flash
    {"deepseek2", .rope_interleaved = true, .traits = TRAIT_LATENT, .experts = &deepseek,
     .may = LIST(EXPERTS, EXPERT_GROUPS, H_SHARED_EXPERTS, H_DENSE_LAYERS, H_NEXTN, H_ROPE_YARN_LOG,
                 H_LATENT_KEY_DIM, H_LATENT_VALUE_DIM, H_Q_LORA),
     .must = LIST(H_KV_LORA, H_ROPE_DIM)},
    {"minicpm3", .traits = TRAIT_LATENT, .embed_scale = 12, .depth_scale = 1.4f, .logit_base = 256,
     .must = LIST(H_KV_LORA, H_ROPE_DIM, H_Q_LORA)},
    // Qwen1.5 and Qwen2 MoE
    {"qwen2moe", .qkv_bias = ALWAYS, .experts = &with_gate, .may = LIST(EXPERTS, H_SHARED_FFN),
     .must = LIST(H_EXPERT_FFN, H_SHARED_FFN)},
    {"olmoe", .qk_norm = QK_NORM_WHOLE, .experts = &plain, .may = LIST(EXPERTS)},
    {"granitemoe", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .logits_divided = true, .experts = &chosen, .may = LIST(SCALES, H_ROPE_FINETUNED, EXPERTS, H_SHARED_FFN),
     .must = LIST(H_LOGIT_SCALE)},
    // GLM 4.5 to 4.7; the smaller ones have no norms of heads
    {"glm4moe", .qkv_bias = OPTIONAL, .qk_norm = QK_NORM_HEADS, .qk_norm_optional = true,
     .traits = TRAIT_FFN_NORM_NAME, .experts = &sigmoid,
     .may = LIST(EXPERTS, EXPERT_GROUPS, H_SHARED_EXPERTS, H_DENSE_LAYERS, H_NEXTN),
     .must = LIST(H_EXPERT_FFN)},
    {"ernie4_5-moe", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL,
     .experts = &renormalised_biased,
     .may = LIST(EXPERTS, H_SHARED_EXPERTS, H_SHARED_FFN, H_DENSE_LAYERS, H_EXPERT_STEP),
     .must = LIST(H_EXPERT_FFN)},
    {"hunyuan-moe", .qk_norm = QK_NORM_ROTATED, .experts = &renormalised,
     .may = LIST(EXPERTS, H_SHARED_EXPERTS, H_SHARED_FFN), .must = LIST(H_EXPERT_FFN)},
    {"dots1", .qk_norm = QK_NORM_HEADS, .experts = &sigmoid,
     .may = LIST(EXPERTS, EXPERT_GROUPS, H_SHARED_EXPERTS, H_DENSE_LAYERS), .must = LIST(H_EXPERT_FFN)},
    // Llama 4 Scout and Maverick, whose 128 experts go without norms
    {"llama4", .rope_interleaved = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .qk_norm = QK_NORM_UNIT,
     .no_norm_experts = 128, .chunk = 8192, .window_pattern = 4, .no_rope_every = 4, .still_temp = 0.1f,
     .still_step = 8192, .experts = &weighed,
     .may = LIST(EXPERTS, H_EXPERT_STEP, H_ATTN_TEMP, H_ATTN_TEMP_STEP), .must = LIST(H_EXPERT_FFN)},
    // gpt-oss 20B and 120B
    {"gpt-oss", .act = ACT_CLAMPED, .qkv_bias = ALWAYS, .out_bias = ALWAYS, .fine_ramp = true,
     .traits = TRAIT_FFN_NORM_NAME | TRAIT_SINKS, .window_pattern = 2, .experts = &chosen_biased,
     .may = LIST(EXPERTS), .must = LIST(H_EXPERT_FFN, H_WINDOW)},
    // BERT and XLM-RoBERTa: BGE, E5, GTE, all-MiniLM
    {"bert", NORM_LAYERS, FFN_BIASES, .encoder = true, .traits = BERT | TRAIT_NO_GATE | TRAIT_POSITIONS,
     .act = ACT_GELU_ERF, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .no_rope_every = 1,
     .must = LIST(H_LAYER_NORM_EPS)},
    // Nomic Embed 1 and 1.5
    {"nomic-bert", NORM_LAYERS, FFN_BIASES, .encoder = true, .traits = BERT, .qkv_bias = OPTIONAL,
     .out_bias = OPTIONAL, .may = LIST(H_ACT), .must = LIST(H_LAYER_NORM_EPS)},
    // Nomic Embed 2
    {"nomic-bert-moe", NORM_LAYERS, FFN_BIASES, .encoder = true, .traits = BERT | TRAIT_NO_GATE,
     .act = ACT_GELU_ERF, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .experts = &nomic,
     .may = LIST(EXPERTS, H_EXPERT_EVERY), .must = LIST(H_LAYER_NORM_EPS)},
    // Jina Embeddings 3, without its adapters
    {"jina-bert-v3", NORM_LAYERS, FFN_BIASES, .encoder = true, .traits = BERT | TRAIT_NO_GATE,
     .act = ACT_GELU_ERF, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL, .must = LIST(H_LAYER_NORM_EPS)},
    // ModernBERT, GTE ModernBERT, Granite Embedding R2
    {"modern-bert", .norm = NORM_LAYER, .encoder = true, .ranks_mean = true, .act = ACT_GELU_ERF,
     .traits = TRAIT_EMBED_NORM | TRAIT_FUSED_FFN | TRAIT_BARE_FIRST, .window_pattern = 3, .full_first = true,
     .window_rope = true, .window_theta = 10000, .may = LIST(H_ROPE_WINDOW_BASE, H_ACT),
     .must = LIST(H_LAYER_NORM_EPS)},
    {"eurobert", .encoder = true, .qkv_bias = OPTIONAL, .out_bias = OPTIONAL},
    // EmbeddingGemma
    {"gemma-embedding", .encoder = true, .act = ACT_GELU, .embed_sqrt = true, .qk_norm = QK_NORM_HEADS,
     .traits = TRAIT_POST_NORMS, .window_pattern = 6, .window_rope = true, .window_theta = 10000,
     .may = LIST(H_ROPE_WINDOW_BASE), .must = LIST(H_WINDOW)},
};

enum { NUM_ARCHS = sizeof archs / sizeof *archs };

const struct arch *arch_at(int i) { return i < NUM_ARCHS ? &archs[i] : NULL; }

const char *arch_lacks(const char *name, size_t len) {
    static const struct {
        const char *name, *what;
    } lacks[] = {
        {"bailing_hybrid", ": its linear attention is not computed"},
        {"bailingmoe3", ": its linear attention is not computed"},
        {"chatglm", ": its own names are not read; transformers' model_type glm is"},
        {"grovemoe", ": experts that groups of experts share are not computed"},
        {"laguna", ": softplus gates of whole heads are not computed"},
        {"mimo2", ": keys and values of different sizes are not computed"},
        {"mimo_v2_flash", ": keys and values of different sizes are not computed"},
        {"step3p5", ": layers with different numbers of heads are not computed"},
        {"step35", ": layers with different numbers of heads are not computed"},
        {"step3p7", ": layers with different numbers of heads are not computed"},
        {"new", ": the NTK scaling of GTE's own code is not computed"},
        {"xlm-roberta-flash", ": its adapters for tasks are not applied"},
        {"mamba", ": Mamba 1's scan is not computed"},
        {"falcon_mamba", ": Mamba 1's scan is not computed"},
        {"jamba", ": Mamba 1's scan is not computed"},
        {"kimi-linear", ": Kimi delta attention is not computed"},
        {"kimi_linear", ": Kimi delta attention is not computed"},
    };
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
        if (strlen(lacks[i].name) == len && memcmp(lacks[i].name, name, len) == 0)
            return lacks[i].what;
    return "";
}

const struct arch *arch_find(const char *name, size_t len) {
    for (int i = 0; i < NUM_ARCHS; i++)
        if (strlen(archs[i].name) == len && memcmp(archs[i].name, name, len) == 0)
            return &archs[i];
    return NULL;
}
