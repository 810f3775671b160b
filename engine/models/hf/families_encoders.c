// Families of encoders. See families.h. Names are those of transformers 4.57 and of the files on huggingface.co.
#include "families_shared.h"

// ---- tensors

static const struct hf_name bert_names[] = {
    {"attention.self.query", .ours = "attn_q"},
    {"attention.self.key", .ours = "attn_k"},
    {"attention.self.value", .ours = "attn_v"},
    {"attention.output.dense", .ours = "attn_output"},
    {"attention.output.LayerNorm", .ours = "attn_output_norm"},
    {"intermediate.dense", .ours = "ffn_up"},
    {"output.dense", .ours = "ffn_down"},
    {"output.LayerNorm", .ours = "layer_output_norm"},
    END,
};
static const struct hf_name bert_whole[] = {
    {"model.embeddings.word_embeddings", .ours = "token_embd"},
    {"model.embeddings.position_embeddings", .ours = "position_embd", .rows = ROWS_POSITIONS},
    {"model.embeddings.token_type_embeddings", .ours = "token_types"},
    {"model.embeddings.LayerNorm", .ours = "token_embd_norm"},
    {"model.embeddings.position_ids", .ours = ""},
    {"model.pooler.dense", .ours = "cls"},
    {"classifier", .ours = "cls.output"},
    {"classifier.dense", .ours = "cls"}, // RoBERTa's
    {"classifier.out_proj", .ours = "cls.output"},
    // of the task that they were trained for first
    {"cls.predictions", .ours = ""},
    {"cls.predictions.transform.dense", .ours = ""},
    {"cls.predictions.transform.LayerNorm", .ours = ""},
    {"cls.predictions.decoder", .ours = ""},
    {"cls.seq_relationship", .ours = ""},
    {"lm_head", .ours = ""},
    {"lm_head.dense", .ours = ""},
    {"lm_head.layer_norm", .ours = ""},
    {"lm_head.decoder", .ours = ""},
    END,
};
static const struct hf_name modern_names[] = {
    {"attn_norm", .ours = "attn_norm"},
    {"attn.Wqkv", .ours = "attn_qkv"},
    {"attn.Wo", .ours = "attn_output"},
    {"mlp_norm", .ours = "ffn_norm"},
    {"mlp.Wi", .ours = "ffn_up"},
    {"mlp.Wo", .ours = "ffn_down"},
    END,
};
static const struct hf_name modern_whole[] = {
    {"model.embeddings.tok_embeddings", .ours = "token_embd"},
    {"model.embeddings.norm", .ours = "token_embd_norm"},
    {"model.final_norm", .ours = "output_norm"},
    {"head.dense", .ours = "cls"},
    {"head.norm", .ours = "cls.norm"},
    {"classifier", .ours = "cls.output"},
    {"decoder", .ours = ""},
    END,
};

