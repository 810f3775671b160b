"""Mutants: ranks, text, model files, quantised formats. tests/mutate.py says what a row is."""

SAMPLER = "kernels/cpu/sampler.c"
CPU = "kernels/cpu/cpu.c"
MIX = "kernels/cpu/mix.c"
BODY_MIX = "kernels/cpu/body_mix.h"
REF = "kernels/ref/backend.c"
TILES = "kernels/cpu/body_gemm.h"
QUANTS_H = "base/quants.h"
QUANTIZE = "engine/models/quantize.c"
ENCODE = "base/quants_encode.c"
DECODE = "base/quants.c"
WHEEL = "packaging/wheel.py"
DETOK = "engine/text/detok.c"
SPM = "engine/text/tokenizer_spm.c"
MERGE_HEAP = "engine/text/merge_heap.h"
BPE = "engine/text/tokenizer_bpe.c"
MERGES = "engine/text/tokenizer_merges.c"
HF = "engine/models/hf/"
PRE = "engine/text/tokenizer_pre.c"
TEXT = "engine/text/%s"
PATTERNS = "engine/text/tokenizer_patterns.c"
GGUF = "engine/models/gguf.c"
WEIGHTS = "engine/models/weights.c"
TENSOR_READ = "engine/models/tensor_read.c"
CGROUP = "base/cgroup.c"
PROCESSORS = "base/cpus.c"
CONVERT = "engine/models/convert.c"
KV_LAYERS = "engine/models/kv_layers.c"
BATCH = "engine/batch.c"
ENGINE = "engine/engine.c"
PROCESSES = "engine/ranks/comm_processes.c"
COMM = "engine/ranks/comm_threads.c"
SHARD = "engine/models/shard.c"
RANKS = "engine/ranks/ranks.c"
ANSWERS = "engine/ranks/result_message.c"
HEAD = "kernels/cpu/head.c"
CPU_KV = "kernels/cpu/kv.c"
WEIGHT = "kernels/cpu/weight.c"

