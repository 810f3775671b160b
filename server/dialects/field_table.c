// One row per name and place. Sources: OpenAI's OpenAPI description; vLLM's protocol.py of chat_completion and
// completion; llama.cpp's tools/server; SGLang's protocol.py, io_struct.py and sampling_params.py; TGI's
// router/src/lib.rs; Ollama's api/types.go; and names that clients of text-generation-webui and Mistral send.
// docs/api.md says the same in words; tests/http/test_fields.py compares them and sends each name.
#include "field_table.h"

#include <stdio.h>
#include <string.h>

// Values that ask for nothing.
#define EMPTY "\"\", [], {}"
#define OFF EMPTY ", false, 0"

// Why a name may be ignored.
#define LABEL "a label"
#define CACHE "caching, speed"
#define ROUTE "routing"
#define CHUNK "chunks, pings"
#define LOAD "loading"
#define MEDIA "no media"
#define TOOLS "no tools"
#define SHIFT "no shifting"
#define SWITCH "needs another"

#define C OPENAI_COMPLETIONS
#define CHAT (OPENAI_CHAT | TEMPLATE_BODY)
#define BOTH (C | CHAT)
#define STREAM OPENAI_STREAM_OPTIONS
#define MESSAGE OPENAI_MESSAGE
#define PART OPENAI_PART
#define TOKENIZE TOKENIZE_BODY
#define DETOKENIZE DETOKENIZE_BODY
#define RENDER TEMPLATE_BODY
#define EMBED OPENAI_EMBEDDINGS
#define COMPLETE (OPENAI_COMPLETIONS | OPENAI_CHAT)

#define READ(name, where)                                                                                    \
    { name, where, FIELD_READ, NULL, NULL }
#define ALIAS(name, where, meant, unlimited)                                                                 \
    { name, where, FIELD_ALIAS, meant, unlimited }
#define REFUSED(name, where, values)                                                                         \
    { name, where, FIELD_REFUSED, NULL, values }
#define HARMLESS(name, where, why)                                                                           \
    { name, where, FIELD_HARMLESS, why, NULL }
#define TEMPLATE(name, where, values)                                                                        \
    { name, where, FIELD_TEMPLATE, NULL, values }