static const struct hf_name nomic_names[] = {
    {"attn.Wqkv", .ours = "attn_qkv"},      {"attn.out_proj", .ours = "attn_output"},
    {"norm1", .ours = "attn_output_norm"},  {"mlp.fc11", .ours = "ffn_up"},
    {"mlp.fc12", .ours = "ffn_gate"},       {"mlp.fc2", .ours = "ffn_down"},
    {"norm2", .ours = "layer_output_norm"}, END,
};
static const struct hf_name gte_names[] = {
    {"attention.qkv_proj", .ours = "attn_qkv"},
    {"attention.o_proj", .ours = "attn_output"},
    {"attn_ln", .ours = "attn_output_norm"},
    {"mlp.up_gate_proj", .ours = "ffn_up", .rows = ROWS_FIRST_HALF},
    {"mlp.up_gate_proj", .ours = "ffn_gate", .rows = ROWS_SECOND_HALF},
    {"mlp.down_proj", .ours = "ffn_down"},
    {"mlp_ln", .ours = "layer_output_norm"},
    END,
};
static const struct hf_name nomic_moe_names[] = {
    {"attn.Wqkv", .ours = "attn_qkv"},
    {"attn.out_proj", .ours = "attn_output"},
    {"norm1", .ours = "attn_output_norm"},
    {"mlp.fc1", .ours = "ffn_up"},
    {"mlp.fc2", .ours = "ffn_down"},
    {"mlp.router.layer", .ours = "ffn_gate_inp"},
    {"mlp.experts.mlp.w1", .ours = "ffn_up_exps", .form = FORM_EXPERTS},
    {"mlp.experts.mlp.w2", .ours = "ffn_down_exps", .form = FORM_EXPERTS, .turned = true},
    {"mlp.experts.bias", .ours = "ffn_exps_sum", .end = ".bias"},
    {"norm2", .ours = "layer_output_norm"},
    END,
};
static const struct hf_name jina3_names[] = {
    {"mixer.Wqkv", .ours = "attn_qkv"},
    {"mixer.out_proj", .ours = "attn_output"},
    {"norm1", .ours = "attn_output_norm"},
    {"mlp.fc1", .ours = "ffn_up"},
    {"mlp.fc2", .ours = "ffn_down"},
    {"norm2", .ours = "layer_output_norm"},
    END,
};
static const struct hf_name nomic_whole[] = {
    {"model.embeddings.word_embeddings", .ours = "token_embd"},
    {"model.embeddings.token_type_embeddings", .ours = "token_types"},
    {"model.emb_ln", .ours = "token_embd_norm"},
    {"model.pooler.dense", .ours = ""}, // Jina's, which is not used
    END,
};

// ---- keys

#define LAYER_NORM "attention.layer_norm_epsilon", HF_FLOAT
static const struct hf_key bert_keys[] = {
    {"layer_norm_eps", LAYER_NORM},
    {"position_embedding_type", "absolute", HF_ONLY},
    {"hidden_dropout_prob", NULL, HF_INT},
    {"is_decoder", "false", HF_ONLY},
    {"add_cross_attention", "false", HF_ONLY},
    {NULL, NULL, HF_INT},
};
#define NOMIC_UNREAD                                                                                         \
    {"rotary_emb_base", NULL, HF_INT}, {"qkv_proj_bias", NULL, HF_INT}, {"mlp_fc1_bias", NULL, HF_INT},      \
        {"mlp_fc2_bias", NULL, HF_INT}, {"fused_bias_fc", NULL, HF_INT}, {                                   \
        "use_flash_attn", NULL, HF_INT                                                                       \
    }