ROWS = [
    # ---- ranks -----------------------------------------------------------------------------------------------
    (COMM, "sum[r] = sum[2 * r] + sum[2 * r + 1];", "sum[r] = sum[r] + sum[r + n / 2];", "test_comm"),  # another tree of sums
    (COMM, "y[i] = x[i] = x[i] + y[i];", "x[i] = x[i] + y[i];", "test_comm"),  # one rank does not get the sum
    (COMM, "if (s->operation == operation && s->bytes == bytes)", "if (s->operation == operation)",
           "test_comm"),  # sizes that disagree
    ("engine/ranks/abort_state.h", "    if (!atomic_load(&a->aborted))\n", "", "test_comm"),  # the last reason stays
    (COMM, "add_up(g, begin, stop);\n    return wait_all(m);", "add_up(g, begin, stop);\n    return STATUS_OK;",
           "test_comm"),  # a sum is read before it is whole
    (COMM, "    if (abort_state_is_set(&m->group->abort) ||\n        wait_counter(m, &q->taken, number + 1 - COMM_MAX_ISENDS, to) != STATUS_OK)\n        return STATUS_DEVICE;\n",
           "", "test_comm"),  # more messages than places
    (COMM, "atomic_load(&q->sent) - (uint32_t)left, to);", "atomic_load(&q->sent) - (uint32_t)left - 1, to);",
           "test_comm"),  # a buffer comes back too early
    (PROCESSES, "int other = c->rank ^ bit;", "int other = c->rank ^ (c->world / 2 / bit);",
           "test_comm_processes"),  # recursive halving: another tree
    (PROCESSES, "sum[i] = other[i] + sum[i];", "sum[i] = other[i];", "test_comm_processes"),  # the upper ranks do not add
    (PROCESSES, "h->operation == (uint32_t)operation && h->bytes == bytes", "h->operation == (uint32_t)operation",
           "test_comm_processes"),  # messages whose sizes disagree
    (PROCESSES, "(m->config.channel << 1 | is_message)", "(m->config.channel << 1)",
           "test_comm_processes"),  # a collective takes a message
    (PROCESSES, "waited > m->deadline_ns", "waited < 0", "test_comm_processes", "hangs"),  # a rank that stays away is waited for
    (PROCESSES, "        if (done)\n", "        if (done || waited > 0)\n", "test_comm_processes"),  # a late message is not waited for
    (PROCESSES, "if (i + WINDOW < pieces &&", "if (i + WINDOW + 1 < pieces &&", "test_comm_processes"),  # the last piece stays behind
    ("engine/models/model_hash.c", "h = (h ^ word) * odd;", "h = (h ^ word >> 1) * odd;", "test_comm_processes"),  # a bit is not seen
    ("engine/models/model_hash.c", "uint64_t a = h->bytes, b = ~h->bytes;", "uint64_t a = 0, b = 1;",
           "test_comm_processes"),  # a zero at the end is not seen
    ("engine/ranks/step_wire.c", "!is_within(c->tokens, l->max_tokens) ||", "", "test_comm_processes"),  # a step beyond the limits
    ("engine/ranks/step_wire.c", "? a.mask_bits + (number - 1) *", "? a.mask_bits + number *",
           "test_comm_processes"),  # the mask of the row after
    ("engine/ranks/step_wire.c", "a->groups[g].slots[t] < slots;", "true;", "test_comm_processes"),  # a slot behind the cache
    ("engine/ranks/step_wire.c", "ok &= starts[s] <= starts[s + 1];", "ok &= true;", "test_comm_processes"),  # sequences that run backwards
    ("engine/ranks/processes.c", " &&\n                wait_all_sent(p, last);", ";", "test_processes"),  # the goodbye is given up before it arrives
    ("engine/ranks/processes.c", "!wait_all_sent(p, p->control)", "false", "test_processes"),  # and the handshake
    ("engine/ranks/launch.c", "number(\"SLURM_STEP_NUM_TASKS\"", "number(\"SLURM_NTASKS\"",
           "test_comm_processes"),  # a batch script takes itself for a rank
    ("engine/ranks/launch.c", "&& seconds >= 0 ? seconds : 1;", "? 1 : 1;", "test_comm_processes"),  # mpirun waits a second whatever it is told
    (HEAD, "return smaller && !dev->limits.keep_logits ? k : 0;", "return smaller && !dev->limits.keep_logits && 0 ? k : 0;",
           "test_exchange"),  # ranks send logits, always
    (SHARD, "all = m->vocab / 2,", "all = 0,", "test_shard"),  # the last stage has the head on top
    (SHARD, "most = m->num_layers - (int)(n - stage);",
            "most = m->num_layers;", "test_shard"),  # a stage without layers
    (RANKS, "k->stage > 0 ? k->in : NULL, resid);", "NULL, resid);", "test_ranks"),  # each stage embeds
    ("kernels/cpu/cpu.c", "memcpy(dst, dev->resid + (size_t)dev->rank * backend_resid_part(n, dev->world),", "memcpy(dst, dev->resid,", "test_ranks"),  # ranks hand over the same part
    (RANKS, "    if (k->world)\n        k->world->ops->abort(k->world, why);\n", "", "test_ranks", "hangs"),  # other stages wait for a dead one
    (ANSWERS, "size_t n = num_top(&step->rows[i]), first = i * MAX_TOP_LOGPROBS;",
              "size_t n = num_top(&step->rows[i]), first = 0;", "test_ranks"),  # every row has the first's alternatives
    (WEIGHTS, "s->role, layer - first, s->at)", "s->role, layer % target->model->config.num_layers, s->at)",
              "test_ranks"),  # layers of unequal stages in other places
    (SHARD, "int64_t first = (int64_t)num * s->rank / s->world;", "int64_t first = (int64_t)each * s->rank % num;",
            "test_shard"),  # a copied kv head is another's
    (SHARD, "            cut_rows(bias, r);\n", "            bias->shape[0] = r.end - r.begin;\n", "test_shard"),  # every rank has the first biases
    (SHARD, "cut_range(s, shape.cut, layer, down, n);", "cut_range(s, shape.cut, layer, shape.axis ? down : DTYPE_F32, n);",
            "test_ranks"),  # gate is cut elsewhere than down
    (SHARD, "if (attn_out_size(a) % (b->attn * world) != 0)", "if (false)", "test_shard"),  # cut inside a block
    (SHARD, "if (hidden > 0 && num_blocks(hidden, b->down) < world)", "if (false)", "test_shard"),  # a rank without a part
    (WEIGHT, "total * (dev->rank * w->num_segments + i) / NUM_SEGMENTS - start", "(int64_t)p->num_blocks * i / w->num_segments",
             "test_ranks"),  # segments of the part, not of the whole
    (WEIGHT, "    p->data += (size_t)(desc->start / LANES) * p->panel_bytes;\n", "", "test_ranks"),  # every rank has the first tokens
    (TILES, "case 4: all = rows_add(two_segments(sum, 0), two_segments(sum, 2)); break;",
            "case 4: all = rows_add(rows_add(two_segments(sum, 0), rows_load(sum + 2 * SEGMENT_FLOATS)), rows_load(sum + 3 * SEGMENT_FLOATS)); break;",
           "test_ranks"),  # another tree within a rank
    (HEAD, "        failed |= topk->num < 0;\n", "", "test_ranks"),  # a logit that is not finite elsewhere
    (HEAD, "int k = sampler_local_k(row);\n    bool smaller", "int k = row->temperature > 0 && row->top_k == 0 ? 40 : sampler_local_k(row);\n    bool smaller",
           "test_ranks"),  # a few where all matter
    (SAMPLER, "ids[n++] = begin + s->id[i];", "ids[n++] = s->id[i];", "test_ranks"),  # ids of the part
    (SAMPLER, "    mask = mask ? mask + begin / 32 : NULL;\n", "", "test_ranks"),  # the mask of other tokens
    (SAMPLER, "if (row->target >= 0 || row->num_logprobs >= 0 || logits_row_has_chain(row))", "if (row->target >= 0)", "test_ranks"),  # no log-probabilities
    (CPU, "cpu_matmul_part(dev, dev->partial, D, &x, w);", "if (!dev->rank)\n            cpu_matmul_part(dev, dev->partial, D, &x, w);", "test_ranks"),  # one rank adds nothing
    (CPU, "uint64_t env = float_env_enter(); // a sum of two", "uint64_t env = 0x1f80; // a sum of two", "test_ranks"),  # subnormal sums between ranks
    # ---- text and files --------------------------------------------------------------------------------------
    (DETOK, "k = s->fail[k];\n        if (bytes[k] == bytes[n])",
            "k = 0;\n        if (bytes[k] == bytes[n])", "test_detok"),  # forget a partial match
    (DETOK, "s->matched = s->fail[s->matched];",
            "s->matched = 0;", "test_detok"),  # forget a partial match while matching
    (DETOK, "held = d->stops[s].matched > held ? d->stops[s].matched : held;",
            "held = d->stops[s].matched;", "test_detok"),  # hold back for the last stop only
    (DETOK, "s < d->num_stops && d->stop_index < 0; s++",
            "s < d->num_stops; s++", "test_detok"),  # a later stop wins
    (DETOK, "if (c >= d->lo && c <= d->hi) {",
            "if (c >= 0x80 && c <= 0xbf) {", "test_detok"),  # accept overlong and surrogate sequences
    (DETOK, "append_replacement(d); // and c begins anew",
            "{ append_replacement(d); return; }", "test_detok"),  # swallow the byte that broke a sequence
    (DETOK, "d->strip_space = false;\n",
            "", "test_detok"),  # keep SentencePiece's dummy space
    (MERGE_HEAP, "(a.score == b.score && a.left < b.left)",
            "(a.score == b.score && a.left > b.left)", "test_tokenizer"),  # equal scores merge from the right
    (SPM, "t->tokens[pair[i]].score > score",
            "t->tokens[pair[i]].score >= score", "test_tokenizer"),  # ties of byte pairs merge the other way
    (SPM, "bytes[k] == ' ' && bytes[k - 1] != ' '",
            "false", "test_tokenizer"),  # words are not cut at spaces
    (SPM, "!(e->flags & (TOKEN_SPECIAL | TOKEN_GUARDED)) && e->bytes_len > 0",
            "e->bytes_len > 0", "test_tokenizer"),  # match control tokens in user text
    (MERGE_HEAP, "(a.score == b.score && a.left < b.left)",
          "(a.score == b.score && a.left > b.left)", "test_bpe"),  # long words: equal ranks merge from the right
    (MERGES, "pair[i]->rank < rank",
          "pair[i]->rank <= rank", "test_bpe"),  # short words: the same
    (BPE, " && e->out->len == first + 1 && e->out->ids[first] == id", "", "test_bpe"),  # take a word whole that no merges make
    (MERGES, "left->id != merge->left || ",
          "", "test_bpe"),  # believe a pair that is out of date
    (BPE, "        ids[n++] = t->byte_ids[0xbf];\n",
          "", "test_bpe"),  # a byte without a token becomes half a character
    (PATTERNS, '(?![^" REGEX_SPACES "])|[" REGEX_SPACES "]+"',
               '|[" REGEX_SPACES "]+"', "test_bpe"),  # a run of spaces takes the next word's
    (PATTERNS, 'f2llmv2", .nfc = true,',
               'f2llmv2",', "test_bpe"),  # no normalisation
    (TEXT % "tokenizer_pre.c", "(byte && strchr(", "(false && strchr(", "test_json_vocab"),  # Falcon: bytes that are spelled as numbers
    (TEXT % "tokenizer_pre.c", "left % 3 == 0 ||", "(end - i) % 3 == 0 ||", "test_bpe"),  # bytes of digits by threes
    (TEXT % "tokenizer_pre.c", "(i == start && !k->joined)", "i == start", "test_bpe"),  # digits apart from what is before them
    (TEXT % "tokenizer_load.c", "spaced ? &tokenizer_gemma4 : kind", "kind", "test_tokenizer"),  # bytes in place of spaces
    (TEXT % "tokenizer_fim.c", "(role >= PAD ? TOKEN_END : 0)", "0", "test_fim"),  # another file is part of the output
    (TEXT % "tokenizer_fim.c", "if (ids[MIDDLE] < 0 && !suffix_first)", "if (false)", "test_fim"),  # a model without a middle
    (TEXT % "tokenizer_fim.c", "i < best[role] && roles", "roles", "test_fim"),  # names before keys
    (TEXT % "tokenizer_wordpiece.c", "known = chars <= t->max_word_chars;", "known = true;", "test_pieces"),  # words of any length
    (TEXT % "tokenizer_wordpiece.c", "t->marks[at > 0]", "t->marks[0]", "test_pieces"),  # each piece begins a word
    (TEXT % "tokenizer_wordpiece.c", "    e->out->len = begin;\n", "", "test_pieces"),  # half a word and the unknown
    (TEXT % "tokenizer_unigram.c", "while (end < len && places[end].id < 0)", "while (false)", "test_pieces"),  # an unknown each
    (TEXT % "tokenizer.c", "(t->tokens[id].flags & TOKEN_WORD) &&", "false &&", "test_pieces"),  # words in words
    (TEXT % "tokenizer.c", "    st = st ? st : push_frame(&t->between, flags, out);\n", "", "test_pieces"),  # nothing between a pair
    (TEXT % "charsmap.c", "if (value > m->texts_len)", "if (false)", "test_pieces"),  # beyond the texts
    (TEXT % "normalizer.c", "end - i < SHORT_CLUSTER &&", "", "test_pieces"),  # long clusters as one
    (TEXT % "regex.c", "PCRE2_UTF | PCRE2_MULTILINE,", "PCRE2_UTF,", "test_pieces"),  # $ is the end of a text alone
    (PRE, "if (holds && held.match != x.match)", "if (false)", "test_pieces"),  # nothing is merged with its neighbour
    (PRE, "start == end && start == from && from < text.len", "false", "test_pieces", "hangs"),  # an empty match, for ever
    (KV_LAYERS, "if (c->kv_layers == 0)", "if (false)", "test_recurrent_config"),  # a page for each layer
    ("engine/models/config_mix.c", "attends = r->arch->mix_alone;", "attends = false;", "test_recurrent_config"),  # no model is recurrent alone
    ("engine/models/config_attn.c", "memset(r->recurrent, true,", "memset(r->recurrent, false,", "test_recurrent_config"),  # Mamba 2 attends
    (HF + "vocab_reader.c", "if (digit < 0)", "if (false)", "test_folder"),  # any text is Base64
    (HF + "vocab_reader.c", "if (rows > 0 && num > rows) {", "if (false) {", "test_vocab_files"),  # tokens without rows are dropped
    (HF + "vocab_reader.c", "|| is_named(r, name);", "|| (is_named(r, name) && false);", "test_vocab_files"),  # special tokens of old files are words
    (HF + "vocab_spm.c", "m->bad |= size == 0;", "", "test_vocab_files"),  # groups have no bytes
    (HF + "vocab_spm.c", "if (unknown != 1)", "if (unknown < 1)", "test_vocab_files"),  # the last unknown piece wins
    (HF + "vocab_spm.c", "if (s->suffix || !s->escapes)", "if (s->suffix)", "test_vocab_files"),  # spaces as they are, read as U+2581
    (HF + "vocab_spm.c", "if (!llama || config_says", "if ((llama && false) || config_says", "test_vocab_files"),  # every class is Llama's
    (HF + "vocab_spm.c", "for (int i = 0; s->collapses && i < 6", "for (int i = 0; i < 6", "test_vocab_files"),  # spaces always collapse
    (HF + "vocab_tiktoken.c", "k->tokens[rank].data)", "false)", "test_vocab_files"),  # the last of two lines wins
    (HF + "vocab_tiktoken.c", "n > MAX_RANK_BYTES)", "false)", "test_vocab_files"),  # past the places of parts
    (HF + "vocab_tiktoken.c", "if (best == n)\n            return false;", "if (best == n)\n            break;", "test_vocab_files"),  # made of what never merges
    (HF + "vocab_special.c", "frames.between = frames.after;", "", "test_vocab_files"),  # nothing between a pair
    (TEXT % "regex.c", "buf_str(out, \"sc:\");", "buf_str(out, \"\");", "test_json_vocab"),  # U+3002 is Chinese
    (BPE, "ids[n - 1] = find_piece(t, (char[]){word[len - 1], ' '}, 2);", "ids[n - 1] = ids[n - 1] + 0;", "test_json_vocab"),  # words of CLIP have no end
    (PRE, "if (st == STATUS_OK && end > invalid)",
          "if (false)", "test_bpe"),  # lose what is not UTF-8
    (GGUF, "if (offset != *end)",
            "if (offset % g->alignment)", "test_gguf"),  # tensors may overlap
    (GGUF, "stop > g->file.size",
            "stop > g->file.size + 31", "test_gguf"),  # read past the end
    (TENSOR_READ, "(p[k + 1] & 0x7c) == 0x7c",
            "(p[k + 1] & 0x7c) == 0x7d", "test_weights"),  # accept infinities
    (TENSOR_READ, "first = (uint64_t)quants_scale_offset(type);",
            "first = 0;", "test_weights"),  # look for Q6_K's scale where the others have it
    (TENSOR_READ, "p[i] > 252", "p[i] > 253", "test_weights"),  # MXFP4 with numbers beyond f32
    (WEIGHTS, "t->view.ndim != want.ndim || memcmp",
            "t->view.ndim != want.ndim && memcmp", "test_model_config"),  # accept wrong shapes
    ("engine/models/config_keys.c", "*v != meta_array_int(&a, 0)",
            "false", "test_model_config"),  # layers may differ
    ("base/half.h", "(r + 0xfffu + (r >> 13 & 1u)) >> 13", "(r + 0x1000u) >> 13", "test_convert"),  # ties away
    ("base/half.h", "uint32_t shift = 126 - e, man", "uint32_t shift = 125 - e, man", "test_convert"),  # subnormals one bit finer
    (CONVERT, "finite && !kept && bad == n", "!kept && bad == n", "test_convert"),  # an infinity in the file is new
    (BODY_MIX, "before[j] = c->begins ?", "before[j] = false ?", "test_mix"),  # a sequence begins with what the page held
    (BODY_MIX, "for (int j = 0; j + 1 < last; j++)\n            before[j] = before[j + 1];", "", "test_mix"),  # the window stays
    (BODY_MIX, "struct v16 s = v16_fma(ki, delta[j], v16_mul(v16_load(row + j * LANES), decay));",
     "struct v16 s = v16_add(v16_mul(ki, delta[j]), v16_mul(v16_load(row + j * LANES), decay));", "test_mix"),  # rounded twice
    (MIX, "int group = m->tiled ?", "int group = true ?", "test_mix"),  # groups of heads beside each other
    (MIX, "m->key_dim && job->step->positions[row] == 0; i++)", "m->key_dim && false; i++)", "test_mix"),  # states of another sequence
    (MIX, "m->kind == MIX_DELTA ? decay[h] : dt[h]", "dt[h]", "test_mix"),  # beta for alpha
    (MIX, "m->groups && m->norm; g++", "m->groups && false; g++", "test_mix"),  # no norm of the groups
    ("engine/models/quantize.c", "(at.bias || ", "(", "test_equivalence"),  # biases of experts as matrices
    ("engine/text/tokenizer_load.c", "        t->tokens[end].flags &= (uint8_t)~TOKEN_END;\n", "        ;\n", "test_bpe"),  # gpt-oss stops before its answer
    (HF + "config_layers.c", "experts ? \"M*E\" : \"M*-\"", "\"M*-E\"", "test_folder"),  # Nemotron-H with both kinds of feed-forward
    (HF + "sentence.c", "i == 3 || found != POOLING_NONE", "i == 3", "test_folder"),  # the last of two poolings
    (HF + "sentence.c", "            normalize = true;\n", "            ;\n", "test_folder"),  # vectors as they come
    (HF + "reader.c", "strcmp(a->key, key) == 0", "false", "test_folder"),  # names of one family are not read
    ("engine/models/hf/recipe.c", "case ROWS_ODD: return 2 * r + 1;", "case ROWS_ODD: return 2 * r;", "test_folder_quant"),  # gpt-oss: up is gate
    ("engine/models/hf/dequantize.c", "raw[8 + i / 2] >> shift", "raw[i / 2 + 1] >> shift", "test_folder_quant"),  # the second half of a block from elsewhere
    ("engine/models/hf/layout.c", "s->ndim == 1 || p->bias ? s->ndim", "s->ndim == 1 ? s->ndim", "test_folder_quant"),  # every second expert's biases
    (WEIGHTS, "r.before = r.all, r.rows = rows;", "r.rows = rows;", "test_json_arch"),  # the queries are the gate, too
    (CPU, "if (layer->attn.gate)\n        pool_run", "if (false)\n        pool_run", "test_json_arch"),  # the output is not gated
    (SHARD, "return (struct range){h.begin / of_group,", "return (struct range){0,", "test_shard"),  # the groups of ranks before, too
    ("engine/models/config_mix.c", "(int64_t)m->groups * m->key_dim > 1 << 22", "false", "test_recurrent_config"),  # keys of any size
    ("engine/settings.c", "(states / token + 15) / 16 * 16", "states / token / 16 * 16", "test_json_arch"),  # pages of states are larger than keys
    (MIX, "c.out_gate = in + channels;", "c.out_gate = in;", "test_mix"),  # the gates change places
    (CPU_KV, "page_in(dev, v->from_tier, v->from), kv_page_bytes(dev));", "page_in(dev, v->from_tier, v->from), (size_t)dev->model.kv_layers * kv_vectors(dev) * kv_half_elems(dev) * kv_elem_bytes(dev));", "test_mix"),  # a snapshot has keys' bytes only
    (SHARD, "r = groups ? mix_groups(s, m) : mix_heads(s, m);", "r = mix_heads(s, m);", "test_shard"),  # rows of heads for groups
    (SHARD, "layer->state_layer = (uint16_t)own->groups[layer->state_group].num_layers++;", "", "test_shard"),  # places of other stages
    (KV_LAYERS, "if (n % c->state_layers == 0)", "if (n == 0)", "test_kv_layers"),  # states beyond the page
    ("include/weight_table.h", "model_attn(model, l) : &no_attn;", "model_attn(model, l) : &model->attn[0];", "test_recurrent_config"),  # tensors of both kinds in every layer
    ("engine/models/config_attn.c", "r->recurrent[i] = v == 0 && !r->ffn_alone[i];", "", "test_recurrent_config"),  # every layer attends
    (QUANTIZE, "weight_info(at.slot->role)->types != TYPES_ANY", "false", "test_recurrent_config"),  # convolutions are quantised
    (WEIGHTS, "any ? loaded_dtype(t->dtype, l->floats) : DTYPE_F32", "any ? t->dtype : loaded_dtype(t->dtype, l->floats)", "test_weights"),  # norms converted, too
    (BATCH, "- p->frequency_penalty * (float)c->output", "", "test_penalties"),  # an occurrence counts for nothing
    (BATCH, ".div = p->repetition_penalty", ".div = 1", "test_penalties"),  # repetition goes unpunished
    (BATCH, ".div = 1, .add = r->bias[i].add", ".div = 1, .add = -r->bias[i].add", "test_penalties"),  # bias turned round
    ("kernels/ref/ref_rows.c", "        part.bias = NULL; // every rank has it, the sum takes it once\n", "        ;\n", "test_ranks"),  # the reference's ranks add a bias each
    (REF, "backend_vocab_rows(V, r, dev->world, &begin, &end);", "backend_vocab_rows(V, dev->rank, dev->world, &begin, &end);",
          "test_ranks"),  # the reference's logits of other ranks
    # ---- quantised formats -----------------------------------------------------------------------------------
    (DECODE, "int8_t scale = (int8_t)p[192 + i];", "int scale = p[192 + i];", "test_quants"),  # Q6_K's scales without a sign
    (QUANTS_H, "p[4 + s] >> 4 | p[s] >> 6 << 4;", "p[4 + s] >> 4 | p[s - 4] >> 6 << 4;",
             "test_quants"),  # a minimum with the upper bits of a scale
    (ENCODE, "step = -10; step <= 10; step++) {\n        float offset", "step = 0; step <= 0; step++) {\n        float offset",
             "test_codecs"),  # K formats without a search
    (ENCODE, "            float inverse = ((float)(end ? high : low) + 0.1f * (float)step) / far;",
             "            float inverse = (float)(end ? high : low) / far;", "test_codecs"),  # the others without one
    (ENCODE, "(!(min > 0) && !below)", "(!(min > 0))", "test_codecs"),  # Q4_1's minimum cannot be taken off
    (ENCODE, "2.0f * (float)step", "0.0f * (float)step", "test_codecs"),  # IQ4_NL without a search
    (ENCODE, "put_fifths(dst + 4, best);", "(void)best;", "test_codecs"),  # Q5_1 of four bits
    (ENCODE, "if (!(min > 0) && !below) {", "if (false) {", "test_codecs"),  # minima below zero, which the format cannot say
    (ENCODE, "t = t > low ? t : low;\n        q[i] = t < high ? t : high;", "q[i] = t > low ? t : low;",
             "test_codecs"),  # numbers beyond the last bit
    (ENCODE, "    for (int i = 0; i < 2 * num; i++) {", "    for (int i = 0; i < 2 * num; i += 2) {",
             "test_codecs"),  # only the nearest f16 as a scale, whose steps are wide where it is small
    (ENCODE, "float cut = x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;", "float cut = x;",
             "test_codecs"),  # an infinite scale
    (ENCODE, "dst[12 + i] = (uint8_t)((s[4] & 15) | (m[4] & 15) << 4);", "dst[12 + i] = (uint8_t)((s[4] & 15) | (m[0] & 15) << 4);",
             "test_codecs"),  # half of the minima are others'
    (ENCODE, "(uint8_t)(q >> 4 << s)", "(uint8_t)(q >> 4 << (7 - s))", "test_codecs"),  # the fifth bits in another order
    (QUANTIZE, "if (!job->config->pure && ((head && small) || mixed))", "if (!job->config->pure && mixed)",
               "test_quantize"),  # the head as small as the rest
    (QUANTIZE, "job->model.tied ? WEIGHT_EMBED : WEIGHT_HEAD", "WEIGHT_HEAD",
               "test_quantize"),  # a tied head is not seen
    (QUANTIZE, "(layer - eighth) % 3 == 2", "layer % 3 == 2", "test_quantize"),  # a mixture's thirds begin elsewhere
    (QUANTIZE, "if (t->view.ndim < 2 ||", "if (t->view.ndim < 1 ||", "test_quantize"),  # norms quantised
    (QUANTIZE, "        if (x[i] > limit || x[i] < -limit) {", "        if (x[i] > limit) {",
               "test_quantize"),  # what is too far below zero is cut in silence
    (TENSOR_READ, "if (i < atomic_load(&r->bad)) {", "{", "test_tensor_read"),  # another mistake than the first of the file
    ("engine/models/gguf_split.c", "no != s->num || of != count", "of != count", "test_gguf_split"),  # another part in its place
    ("engine/models/gguf_split.c", "tensor->offset += s->starts[i];", "", "test_gguf_split"),  # every part begins where the first does
    (HF + "recipe.c", "i / 2 + (i % 2 ? d / 2 : 0)", "i", "test_folder"),  # rows of q and k as the folder has them
    (HF + "recipe.c", "f * factor + p->plus;", "f * factor;", "test_folder"),  # Gemma's norms less one
    (HF + "recipe.c", "r / matrix * 2 * matrix + matrix + r % matrix", "r / matrix * 2 * matrix + r % matrix", "test_json_arch"),  # gate as up
    (HF + "recipe.c", "(head % groups * each + head / groups)", "head", "test_json_arch"),  # value heads group by group
    (HF + "recipe.c", "return c->state_factors[i];", "return 1;", "test_json_arch"),  # Falcon-H1's multipliers
    (HF + "recipe.c", "(float)-exp((double)f)", "f", "test_json_arch"),  # A_log as it is
    (HF + "safetensors.c", "t->bytes > size - t->at", "false", "test_folder"),  # a tensor beyond the end of its file
    (HF + "shards.c", "!memchr(t.data, '/', t.len)", "true", "test_folder"),  # an index that leads out of the folder
    (HF + "files.c", "if (!link_is_allowed(d, target)) {", "if (false) {", "test_folder"),  # and a link
    (HF + "config.c", "|| !hf_key_is_suspect(name)", "|| true", "test_folder"),  # unknown mathematics
    (HF + "dequantize.c", "row / g->rows - b->first", "row - b->first", "test_folder_quant"),  # another block's scale
    (HF + "dequantize.c", "if (half_to_float(half) != scale && scale == scale)", "if (false)", "test_folder_quant"),  # a scale that is rounded
    (HF + "dequantize.c", "row % 2 * 4 + row % 8 / 2", "row % 8", "test_json_arch"),  # AWQ's rows in order
    (HF + "dequantize.c", "v += q->less_one;", "v += 0;", "test_folder_quant"),  # GPTQ's zero points as they are stored
    (HF + "dequantize.c", "q->less_one && v == most", "false", "test_folder_quant"),  # one that overflowed
    (HF + "dequantize.c", "b->group[i] >= (uint64_t)q->num_scales", "false", "test_folder_quant"),  # a group beyond the last
    (HF + "dequantize.c", "if (blocks && b->group[i] != in_order)", "if (blocks && false)", "test_folder_quant"),  # an order that is not said
    (HF + "dequantize.c", "q->divides ? scale / b->global : scale * b->global", "scale / b->global", "test_folder_quant"),  # NVFP4 of modelopt
    (HF + "recipe.c", "end = end < last ? end : last;", "end = end < last ? end : end;", "test_folder"),  # a band of two matrices
    (HF + "recipe.c", "part_row(c, 1, r - keys / 2)", "part_row(c, 1, r)", "test_json_arch"),  # Qwen3 Next: keys of other groups
    (HF + "config_rope.c", "implied = all != 0 ? 1 : implied;", "", "test_json_arch"),  # DeepSeek: mscale in angles, too
    (HF + "config_layers.c", "(experts != 128)", "(experts != 64)", "test_folder"),  # Llama 4: norms of heads
    (HF + "folder.c", "if (!model_file_add_meta(&d->file, i)) {", "if (!model_file_add_meta(&d->file, i) && false) {", "test_folder"),  # two keys of one meaning
    (HF + "places.c", "f->prefix ? f->prefix : \"model.\",\n", "\"x.\",\n", "test_folder"),  # a missing tensor in words of nobody
    (HF + "quantized.c", "if (blocks && small)", "if (blocks)", "test_folder_quant"),  # int8 with zero points in int8
    (HF + "quantized.c", "(q->block_cols == cols || q->block_cols % FP8_COLS == 0)", "true", "test_folder_quant"),  # FP8 of 64 columns with the scale of the first
    (HF + "dequantize.c", "scale_of(b, scales, b->group[at])", "scale_of(b, scales, 0)", "test_folder_quant"),  # FP8: the first block's scale
    (TENSOR_READ, "(p[k] & 0x7f) == 0x7f", "p[k] == 0x7f", "test_folder_quant"),  # FP8: a NaN with a sign
    (WEIGHTS, "dtype_block(DTYPE_FP8) * l->targets[0].shard.world", "dtype_block(DTYPE_FP8)", "test_weights"),  # FP8 is cut inside a block
    ("lib/json/jdoc.c", "depth >= JDOC_MAX_DEPTH", "depth >= 1 << 20", "test_jdoc"),  # a header as deep as it likes
    (TENSOR_READ, "model_file_place(f, t->offset + start + at, place)", "model_file_place(f, t->offset + 0 * start + at, place)",
     "test_tensor_read"),  # a place in the piece as one in the tensor
    (CGROUP, "(list[n] == ',' || list[n] == 0)", "true", "test_cpus"),  # cpuset's group for cpu's
    (CGROUP, "        *last = 0;\n", "        return;\n", "test_cpus"),  # not the groups around ours
    (PROCESSORS, "time < period ? 1 : ", "", "test_cpus"),  # no processor at all for half of one's time
    (PROCESSORS, "time > 0 && period > 0", "time > 0", "test_cpus"),  # so much time in no period
    (QUANTIZE, "    if (job.temporary[0])\n        unlink(job.temporary);\n", "", "test_quantize"),  # half files stay
    (QUANTIZE, "in.st_dev == out.st_dev && in.st_ino == out.st_ino", "strcmp(c->in, c->out) == 1",
               "test_quantize"),  # a file may be written over itself
    (QUANTIZE, "if (kv == meta_find(job->f, job->own[k].name))", "if (k > 0 && kv == meta_find(job->f, job->own[k].name))",
               "test_quantize"),  # the file says it is of the old type
    (QUANTIZE, "atomic_fetch_add(&w->next, w->share)) < w->rows", "atomic_fetch_add(&w->next, w->share + 1)) < w->rows",
               "test_quantize"),  # rows between the shares are left out
    (HF + "config_each.c", "flags[i] = (i + 1) % step == 0;", "flags[i] = i % step == 0;", "test_json_transformers"),  # other layers have experts
    (HF + "config_each.c", "return mark(r, \"moe_layers\", some, flags, 1)", "return mark(r, \"moe_layers\", some, flags, 0)", "test_json_transformers"),  # Llama 4's list of experts
    (HF + "config_each.c", "flags[i++] = rotates == 1;", "flags[i++] = rotates == 0;", "test_json_transformers"),  # the layers that rotate are those that do not
    (HF + "config_each.c", "flags[i++] = sparse;", "flags[i++] = true;", "test_json_transformers"),  # dense layers of mlp_layer_types
    (HF + "config_each.c", "found[0] > 0 ? found[0] : r->c->window_dim", "r->c->window_dim", "test_json_transformers"),  # Gemma 4's heads of layers without a window
    (HF + "config_rope.c", "local->dict = jdoc_get(f.j, f.v, \"sliding_attention\")", "local->dict = NULL", "test_json_transformers"),  # a base for layers with a window
    (HF + "layout.c", "!p->name->either ||", "true ||", "test_json_transformers"),  # Qwen3-VL's experts as transformers 5 stores them
    (HF + "config_layers.c", "|| jdoc_is(types.j, e, \"linear_attention\")", "", "test_json_transformers"),  # what transformers 5 calls recurrent layers
    (HF + "places.c", "{\"mtp_emb_norm.0\", .ours = \"nextn.enorm\"}", "{\"mtp_emb_norm.0\", .ours = \"nextn.hnorm\"}", "test_json_mtp"),  # ERNIE's layer lacks a norm
    (HF + "places.c", "{{\"norm\", .ours = \"ffn_norm\"},", "{{\"norm\", .ours = \"attn_norm\"},", "test_json_mtp"),  # two norms of Nemotron 3's layer are one
    (HF + "places.c", "\"mtp_layers.\"", "\"mtp_layer.\"", "test_json_transformers"),  # MiMo's layer of speculation
    (HF + "config.c", "one ? 1 : r->c->heads", "1", "test_json_transformers"),  # Falcon with keys and values for each head
    (HF + "recipe.c", "p->rows == ROWS_QKV && head >=", "p->rows == ROWS_QKV && head >", "test_json_transformers"),  # Ling 1: the first head of values is turned, too
    (HF + "config.c", "f->of_code && classes", "false && classes", "test_folder_config"),  # Ling 2 by the model_type of Ling 1
    (HF + "config_each.c", "return (size + 255) / 256 * 256;", "return size;", "test_json_transformers"),  # DeciLM's sizes as they come out
    (HF + "config_each.c", "attends ? (int32_t)(heads / group) : 0;", "attends ? (int32_t)group : 0;", "test_json_transformers"),  # as many keys as a group has queries
    (HF + "config_each.c", "bool found = is_off(j, name + 1);", "bool found = is_off(j, name + 1) || true;", "test_folder_config"),  # a matrix in place of a feed-forward
    (HF + "config_each.c", "softmax ? 1 : 2", "2", "test_json_transformers"),  # SmallThinker by sigmoid in any case
    (HF + "config_layers.c", "softmax ? 3 : 2", "softmax ? 1 : 2", "test_json_transformers"),  # Cohere 2: softmax of all experts
    (HF + "folder.c", "parts[p].name);", "parts[0].name);", "test_json_transformers"),  # xIELU: all parameters are the first
    (WEIGHTS, "        in &= a != NULL;\n", "        in &= true;\n", "test_parts_config"),  # a norm for attention that a layer lacks
    (HF + "config.c", "r->c->ungrouped && k->ours", "false && k->ours", "test_json_transformers"),  # groups of a greedy choice of experts
    # ---- wheels for pip
    (WHEEL, "    if others:\n", "    if False:\n", "test_wheel.py", "of_this_system"),  # a program that starts on this system alone
    (WHEEL, "    if needs > NEWEST:\n", "    if False:\n", "test_wheel.py", "newer_library"),  # a tag that says less than the program needs
    (WHEEL, "max(OLDEST, *(", "max(*(", "test_wheel.py", "installs"),  # a tag that pip does not know
    (WHEEL, "0o100755 if", "0o100644 if", "test_wheel.py", "installs"),  # a program that may not run
    (WHEEL, "zipfile.ZipInfo(path, date)", "zipfile.ZipInfo(path, time.gmtime()[:6])", "test_wheel.py", "equal_files"),  # the time of packing is in it
    (WHEEL, ".rstrip(b\"=\")", "", "test_wheel.py", "record"),  # digests that RECORD has otherwise
    (WHEEL, "if \"LICENSE\" in p.name or \"copyright\" in p.name:", "if \"LICENSE\" in p.name:", "test_wheel.py", "installs"),  # without the licences of what is linked in
]