// clang-format off
const struct field_rule field_rules[] = {
    // Members of messages and of the parts of a content.
    READ("role", MESSAGE),
    READ("content", MESSAGE),
    READ("tool_call_id", MESSAGE),
    TEMPLATE("name", MESSAGE, NULL),
    TEMPLATE("reasoning_content", MESSAGE, NULL),
    TEMPLATE("reasoning", MESSAGE, NULL),
    TEMPLATE("thinking", MESSAGE, NULL),
    TEMPLATE("tool_name", MESSAGE, NULL),
    TEMPLATE("tool_calls", MESSAGE, EMPTY),
    TEMPLATE("function_call", MESSAGE, EMPTY),
    TEMPLATE("refusal", MESSAGE, EMPTY),
    REFUSED("tools", MESSAGE, EMPTY),
    REFUSED("audio", MESSAGE, EMPTY),
    REFUSED("images", MESSAGE, EMPTY),
    REFUSED("prefix", MESSAGE, OFF),
    REFUSED("partial", MESSAGE, OFF),
    HARMLESS("annotations", MESSAGE, LABEL),
    HARMLESS("weight", MESSAGE, LABEL),
    READ("type", PART),
    READ("text", PART),
    READ("refusal", PART),
    HARMLESS("cache_control", MESSAGE | PART, CACHE),
    HARMLESS("prompt_cache_breakpoint", MESSAGE | PART, CACHE),
    READ("include_usage", STREAM),
    READ("continuous_usage_stats", STREAM),
    READ("include_obfuscation", STREAM),

    // The tokenizer's paths.
    READ("model", TOKENIZE | DETOKENIZE),
    READ("prompt", TOKENIZE),
    READ("content", TOKENIZE),
    READ("messages", TOKENIZE),
    READ("add_special_tokens", TOKENIZE),
    READ("add_special", TOKENIZE),
    READ("parse_special", TOKENIZE),
    READ("return_token_strs", TOKENIZE),
    READ("with_pieces", TOKENIZE),
    READ("add_generation_prompt", TOKENIZE),
    READ("continue_final_message", TOKENIZE),
    REFUSED("functions", TOKENIZE, EMPTY),
    REFUSED("documents", TOKENIZE, EMPTY),
    REFUSED("chat_template", TOKENIZE, EMPTY),
    REFUSED("chat_template_kwargs", TOKENIZE, EMPTY),
    HARMLESS("mm_processor_kwargs", TOKENIZE, MEDIA),
    READ("tokens", DETOKENIZE),

    // Embeddings.
    READ("model", EMBED),
    READ("input", EMBED),
    READ("encoding_format", EMBED),
    READ("dimensions", EMBED),
    READ("truncate_prompt_tokens", EMBED),
    READ("add_special_tokens", EMBED),
    READ("normalize", EMBED),
    READ("priority", EMBED),
    READ("cache_salt", EMBED),
    READ("request_id", EMBED),
    READ("user", EMBED),

    // Read.
    READ("model", BOTH),
    READ("prompt", C),
    READ("messages", CHAT),
    READ("max_tokens", BOTH),
    READ("max_completion_tokens", CHAT),
    READ("min_tokens", BOTH),
    READ("n", BOTH),
    READ("best_of", BOTH),
    READ("temperature", BOTH),
    READ("top_p", BOTH),
    READ("min_p", BOTH),
    READ("top_k", BOTH),
    READ("presence_penalty", BOTH),
    READ("frequency_penalty", BOTH),
    READ("repetition_penalty", BOTH),
    READ("typical_p", BOTH),
    READ("top_n_sigma", BOTH),
    READ("xtc_probability", BOTH),
    READ("xtc_threshold", BOTH),
    READ("mirostat", BOTH),
    READ("mirostat_tau", BOTH),
    READ("mirostat_eta", BOTH),
    READ("dynatemp_range", BOTH),
    READ("dynatemp_exponent", BOTH),
    READ("dry_multiplier", BOTH),
    READ("dry_base", BOTH),
    READ("dry_allowed_length", BOTH),
    READ("dry_penalty_last_n", BOTH),
    READ("dry_sequence_breakers", BOTH),
    READ("no_repeat_ngram_size", BOTH),
    READ("allowed_token_ids", BOTH),
    READ("bad_words", BOTH),
    READ("logit_bias", BOTH),
    READ("seed", BOTH),
    READ("stop", BOTH),
    READ("stop_token_ids", BOTH),
    READ("ignore_eos", BOTH),
    READ("include_stop_str_in_output", BOTH),
    READ("skip_special_tokens", BOTH),
    READ("spaces_between_special_tokens", BOTH),
    READ("truncate_prompt_tokens", BOTH),
    READ("truncation_side", BOTH),
    READ("return_token_ids", BOTH),
    READ("return_tokens_as_token_ids", BOTH),
    READ("add_special_tokens", C),
    READ("add_generation_prompt", CHAT),
    READ("continue_final_message", CHAT),
    READ("logprobs", BOTH),
    READ("top_logprobs", CHAT),
    READ("prompt_logprobs", BOTH),
    READ("logprob_token_ids", BOTH),
    READ("echo", C),
    READ("stream", BOTH),
    READ("stream_options", BOTH),
    READ("priority", BOTH),
    READ("cache_salt", BOTH),
    READ("request_id", BOTH),
    READ("user", BOTH),
    READ("timings_per_token", BOTH),

    // Other names of these.
    ALIAS("n_predict", BOTH, "max_tokens", "-1"),
    ALIAS("num_predict", BOTH, "max_tokens", "-1, -2"),
    ALIAS("max_new_tokens", BOTH, "max_tokens", NULL),
    ALIAS("max_output_tokens", BOTH, "max_tokens", NULL),
    ALIAS("max_completion_tokens", C, "max_tokens", NULL),
    ALIAS("min_new_tokens", BOTH, "min_tokens", NULL),
    ALIAS("n_cmpl", BOTH, "n", NULL),
    ALIAS("repeat_penalty", BOTH, "repetition_penalty", NULL),
    ALIAS("typical", BOTH, "typical_p", NULL),
    ALIAS("stop_sequences", BOTH, "stop", NULL),
    ALIAS("sampling_seed", BOTH, "seed", NULL),
    ALIAS("random_seed", BOTH, "seed", NULL),
    ALIAS("rid", BOTH, "request_id", NULL),
    ALIAS("extra_key", BOTH, "cache_salt", NULL),

    // Constraints.
    REFUSED("response_format", BOTH, EMPTY ", {\"type\": \"text\"}"),
    REFUSED("structured_outputs", BOTH, EMPTY),
    REFUSED("guided_json", BOTH, EMPTY),
    REFUSED("guided_json_object", BOTH, OFF),
    REFUSED("guided_regex", BOTH, EMPTY),
    REFUSED("guided_choice", BOTH, EMPTY),
    REFUSED("guided_grammar", BOTH, EMPTY),
    HARMLESS("guided_decoding_backend", BOTH, SWITCH),
    HARMLESS("guided_whitespace_pattern", BOTH, SWITCH),
    REFUSED("structural_tag", BOTH, EMPTY),
    REFUSED("json_schema", BOTH, EMPTY),
    REFUSED("regex", BOTH, EMPTY),
    REFUSED("ebnf", BOTH, EMPTY),
    REFUSED("grammar", BOTH, EMPTY),
    HARMLESS("grammar_lazy", BOTH, SWITCH),
    HARMLESS("grammar_type", BOTH, SWITCH),
    HARMLESS("grammar_triggers", BOTH, SWITCH),
    HARMLESS("preserved_tokens", BOTH, SWITCH),
    REFUSED("format", BOTH, EMPTY),
    REFUSED("n_indent", BOTH, OFF),
    REFUSED("stop_regex", BOTH, EMPTY),
    REFUSED("repetition_detection", BOTH, EMPTY),
    REFUSED("bad_words_ids", BOTH, EMPTY),
    REFUSED("banned_tokens", BOTH, EMPTY),
    REFUSED("banned_strings", BOTH, EMPTY),
    REFUSED("custom_token_bans", BOTH, EMPTY),
    REFUSED("ban_eos_token", BOTH, OFF),
    REFUSED("logits_processors", BOTH, EMPTY),
    REFUSED("custom_logit_processor", BOTH, EMPTY),
    REFUSED("safe_prompt", BOTH, OFF),

    // Limits.
    REFUSED("max_length", BOTH, OFF),
    REFUSED("num_ctx", BOTH, OFF),
    REFUSED("timeout", BOTH, OFF),
    REFUSED("max_time", BOTH, OFF),
    REFUSED("t_max_predict_ms", BOTH, OFF ", -1"),
    REFUSED("truncate", BOTH, OFF ", true"),
    REFUSED("truncation", BOTH, EMPTY ", \"disabled\""),
    HARMLESS("n_keep", BOTH, SHIFT),
    HARMLESS("num_keep", BOTH, SHIFT),
    HARMLESS("n_discard", BOTH, SHIFT),
    HARMLESS("shift", BOTH, SHIFT),

    // Adapters.
    REFUSED("lora", BOTH, EMPTY),
    REFUSED("lora_path", BOTH, EMPTY),
    REFUSED("lora_id", BOTH, EMPTY),
    REFUSED("adapter_id", BOTH, EMPTY),

    // Samplers.
    REFUSED("use_beam_search", BOTH, OFF),
    REFUSED("beam_width", BOTH, OFF ", 1"),
    REFUSED("num_beams", BOTH, OFF ", 1"),
    HARMLESS("length_penalty", BOTH, SWITCH),
    HARMLESS("early_stopping", BOTH, SWITCH),
    REFUSED("do_sample", BOTH, EMPTY ", true"),
    REFUSED("top_a", BOTH, OFF),
    REFUSED("tfs", BOTH, EMPTY ", 1"),
    REFUSED("tfs_z", BOTH, EMPTY ", 1"),
    REFUSED("epsilon_cutoff", BOTH, OFF),
    REFUSED("eta_cutoff", BOTH, OFF),
    REFUSED("smoothing_factor", BOTH, OFF),
    HARMLESS("smoothing_curve", BOTH, SWITCH),
    REFUSED("penalty_alpha", BOTH, OFF),
    REFUSED("guidance_scale", BOTH, EMPTY ", 1"),
    HARMLESS("negative_prompt", BOTH, SWITCH),
    REFUSED("encoder_repetition_penalty", BOTH, EMPTY ", 1"),
    REFUSED("repeat_last_n", BOTH, EMPTY ", -1"),
    REFUSED("repetition_penalty_range", BOTH, OFF ", -1"),
    REFUSED("penalize_nl", BOTH, OFF),
    REFUSED("min_keep", BOTH, OFF),
    REFUSED("samplers", BOTH, "\"\", {}"),
    REFUSED("sampler_priority", BOTH, EMPTY),
    REFUSED("temperature_last", BOTH, OFF),
    REFUSED("dynamic_temperature", BOTH, OFF),
    REFUSED("mirostat_mode", BOTH, OFF),
    REFUSED("adaptive_target", BOTH, EMPTY ", -1"),
    HARMLESS("adaptive_decay", BOTH, SWITCH),
    REFUSED("watermark", BOTH, OFF),
    REFUSED("options", BOTH, EMPTY),
    REFUSED("sampling_params", BOTH, EMPTY),
    REFUSED("parameters", BOTH, EMPTY),
    REFUSED("custom_params", BOTH, EMPTY),
    REFUSED("vllm_xargs", BOTH, EMPTY),

    // Inputs.
    REFUSED("prompt", CHAT, EMPTY),
    REFUSED("messages", C, EMPTY),
    REFUSED("suffix", BOTH, "\"\""),
    REFUSED("input", BOTH, EMPTY),
    REFUSED("text", BOTH, EMPTY),
    REFUSED("inputs", BOTH, EMPTY),
    REFUSED("input_ids", BOTH, EMPTY),
    REFUSED("input_embeds", BOTH, EMPTY),
    REFUSED("prompt_embeds", BOTH, EMPTY),
    REFUSED("positional_embed_overrides", BOTH, EMPTY),
    REFUSED("input_prefix", BOTH, EMPTY),
    REFUSED("input_suffix", BOTH, EMPTY),
    REFUSED("input_extra", BOTH, EMPTY),
    REFUSED("system", BOTH, EMPTY),
    REFUSED("system_prompt", BOTH, EMPTY),
    REFUSED("instructions", BOTH, EMPTY),
    REFUSED("context", BOTH, EMPTY),
    REFUSED("documents", BOTH, EMPTY),
    REFUSED("previous_response_id", BOTH, EMPTY),
    REFUSED("conversation", BOTH, EMPTY),
    REFUSED("session_params", BOTH, EMPTY),
    REFUSED("image_data", BOTH, EMPTY),
    REFUSED("video_data", BOTH, EMPTY),
    REFUSED("audio_data", BOTH, EMPTY),
    REFUSED("images", BOTH, EMPTY),
    REFUSED("audio", BOTH, EMPTY),
    REFUSED("modalities", BOTH, EMPTY ", [\"text\"]"),
    REFUSED("use_audio_in_video", BOTH, OFF),
    HARMLESS("mm_hashes", BOTH, MEDIA),
    HARMLESS("mm_content_hashes", BOTH, MEDIA),
    HARMLESS("mm_processor_kwargs", BOTH, MEDIA),
    HARMLESS("media_io_kwargs", BOTH, MEDIA),
    HARMLESS("max_dynamic_patch", BOTH, MEDIA),
    HARMLESS("min_dynamic_patch", BOTH, MEDIA),
    HARMLESS("image_max_dynamic_patch", BOTH, MEDIA),
    HARMLESS("video_max_dynamic_patch", BOTH, MEDIA),
    HARMLESS("images_config", BOTH, MEDIA),
    HARMLESS("video_config", BOTH, MEDIA),
    REFUSED("kv_transfer_params", BOTH, EMPTY),
    REFUSED("ec_transfer_params", BOTH, EMPTY),
    REFUSED("bootstrap_host", BOTH, EMPTY),
    REFUSED("bootstrap_port", BOTH, EMPTY),
    REFUSED("bootstrap_room", BOTH, EMPTY),

    // The template.
    REFUSED("template", BOTH, EMPTY),
    REFUSED("chat_template", BOTH, EMPTY),
    REFUSED("chat_template_kwargs", BOTH, EMPTY),
    REFUSED("continue_final_message", C, OFF),
    REFUSED("generation_prompt", BOTH, EMPTY),
    REFUSED("add_generation_prompt", C, OFF ", true"),
    REFUSED("add_special_tokens", CHAT, OFF),
    REFUSED("raw", BOTH, OFF),
    REFUSED("echo", CHAT, OFF),
    REFUSED("return_full_text", BOTH, OFF),

    // Reasoning and tools.
    REFUSED("reasoning", BOTH, EMPTY),
    REFUSED("reasoning_effort", BOTH, EMPTY),
    REFUSED("think", BOTH, EMPTY),
    REFUSED("thinking", BOTH, EMPTY),
    REFUSED("enable_thinking", BOTH, EMPTY),
    REFUSED("include_reasoning", BOTH, EMPTY ", true"),
    REFUSED("separate_reasoning", BOTH, OFF),
    HARMLESS("stream_reasoning", BOTH, SWITCH),
    REFUSED("require_reasoning", BOTH, OFF),
    REFUSED("reasoning_format", BOTH, EMPTY ", \"none\""),
    REFUSED("reasoning_control", BOTH, OFF),
    REFUSED("reasoning_budget_tokens", BOTH, EMPTY ", -1"),
    REFUSED("thinking_budget_tokens", BOTH, EMPTY ", -1"),
    REFUSED("thinking_token_budget", BOTH, EMPTY ", -1"),
    REFUSED("max_thinking_tokens", BOTH, EMPTY ", -1"),
    HARMLESS("reasoning_budget_start_tag", BOTH, SWITCH),
    HARMLESS("reasoning_budget_end_tag", BOTH, SWITCH),
    HARMLESS("reasoning_budget_end_tags", BOTH, SWITCH),
    HARMLESS("reasoning_budget_message", BOTH, SWITCH),
    REFUSED("tools", COMPLETE, EMPTY),
    TEMPLATE("tools", RENDER | TOKENIZE, NULL),
    REFUSED("tool_choice", BOTH, EMPTY ", \"none\", \"auto\""),
    REFUSED("functions", BOTH, EMPTY),
    REFUSED("function_call", BOTH, EMPTY ", \"none\", \"auto\""),
    HARMLESS("parallel_tool_calls", BOTH, TOOLS),
    HARMLESS("max_tool_calls", BOTH, TOOLS),
    HARMLESS("tool_prompt", BOTH, TOOLS),
    HARMLESS("parse_tool_calls", BOTH, TOOLS),
    HARMLESS("chat_format", BOTH, TOOLS),
    HARMLESS("chat_parser", BOTH, TOOLS),
    REFUSED("web_search_options", BOTH, EMPTY),

    // Outputs.
    REFUSED("token_ids_logprob", BOTH, EMPTY),
    REFUSED("top_logprobs", C, OFF),
    REFUSED("top_logprobs_num", BOTH, OFF),
    REFUSED("return_logprob", BOTH, OFF),
    HARMLESS("logprob_start_len", BOTH, SWITCH),
    HARMLESS("return_text_in_logprobs", BOTH, SWITCH),
    REFUSED("return_flat_raw_top_logprobs", BOTH, OFF),
    REFUSED("n_probs", BOTH, OFF),
    HARMLESS("post_sampling_probs", BOTH, SWITCH),
    REFUSED("top_n_tokens", BOTH, OFF),
    REFUSED("details", BOTH, OFF),
    REFUSED("decoder_input_details", BOTH, OFF),
    REFUSED("return_tokens", BOTH, OFF),
    REFUSED("return_prompt_token_ids", BOTH, OFF),
    REFUSED("return_token_offsets", BOTH, OFF),
    REFUSED("return_prompt_text", BOTH, OFF),
    REFUSED("return_assistant_tokens_mask", BOTH, OFF),
    REFUSED("return_sampling_mask", BOTH, OFF),
    REFUSED("return_hidden_states", BOTH, OFF),
    REFUSED("return_routed_experts", BOTH, OFF),
    HARMLESS("routed_experts_start_len", BOTH, SWITCH),
    REFUSED("return_indexer_topk", BOTH, OFF),
    REFUSED("return_cached_tokens_details", BOTH, OFF),
    REFUSED("return_entropy", BOTH, OFF),
    REFUSED("return_bytes", BOTH, OFF),
    REFUSED("return_progress", BOTH, OFF),
    REFUSED("response_fields", BOTH, EMPTY),
    REFUSED("include", BOTH, EMPTY),
    REFUSED("verbose", BOTH, OFF),
    REFUSED("_debug_render_only", BOTH, OFF),
    REFUSED("no_stop_trim", BOTH, OFF),

    // What the service does besides.
    REFUSED("store", BOTH, OFF),
    REFUSED("background", BOTH, OFF),
    REFUSED("moderation", BOTH, EMPTY),
    REFUSED("service_tier", BOTH, EMPTY ", \"auto\", \"default\""),
    REFUSED("verbosity", BOTH, EMPTY ", \"medium\""),
    HARMLESS("prediction", BOTH, CACHE),
    HARMLESS("speculative.n_max", BOTH, CACHE),
    HARMLESS("speculative.n_min", BOTH, CACHE),
    HARMLESS("speculative.p_min", BOTH, CACHE),
    HARMLESS("speculative.type", BOTH, CACHE),
    HARMLESS("prompt_cache_key", BOTH, CACHE),
    HARMLESS("prompt_cache_options", BOTH, CACHE),
    HARMLESS("prompt_cache_retention", BOTH, CACHE),
    HARMLESS("cache_prompt", BOTH, CACHE),
    HARMLESS("n_cache_reuse", BOTH, CACHE),
    HARMLESS("backend_sampling", BOTH, CACHE),
    HARMLESS("message_delimiters", BOTH, CACHE),
    HARMLESS("metadata", BOTH, LABEL),
    HARMLESS("safety_identifier", BOTH, LABEL),
    HARMLESS("custom_labels", BOTH, LABEL),
    HARMLESS("session_id", BOTH, LABEL),
    HARMLESS("conversation_id", BOTH, LABEL),
    HARMLESS("external_trace_header", BOTH, LABEL),
    HARMLESS("received_time", BOTH, LABEL),
    HARMLESS("log_metrics", BOTH, LABEL),
    HARMLESS("no_logs", BOTH, LABEL),
    HARMLESS("id_slot", BOTH, ROUTE),
    HARMLESS("data_parallel_rank", BOTH, ROUTE),
    HARMLESS("routed_dp_rank", BOTH, ROUTE),
    HARMLESS("disagg_prefill_dp_rank", BOTH, ROUTE),
    HARMLESS("kv_router_hint", BOTH, ROUTE),
    HARMLESS("routing_key", BOTH, ROUTE),
    HARMLESS("stream_interval", BOTH, CHUNK),
    HARMLESS("sse_ping_interval", BOTH, CHUNK),
    HARMLESS("keep_alive", BOTH, LOAD),
    HARMLESS("num_batch", BOTH, LOAD),
    HARMLESS("num_gpu", BOTH, LOAD),
    HARMLESS("main_gpu", BOTH, LOAD),
    HARMLESS("use_mmap", BOTH, LOAD),
    HARMLESS("num_thread", BOTH, LOAD),
    HARMLESS("draft_num_predict", BOTH, LOAD),
};
// clang-format on
const size_t num_field_rules = sizeof field_rules / sizeof field_rules[0];

const struct field_rule *field_rule_find(const char *name, unsigned where) {
    for (size_t i = 0; i < num_field_rules; i++)
        if ((field_rules[i].where & where) && strcmp(field_rules[i].name, name) == 0)
            return &field_rules[i];
    return NULL;
}

bool field_rule_has(const struct field_rule *rule, const json_t *v) {
    char text[160];
    snprintf(text, sizeof text, "[%s]", rule->values ? rule->values : "");
    json_t *list = json_loads(text, 0, NULL);
    bool found = false;
    for (size_t i = 0; i < json_array_size(list) && !found; i++) {
        const json_t *one = json_array_get(list, i);
        found = json_is_number(one) && json_is_number(v) ? json_number_value(one) == json_number_value(v)
                                                         : json_equal(one, v);
    }
    json_decref(list);
    return found;
}