static const struct hf_key nomic_keys[] = {
    {"layer_norm_epsilon", LAYER_NORM},
    {"activation_function", "swiglu", HF_ONLY},
    {"scale_attn_weights", "true", HF_ONLY},
    {"rotary_scaling_factor", NULL, HF_INT}, // behind max_trained_positions
    NOMIC_UNREAD,
    {NULL, NULL, HF_INT},
};
static const struct hf_key nomic_moe_keys[] = {
    {"layer_norm_epsilon", LAYER_NORM},
    {"activation_function", "gelu", HF_ONLY},
    {"scale_attn_weights", "true", HF_ONLY},
    {"num_experts", "expert_count", HF_INT},
    {"moe_top_k", "expert_used_count", HF_INT},
    {"moe_every_n_layers", "moe_every_n_layers", HF_INT},
    {"moe_normalize_expert_weights", "false", HF_ONLY},
    {"num_shared_experts", "0", HF_ONLY},
    {"expert_choice_router", "false", HF_ONLY},
    {"ffn_div", "1", HF_ONLY},
    {"moe_impl", NULL, HF_INT},
    {"moe_resid_pdrop", NULL, HF_FLOAT},
    {"router_aux_loss_coef", NULL, HF_FLOAT},
    {"rotary_scaling_factor", "null", HF_ONLY},
    NOMIC_UNREAD,
    {NULL, NULL, HF_INT},
};
static const struct hf_key gte_keys[] = {
    {"layer_norm_eps", LAYER_NORM},
    {"hidden_dropout_prob", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_key eurobert_keys[] = {
    {"mlp_bias", "false", HF_ONLY},
    {"classifier_pooling", NULL, HF_INT},
    {NULL, NULL, HF_INT},
};
static const struct hf_alias nomic_aliases[] = {
    {"layer_norm_epsilon", "layer_norm_eps"}, // transformers 5
    {"num_hidden_layers", "n_layer"},
    {"hidden_size", "n_embd"},
    {"num_attention_heads", "n_head"},
    {"intermediate_size", "n_inner"},
    {"max_position_embeddings", "max_trained_positions"},
    {"max_position_embeddings", "n_positions"},
    {NULL, NULL},
};
static const struct hf_key modern_keys[] = {
    {"norm_eps", LAYER_NORM},
    {"layer_norm_eps", NULL, HF_INT}, // the same again
    {"decoder_bias", NULL, HF_INT},   // of another task's head
    {"norm_bias", "false", HF_ONLY},
    {"sliding_window_pattern", NULL, HF_INT},
    {"rope_local_base_freq", NULL, HF_FLOAT},
    {"global_rope_theta", NULL, HF_INT},
    {"classifier_pooling", NULL, HF_INT},
    {"classifier_activation", "gelu", HF_ONLY},
    {"classifier_bias", "false", HF_ONLY},
    {NULL, NULL, HF_INT},
};

static const struct hf_alias modern_aliases[] = {
    {"rope_local_base_freq", "local_rope_theta"},
    {"sliding_window", "local_attention"},
    {"sliding_window_pattern", "global_attn_every_n_layers"},
    {NULL, NULL},
};

#define BERT                                                                                                 \
    .act = "gelu", .layers = "encoder.layer.", .names = bert_names, .whole = bert_whole, .keys = bert_keys
static const struct hf_family nomic_moe = {"nomic_bert",
                                           "nomic-bert-moe",
                                           .act = "gelu",
                                           .prefix = "bert.",
                                           .layers = "encoder.layers.",
                                           .names = nomic_moe_names,
                                           .whole = nomic_whole,
                                           .keys = nomic_moe_keys,
                                           .aliases = nomic_aliases,
                                           .defaults =
                                               "{\"layer_norm_epsilon\": 1e-5, \"rope_theta\": 1000}"};
const struct hf_family hf_encoder_families[] = {
    {"bert", "bert", .prefix = "bert.", BERT, .defaults = "{\"layer_norm_eps\": 1e-12}"},
    {"roberta", "bert", .prefix = "roberta.", .positions_behind_pad = true, BERT,
     .defaults = "{\"layer_norm_eps\": 1e-12, \"pad_token_id\": 1}"},
    {"xlm-roberta", "bert", .prefix = "roberta.", .positions_behind_pad = true, BERT,
     .defaults = "{\"layer_norm_eps\": 1e-12, \"pad_token_id\": 1}"},
    {"nomic_bert", "nomic-bert", .prefix = "bert.", .layers = "encoder.layers.", .names = nomic_names,
     .whole = nomic_whole, .keys = nomic_keys, .aliases = nomic_aliases,
     .defaults = "{\"layer_norm_epsilon\": 1e-5, \"rope_theta\": 1000}", .of_experts = &nomic_moe},
    {"jina_embeddings_v3", "jina-bert-v3", .act = "gelu", .prefix = "roberta.", .layers = "encoder.layers.",
     .names = jina3_names, .whole = nomic_whole, .keys = gte_keys,
     .defaults = "{\"layer_norm_eps\": 1e-5, \"rope_theta\": 20000}"},
    {"gte", "nomic-bert", .act = "gelu", .layers = "encoder.layer.", .names = gte_names, .whole = bert_whole,
     .keys = gte_keys, .defaults = "{\"layer_norm_eps\": 1e-12, \"rope_theta\": 160000}"},
    {"eurobert", "eurobert", .keys = eurobert_keys},
    {"modernbert", "modern-bert", .act = "gelu", .names = modern_names, .whole = modern_whole,
     .keys = modern_keys, .aliases = modern_aliases,
     .defaults =
         "{\"norm_eps\": 1e-5, \"sliding_window_pattern\": 3, \"sliding_window\": 128,"
         "\"global_rope_theta\": 160000, \"rope_local_base_freq\": 10000, \"classifier_pooling\": \"cls\"}"},
    {.model_type = NULL},
};
