"""Mutants: the server. tests/mutate.py says what a row is."""

SCHED = "scheduler/scheduler.c"
BATCH = "engine/batch.c"
NEAREST = "server/nearest.c"
FOREIGN_FLAGS = "server/foreign_flags.c"
METRICS = "server/metrics.c"
FIELD_RULES = "server/dialects/field_rules.c"
OPENAI_PARSE = "server/dialects/openai_parse.c"
LLAMA = "server/dialects/llama_completion.c"

ROWS = [
    # ---- fields of a request
    (OPENAI_PARSE, "if (other && other != given && !same_value(other, v)) {", "if (false) {",
            "test_server_openai"),  # two names, two values: one is dropped
    (OPENAI_PARSE, "field_rule_has(alias, given) ? json_integer(INT_MAX) : json_incref(given)", "json_incref(given)",
            "test_server_openai"),  # -1 is no limit but a bad one
    (FIELD_RULES, "if (v && !field_rule_has(rule, v))", "if (v)", "test_server_openai"),  # values that ask for nothing are refused
    (FIELD_RULES, "if (v && !field_rule_has(rule, v))", "if (false)", "test_server_openai"),  # nothing is refused
    (OPENAI_PARSE, "r->priority == 0 || m->has_priorities", "true", "test_server_openai"),  # a priority without an effect
    (OPENAI_PARSE, "    memcpy(r->ignored, ignored, sizeof ignored);\n", "    if (ok)\n        memcpy(r->ignored, ignored, sizeof ignored);\n",
            "test_server_openai"),  # errors do not tell what would be ignored
    (OPENAI_PARSE, "(e->param[n] && e->param[n] != '[')", "e->param[n]", "test_server_openai"),  # an item's error names what was not sent
    (FIELD_RULES, "bool fits = used + len + sizeof \", \" + sizeof \", ...\" <= IGNORED_SIZE;", "bool fits = used + len < IGNORED_SIZE;",
            "test_server_openai"),  # a list cut without a word
    (FIELD_RULES, "if ((at == list || at[-1] == ' ') && ", "if (", "test_server_openai"),  # the end of a name hides another
    (NEAREST, "d <= least(na / 3, 3)", "d <= 3", "test_server_config"),  # --temp: did you mean --help?
    (NEAREST, "row[j] = least(row[j], two_above[j - 2] + 1);", "row[j] = row[j];", "test_server_config"),  # --prot is far from --port
    (FOREIGN_FLAGS, "i > 1 && word[i] == '_' ? '-' : word[i]", "word[i]", "test_server_config"),  # vLLM's own spelling with _
    (FOREIGN_FLAGS, '{"-np|--parallel", LLAMA, "max-num-seqs", NULL}', '{"-np|--parallel", LLAMA, NULL, "--max-num-seqs N"}',
     "test_server_config"),  # what means the same is refused
    (METRICS, "seconds > durations[b]", "seconds >= durations[b]", "test_server_text"),  # le is not less than
    (METRICS, "s->waiting - deferred);", "s->waiting);", "test_server_text"),  # the reasons are more than all
    ("server/dialects/api_error.c", "tokens == (size_t)n_ctx", "false", "test_server_openai"),  # a full context that is told to fit
    (LLAMA, "out->len == 0 ? TOKENIZE_ADD_SPECIAL : 0u", "TOKENIZE_ADD_SPECIAL", "test_server_llama"),  # BOS within a prompt
    (LLAMA, "ids |= json_is_number(part);", "ids = true;", "test_server_llama"),  # two texts are one prompt
    (LLAMA, "p->num_tokens < r->request->max_tokens", "p->num_tokens <= r->request->max_tokens", "test_server_llama"),  # truncated by n_predict
    (LLAMA, "json_is_false(value) ? json_integer(-100)", "json_is_false(value) ? json_integer(0)", "test_server_llama"),  # a word is not forbidden
    (LLAMA, "json_loadb(object->data, object->len, JSON_ALLOW_NUL, NULL)", "json_loadb(object->data, object->len, 0, NULL)", "test_server_llama"),  # a text with a NUL
    (LLAMA, "        if (!is_end)\n", "", "test_server_llama"),  # a bias takes back that an end is forbidden
    (LLAMA, "else if (!r->ignore_eos || forbid_ends(r, m, e))", "else", "test_server_llama"),  # ends come with ignore_eos
    (LLAMA, "for (int last = any ? 0 : 1;", "for (int last = 0;", "test_server_llama"),  # an event without text before the end
    # ---- why a request ends
    (BATCH, "left[t / 32] |= mask ? mask[t / 32] & 1u << (t % 32) : 1u << (t % 32);", "left[t / 32] |= 1u << (t % 32);", "test_batch"),  # the mask is not seen
    (BATCH, "if (b->step.entries[i].add == -INFINITY)", "if (b->step.entries[i].add < 0)", "test_batch"),  # a token that is only less likely
    (SCHED, "out->failed[i] == ITEM_FORBIDDEN ? FINISH_FORBIDDEN : FINISH_ERROR", "FINISH_ERROR", "test_scheduler"),  # bans are called the engine's fault
    # ---- what a connection may do
    ("server/http/limits.c", "c->credit + earned < BURST ? c->credit + (int)earned : BURST", "c->credit + (int)earned", "test_server_limits"),  # an hour saves up requests
    ("server/http/limits.c", "    c->credit--;\n", "", "test_server_limits"),  # no limit
    # ---- the watchdog ----------------------------------------------------------------------------------------
    ("server/watchdog.c", "if (cpu - cpu_then < STALL_NS && ", "if (", "test_server_watchdog"),  # only waiting is seen
    ("server/watchdog.c", "            cpu_then = cpu;\n", "", "test_server_watchdog"),  # all work is one stall
]
