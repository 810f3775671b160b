"""Mutants: the server. tests/mutate.py says what a row is."""

SCHED = "scheduler/scheduler.c"
BATCH = "engine/batch.c"
NEAREST = "server/process/nearest.c"
FOREIGN_FLAGS = "server/process/foreign_flags.c"
METRICS = "server/observe/metrics.c"
FIELD_RULES = "server/api/field_rules.c"
OPENAI_PARSE = "server/dialects/openai_parse.c"
LLAMA = "server/dialects/llama_completion.c"
INFILL = "server/api/infill.c"
RERANK = "server/dialects/rerank.c"
DECISIONS = "server/api/decisions.c"
ANTHROPIC = "server/dialects/anthropic_request.c"
ANTHROPIC_WRITE = "server/dialects/anthropic_write.c"
OLLAMA = "server/dialects/ollama_request.c"
OLLAMA_WRITE = "server/dialects/ollama_write.c"
RESPONSES_INPUT, RESPONSES_WRITE = "server/dialects/responses_input.c", "server/dialects/responses_write.c"

STORE, STORE_FILES = "server/dialects/response_store.c", "server/dialects/response_files.c"
OUTPUT = "server/formats/output_parser.c"
CALL_JSON = "server/formats/call_json.c"
CALL_TAGGED = "server/formats/call_tagged.c"
CALL_LITERAL = "server/formats/call_literal.c"
HARMONY = "server/formats/harmony.c"

TLS, HANDSHAKE, HTTP = "server/http/tls.c", "server/http/handshake.c", "server/http/http.c"

TGI = "server/dialects/tgi.c"

ROWS = [
    # ---- TGI
    (TGI, "    while (at > 0 && at < text->len && (text->data[at]", "    while (at > text->len && (text->data[at]", "test_tgi.py", "several_tokens"),  # half a character
    (TGI, "    buf_clear(&o->held);\n", "", "test_tgi.py", "stream"),  # a text twice
    (TGI, "rewrite_set(out, \"include_stop_str_in_output\", json_true(), e)", "true", "test_tgi.py", "how_it_ends"),  # without the stop string
    (TGI, "(samples(p) || rewrite_set(", "(samples(p) || true || rewrite_set(", "test_tgi.py", "sampling"),  # it samples unasked
    (TGI, "        name_fields(e);\n", "        (void)name_fields;\n", "test_tgi.py", "refused"),  # another's name
    (TGI, "bool special = tokenizer_is_special(r->model->tokenizer, id) && !len;", "bool special = false;", "test_tgi.py", "how_it_ends"),  # an end of text is text
    ("server/endpoints/routes.c", "(posts || !routes[i].posts)", "(posts || i >= 0)", "test_tgi.py", "info"),  # no page at /
    # ---- TLS
    ("server/http/tls.c", "    if (incoming)\n        finished(", "    finished(", "test_tls.py", "never_end"),  # our own message ends it
    (HANDSHAKE, "    setsockopt(conn->fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);\n", "    (void)one;\n", "test_tls.py", "held_back"),  # 40 ms
    (HANDSHAKE, "        if (!conn->shaking) {\n", "        if (true) {\n", "test_tls.py", "never_end"),  # the loop turns in a circle
    (HANDSHAKE, "    MHD_resume_connection(conn->mhd);\n", "", "test_tls.py", "s_client"),  # nobody reads the handshake
    (HTTP, "        handshake_resume(&http->handshakes, c);\n", "", "test_tls.py", "never_end"),  # the stop hangs
    (HTTP, "conn->tls ? tls_send(conn->tls, data, len)\n", "false ? tls_send(conn->tls, data, len)\n", "test_tls.py", "encrypted"),  # plain text
    (TLS, "    if (n != m || memcmp(of_cert, of_key, n) != 0)", "    if (n != m)", "test_tls.py", "start"),  # another's key
    (TLS, ":-RSA\"", "\"", "test_tls.py", "reload"),  # no forward secrecy
    (TLS, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2", "NORMAL", "test_tls.py", "curl"),  # TLS 1.1
    ("server/commands/keys.c", "    if (k->pair)\n", "    if (false)\n", "test_tls.py", "reload"),  # a renewed certificate is not used
    ("server/process/config.c", "!c->tls_cert != !c->tls_key", "c->tls_cert && !c->tls_key", "test_tls.py", "start"),  # plain HTTP beside --tls-key
    (CALL_LITERAL, "(c->quote && (at != c->quote || c->scan.escaped))", "(c->quote && at != c->quote)", "test_server_output"),  # \\' ends a string
    (CALL_LITERAL, "code >= 0xd800 && code < 0xdc00 && r->end - r->at >= 6", "false", "test_server_output"),  # two halves of a character
    ("server/formats/argument_types.c", "if (whole == at || (*at == '0' && whole > at + 1))", "if (whole == at)", "test_server_arguments"),  # 01 is a number
    (LLAMA, "prompt->len + (size_t)p->num_tokens", "prompt->len", "test_server_llama"),  # an editor shows a cache without the output
    ("server/api/generic_tools.c", "user ? message : NULL", "NULL", "test_server_openai"),  # the user speaks twice in a row
    ("server/dialects/anthropic_request.c", "while (json_array_size(c->messages) > c->first)", "while (json_array_size(c->messages) > 0)", "test_server_anthropic"),  # a compaction takes the system prompt with it
    # ---- responses that are kept
    (STORE, "    if (s->files && !replaced)", "    if (s->files && replaced)", "test_server_stored"),  # a deleted one comes back
    (STORE, "list[num - 1].number : 0;", "0 : 0;", "test_server_stored"),  # one kept after a restart is older than those before
    (STORE, "one->about.lens[STORED_EVENTS] = 0;", "(void)0;", "test_server_stored"),  # a long stream is not kept at all
    (STORE, "            response_files_remove(s->files, gone->about.key);\n", "", "test_server_stored"),  # its file stays
    (STORE_FILES, "(x->number > y->number) - (x->number < y->number)", "(x->number < y->number) - (x->number > y->number)", "test_server_stored"),  # the oldest stay
    (STORE_FILES, "ok = memcmp(sum, found, sizeof sum) == 0;", "ok = true;", "test_server_stored"),  # damage is served
    (STORE_FILES, "flock(f->lock, LOCK_EX | LOCK_NB) == 0", "flock(f->lock, LOCK_SH | LOCK_NB) == 0", "test_server_stored"),  # two servers on a folder
    (RESPONSES_WRITE, "    w.s->queued = false;\n", "", "test_server_responses"),  # each piece is in progress anew
    (RESPONSES_WRITE, "{.sequence = sequence};", "{.sequence = 0};", "test_server_responses"),  # a reader has had the last event
    (RESPONSES_WRITE, "        close_item(&w, \"incomplete\");\n", "", "test_server_responses"),  # a cancelled one says nothing
    (RESPONSES_WRITE, "r->request->items.len && !r->unkept", "r->request->items.len", "test_server_responses"),  # it says that it is stored
    ("server/requests/follow.c", "            f->skip--;\n", "            f->skip = 0;\n", "test_background.py", "many_readers"),  # events come twice
    ("server/endpoints/stored_responses.c", "        f->skip = num - 1;\n", "", "test_background.py", "killed_while"),  # a reader who comes back hears nothing
    ("server/requests/completion_background.c", "memcmp(((struct completion *)x)->request.base.tenant, owner, SHA256_BYTES) == 0", "owner[0] + 1",
            "test_background.py", "two_keys"),  # another key's
    ("server/requests/completion.c", "exchange_step(&c->exchange, completion_waits(c), completion_keep, finish_stream);", "finish_stream(&c->exchange);",
            "test_response_store.py", "restart"),  # a stream is kept nowhere
    ("server/endpoints/routes.c", "!r->owned && ", "", "test_response_store.py", "admin_key"),  # an admin key has a key's responses
    # ---- /v1/responses
    (RESPONSES_INPUT, "if (rd->assistant && !fresh)", "if (rd->assistant)", "test_server_responses"),  # two messages become one
    (RESPONSES_INPUT, "    if (!text.len)\n", "    if (true)\n", "test_server_responses"),  # a summary stands beside the reasoning
    (RESPONSES_INPUT, "    rd->assistant = NULL;\n    if (json_array_append_new(rd->messages, message) != 0 ||", "    if (json_array_append_new(rd->messages, message) != 0 ||",
            "test_server_responses"),  # a call after a tool's output is before it
    ("server/dialects/responses_compact.c", "    if (!text || strncmp(text, mark, strlen(mark)) != 0)", "    if (!text)", "test_server_responses"),  # what another server encrypted is read as text
    ("server/dialects/responses_tools.c", "        if (has_type(value, \"exec\"))", "        if (false)", "test_server_responses"),  # the model sees a member that is no argument
    (RESPONSES_WRITE, "    if (s->open != kind) {\n        close_item", "    if (s->open == ITEM_NONE) {\n        close_item", "test_server_responses"),  # text is reasoning
    (RESPONSES_WRITE, "    if (w->s->num_items == 0)\n", "    if (false)\n", "test_server_responses"),  # no item of an empty output
    (RESPONSES_WRITE, "    buf_clear(&s->text);\n", "", "test_server_responses"),  # an item has the text of the one before
    (RESPONSES_WRITE, "    if (w.s->sequence == 0) // clients", "    if (false) // clients", "test_server_responses"),  # an error comes first
    ("server/requests/completion_text.c", "    while (first < ch->num_pending && (n = match_pending(ch, first, text + before, more)) == 0)\n        first++;\n", "",
            "test_server_responses"),  # log-probabilities of marks
    ("server/requests/completion_text.c", "    if (parts[num - 1].kind != PART_CONTENT) {\n        ch->num_pending = 0;\n        return;\n    }\n", "",
            "test_server_responses"),  # and of reasoning
    # ---- what models write: calls and reasoning
    ("server/formats/parser_state.h", "return have >= len ? MATCH_YES : p->ended ? MATCH_NO : MATCH_OPEN;",
            "return have >= len ? MATCH_YES : MATCH_NO;", "test_server_output"),  # a mark in two pushes is text
    (OUTPUT, "add_content(p, !p->tools ? p->scan : p->solid > p->at ? p->solid : p->at);", "add_content(p, p->scan);",
            "test_server_output"),  # blanks before a call are content
    (OUTPUT, "p->scan = p->call.begun ? p->call.pos : p->call.origin;", "p->at = p->scan = p->call.pos;",
            "test_server_output"),  # what looked like a call is lost
    ("server/formats/parser_state.c", "s->string = s->escaped || c != '\"';", "s->string = c != '\"';", "test_server_output"),  # \\" ends a string
    (CALL_JSON, "(!(p->format->bare || c->format != p->format) ||", "(true ||", "test_server_output"),  # any object is a call
    (CALL_TAGGED, "if (type & others ||", "if (", "test_server_output"),  # numbers as strings
    (CALL_TAGGED, "m = is_closed(p, c->pos + strlen(c->format->argument.close));", ";", "test_server_output"),  # a value ends at a tag that it speaks of
    ("server/formats/argument_types.c", "types &= types_of(w, target, depth + 1);", ";", "test_server_arguments"),  # what a reference says
    (OUTPUT, "if (m == MATCH_YES)\n        return MATCH_NO;\n    bool call", "bool call", "test_server_output"),  # what was thought of is called
    (OUTPUT, "c->tried = before.tried + 1;", "c->tried = 100;", "test_server_faults"),  # of other formats the first alone
    (OUTPUT, "const char *const marks[] = {p->after_call ? f->call_close : f->think_close,", "const char *const marks[] = {NULL,", "test_server_faults"),  # a mark twice is text
    (HARMONY, "(function || output_has_tool(p, c->name.data, c->name.len))", "true", "test_server_output"),  # calls of others' tools
    (CALL_LITERAL, "if (depth > MAX_DEPTH)", "if (false)", "test_server_output"),  # recursion as deep as the text
    (HARMONY, "if (call && p->tools) {", "if (call && false) {", "test_server_output"),  # arguments as content
    # ---- what stands between two texts
    (INFILL, "bool is_suffix = (i == 0) == fim->suffix_first;", "bool is_suffix = i == 1;", "test_server_llama"),  # Codestral's order
    (INFILL, "from[i]->ids + from[i]->len - keep[i]", "from[i]->ids", "test_server_llama"),  # keeps what is far from the gap
    (INFILL, "if (r->echo || r->truncate != INT_MAX)", "if (r->truncate != INT_MAX)", "test_server_openai"),  # echo shows marks
    (ANTHROPIC, "if (same && (n > c->begin || !json_object_get(last, \"tool_calls\")))", "if (false)",
            "test_server_anthropic"),  # two calls at once are two messages
    (ANTHROPIC, "(n > c->begin || !json_object_get(last, \"tool_calls\"))", "true", "test_server_anthropic"),  # what follows a call is before it
    (ANTHROPIC, "    if (json_is_true(failed) &&\n", "    if (false &&\n", "test_server_anthropic"),  # a failure that is not told
    (ANTHROPIC, "json_array_size(content) == 0 && !message_of(c, c->role, e)", "false", "test_server_anthropic"),  # a turn without blocks is none
    (ANTHROPIC, "return json_array_remove(messages, n - 1) == 0;", "return true;", "test_server_anthropic"),  # nothing is gone on with
    (ANTHROPIC, "field_get(config, \"format\") : format;", "field_get(config, \"format\") : NULL;", "test_server_anthropic"),  # the older name asks for nothing
    (ANTHROPIC, "rewrite_thinking(chat, m, !disabled, e)", "rewrite_thinking(chat, m, disabled, e)", "test_server_anthropic"),  # on is off
    (ANTHROPIC_WRITE, "    close_block(out, r, s);\n    struct buf *b = event_begin(out, \"message_delta\");",
            "    struct buf *b = event_begin(out, \"message_delta\");", "test_server_anthropic"),  # a block that stays open
    (ANTHROPIC_WRITE, "    s->index++;\n", "", "test_server_anthropic"),  # all blocks are the first
    (ANTHROPIC_WRITE, "(long long)(u->prompt - u->cached)", "(long long)u->prompt", "test_server_anthropic"),  # cached tokens count twice
    (OLLAMA, "        n->calls++;\n", "", "test_server_ollama"),  # all calls have one number
    (OLLAMA, "number(n->results++)", "number(n->results)", "test_server_ollama"),  # all results belong to the first
    (OLLAMA, "json_integer_value(v) >= least", "true", "test_server_ollama"),  # a context of no token
    (OLLAMA, "json_incref((json_t *)stream) : json_true()", "json_incref((json_t *)stream) : json_false()",
            "test_server_ollama"),  # no stream without a word
    (OLLAMA_WRITE, "        if (parts[i].kind != PART_ARGUMENTS)\n            end_call(o);\n", "", "test_server_ollama"),  # the next call loses one
    (OLLAMA_WRITE, "    if (o->ids.len)\n        buf_char(&o->ids, ',');\n", "", "test_server_ollama"),  # two ids are one
    # ---- pairs of texts
    (RERANK, "*second = *second < keep - end ? *second : keep - end;", "", "test_server_rerank"),  # a type behind the end
    (RERANK, "memmove(ids->ids + keep - end, ids->ids + ids->len - end, end * sizeof *ids->ids);", "", "test_server_rerank"),  # a template without its end
    (RERANK, "n = tail && k ? 0 : n;", "", "test_server_rerank"),  # all of a template counts as its end
    (RERANK, ": (x->index > y->index) - (x->index < y->index);", ": (x->index < y->index) - (x->index > y->index);", "test_server_rerank"),  # ties
    (RERANK, "json_array_get(v, n == 1 ? 0 : i)", "json_array_get(v, i)", "test_server_rerank"),  # one text is paired once
    # ---- typed decisions
    (DECISIONS, "permutation * q->num_options / q->num_prompts", "0", "test_server_decisions"),  # all orders are one
    (DECISIONS, "    ids[o->ids.len++] = end;\n", "    ids[o->ids.len++] = 0;\n", "test_server_decisions"),  # an option that goes on
    (DECISIONS, "(!whole || sorted[i]->ids.len == (size_t)depth + 1)", "true", "test_server_decisions"),  # whole options end early
    (DECISIONS, "return r->sequence || n->num_edges > 1;", "return true;", "test_server_decisions"),  # rows that say nothing
    (DECISIONS, "i < q->num_nodes && !r->sequence; i++)", "i < q->num_nodes; i++)", "test_server_decisions"),  # whole options lose what others take
    (DECISIONS, "r->logprobs + q->logprobs + prompt * q->num_edges", "r->logprobs + q->logprobs", "test_server_decisions"),  # the first order counts twice
    (DECISIONS, ".at = r->num_logprobs + n->edges + k", ".at = r->num_logprobs + n->edges", "test_server_decisions"),  # options beyond the 20th
    (DECISIONS, "(size_t)r->rows[i].depth + 1;", "1;", "test_server_decisions"),  # a row beyond the context
    # ---- sampling of chats
    ("server/process/sampling_defaults.c", "is_auto && json_object_size(advice) == 0 ? sampling_chat", "is_auto ? sampling_chat", "test_server_config"),  # beside advice
    ("server/process/sampling_defaults.c", "    repeat(chat, given);\n", "", "test_server_config"),  # the operator's word is lost
    # ---- fields of a request
    (OPENAI_PARSE, "if (other && other != given && !same_value(other, v)) {", "if (false) {",
            "test_server_openai"),  # two names, two values: one is dropped
    (OPENAI_PARSE, "field_rule_has(alias, given) ? json_integer(INT_MAX) : json_incref(given)", "json_incref(given)",
            "test_server_openai"),  # -1 is no limit but a bad one
    (FIELD_RULES, "if (v && !field_rule_has(rule, v))", "if (v)", "test_server_openai"),  # values that ask for nothing are refused
    (FIELD_RULES, "if (v && !field_rule_has(rule, v))", "if (false)", "test_server_openai"),  # nothing is refused
    (OPENAI_PARSE, "r->priority == 0 || m->has_priorities", "true", "test_server_openai"),  # a priority without an effect
    (OPENAI_PARSE, "    memcpy(r->base.ignored, ignored, sizeof ignored);\n", "    if (ok)\n        memcpy(r->base.ignored, ignored, sizeof ignored);\n",
            "test_server_openai"),  # errors do not tell what would be ignored
    (OPENAI_PARSE, "(e->param[n] && e->param[n] != '[')", "e->param[n]", "test_server_openai"),  # an item's error names what was not sent
    (FIELD_RULES, "bool fits = used + len + sizeof \", \" + sizeof \", ...\" <= IGNORED_SIZE;", "bool fits = used + len < IGNORED_SIZE;",
            "test_server_openai"),  # a list cut without a word
    (FIELD_RULES, "if ((at == list || at[-1] == ' ') && ", "if (", "test_server_openai"),  # the end of a name hides another
    (NEAREST, "d <= least(na / 3, 3)", "d <= 3", "test_server_config"),  # --temp: did you mean --help?
    (NEAREST, "row[j] = least(row[j], two_above[j - 2] + 1);", "row[j] = row[j];", "test_server_config"),  # --prot is far from --port
    (FOREIGN_FLAGS, "i > 1 && word[i] == '_' ? '-' : word[i]", "word[i]", "test_server_config"),  # vLLM's own spelling with _
    (FOREIGN_FLAGS, '{"-np|--parallel", FOREIGN_OURS, "max-num-seqs", NULL}', '{"-np|--parallel", FOREIGN_OTHER, NULL, "--max-num-seqs N"}',
     "test_server_config"),  # what means the same is refused
    (FOREIGN_FLAGS, "return f->kind == FOREIGN_VALUE;", "return false;", "test_server_config"),  # a value that is left out becomes the model
    ("server/process/config_file.c", "bool empty = f->open && f->num_items == 0;", "bool empty = false;", "test_server_config"),  # a key of --api-key alone opens the server
    ("server/process/config_file.c", "skip_blanks(s + len);\n", "s + len;\n", "test_server_config"),  # blanks before the sign
    ("server/process/config.c", "o->type == OPT_LIST ? set_list", "is_list(o) ? set_list", "test_server_config"),  # half a key opens the server
    ("server/process/config.c", "if (v->index > 1 && p->skips_list)", "if (false)", "test_server_config"),  # a fault for each value of a list
    ("server/process/config.c", "(p->names_model || access(only, F_OK) == 0", "(access(only, F_OK) == 0", "test_server_config"),  # the name of a model is tokenised
    ("server/process/config.c", "*p->err = (struct err){0};", ";", "test_server_config"),  # only the first problem is told
    ("server/process/model_name.c", "!strchr(line, '/')", "true", "test_server_names"),  # a commit that leads out of its repository
    ("server/process/model_name.c", "digest[7 + strspn(digest + 7, \"0123456789abcdef\")]", "false", "test_server_names"),  # a digest that leads anywhere
    ("server/process/model_name.c", "(!of || of - name < 6 || strncmp(of - 5, \"00001\", 5) == 0)", "true", "test_server_names"),  # each part of a split file is one
    (METRICS, "seconds > durations[b]", "seconds >= durations[b]", "test_server_text"),  # le is not less than
    (METRICS, "s->waiting - deferred);", "s->waiting);", "test_server_text"),  # the reasons are more than all
    ("server/api/api_error.c", "tokens == (size_t)n_ctx", "false", "test_server_openai"),  # a full context that is told to fit
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
    (SCHED, "out->failed[i] == ITEM_FORBIDDEN ? FINISH_FORBIDDEN", "out->failed[i] == ITEM_FORBIDDEN ? FINISH_ERROR", "test_scheduler"),  # bans are called the engine's fault
    # ---- what a connection may do
    ("server/http/limits.c", "c->credit + earned < BURST ? c->credit + (int)earned : BURST", "c->credit + (int)earned", "test_server_limits"),  # an hour saves up requests
    ("server/http/limits.c", "    c->credit--;\n", "", "test_server_limits"),  # no limit
    # ---- the watchdog ----------------------------------------------------------------------------------------
    ("server/observe/watchdog.c", "if (cpu - cpu_then < STALL_NS && ", "if (", "test_server_watchdog"),  # only waiting is seen
    ("server/observe/watchdog.c", "            cpu_then = cpu;\n", "", "test_server_watchdog"),  # all work is one stall
    ("base/log_json.c", "!padded && ", "", "test_json_log"),  # 007 is no number of JSON
    ("base/log_json.c", "if (b->len - start + 1 > room)", "if (false)", "test_json_log"),  # a line that no pipe takes whole
    ("base/log_json.c", "*stop != '\"' || (stop + 1 < end && stop[1] != ' ')", "*stop != '\"'", "test_json_log"),  # a quote ends its value
    ("server/http/auth.c", "return i >= 0 ? a->names[i] : NULL;", "return a->num_keys ? a->names[a->num_keys - 1] : NULL;", "test_server_text"),  # one key's name for all
    ("scheduler/tiers.c", "t->role == KV_CONSUMER ||", "", "test_kv_store_shared.py", "roles"),  # a consumer writes
    ("scheduler/tiers.c", "t->role != KV_PRODUCER && (r", "(r", "test_kv_store_shared.py", "roles"),  # a producer fetches
    ("scheduler/tiers.c", "    engine_kv_copy(t->engine, &move, 1);\n", "", "test_kv_store_look.py", "explained"),  # a page without its bytes
    ("scheduler/tiers.c", "t->counts.hit_tokens += (uint64_t)(r->num_cached - r->expect_cached);", "(void)t;", "test_kv_store_look.py", "explained"),  # hits go uncounted
    ("engine/store/valkey.c", "(s->database == 0 ||", "(true ||", "test_kv_store_shared.py", "password"),  # another database than was asked for
    ("scheduler/tiers.c", "move = (struct kv_move){.from = page_of(t, p), .from_tier = KV_HOST, .to = id};", "move.to_tier = KV_DEVICE;", "test_kv_store_look.py", "explained"),  # from the device to itself
    ("engine/store/memory.c", "s->pages[s->hand].used && passed", "false && passed", "test_kv_store"),  # pages in use go first
    ("engine/store/memory.c", "    drop_page(s, i);\n    s->pages[i]", "    s->pages[i]", "test_kv_store"),  # a page is found that is overwritten
    ("engine/store/memory.c", "== 0 ? STATUS_OK", "== 0 || true ? STATUS_OK", "test_kv_store"),  # another prompt's page
    ("scheduler/cache_log.c", "change == KV_EVICTED};", "false};", "test_cache_events.py", "predicts"),  # nothing ever goes
    ("scheduler/cache_log.c", "        if (b->published)\n            put", "        if (false)\n            put", "test_cache_events.py", "predicts"),  # a late reader lacks what was there
    ("scheduler/cache_log.c", "l->num - q->next > CACHE_LOG_EVENTS", "false", "test_view"),  # a slow reader reads what was overwritten
    ("server/endpoints/cache_watch.c", "stats.steps != w->steps", "false", "test_cache_events.py", "predicts"),  # nothing new is told
    ("server/endpoints/cache_watch.c", "x->app->has_tenants && ", "false && ", "test_cache_events.py", "who_may"),  # a key reads other keys' prompts
    ("scheduler/request.c", "    r->seq.retain = p->retain;\n", "", "test_kv_store_look.py", "retained"),  # the wish gets lost
    ("server/api/fields.c", "strcmp(ttl, \"1h\") == 0", "false", "test_kv_store_look.py", "retained"),  # an hour as five minutes
    ("scheduler/tiers.c", "engine_host_clear(t->engine, page_of(t, p), p->transfer.group);", "(void)0;", "test_kv_store.py", "private_leavings"),  # bytes of others lie in pages
    ("engine/models/model_hash.c", "now - st.st_ctim.tv_sec < SETTLED", "false", "test_kv_store_look.py", "read_once"),  # a change within a tick goes unseen
    ("engine/engine_store.c", "strspn(hash, \"0123456789abcdef\") == MODEL_HASH_BYTES - 1;", "true;", "test_kv_store_look.py", "read_once"),  # whatever is there is a hash
]
