"""Mutants: the cache, the scheduler, requests, the engine around a step. tests/mutate.py says what a row is."""

KV = "engine/kv_cache.c"
KV_H = "include/kv_cache.h"
KV_GROUP = "include/kv_group.h"
KV_HASH = "engine/kv_hash.c"
KV_SPANS = "engine/kv_spans.c"
SCHED = "scheduler/scheduler.c"
POLICY = "scheduler/policy.c"
QUEUES = "scheduler/queues.c"
REQUEST = "scheduler/request.c"
SAMPLER = "kernels/cpu/sampler.c"
DETOK = "engine/text/detok.c"
BATCH = "engine/batch.c"
ENGINE = "engine/engine.c"
POOLING = "engine/pooler.c"
FORWARD = "engine/forward.c"
MASKS = "engine/mask_worker.c"
RANKS = "engine/ranks/ranks.c"
SERVICE = "scheduler/service.c"
SEGMENTS = "engine/store/segments.c"
STORE = "engine/store/kv_store.c"
CRC = "base/crc32c.c"
OBSERVERS = "scheduler/step_observers.c"
VIEW = "scheduler/view.c"
RECORD = "scheduler/record.c"
TEXT_ENCODE = "engine/text/text_encode.c"
PACE = "scheduler/pace.c"
DRAFTING = "scheduler/drafting.c"
DRAFTER = "scheduler/drafter.c"
LENGTH = "scheduler/draft_length.c"
DRAFT_MODEL = "scheduler/draft_model.c"
WEIGHT = "kernels/cpu/weight.c"
CUDA = "kernels/cuda/%s"

ROWS = [
    # ---- KV cache --------------------------------------------------------------------------------------------
    (KV, "hash_equal(kv->blocks[id].hash, h) &&\n                              block_holds(kv, id, tokens)))",
         "hash_equal(kv->blocks[id].hash, h)))", "test_kv_cache"),  # trust the hash
    (KV, "b->prev = b->published ? kv->free_tail : KV_NONE;\n    b->next = b->published ? KV_NONE : kv->free_head;",
         "b->prev = KV_NONE;\n    b->next = kv->free_head;", "test_kv_cache"),  # youngest evicted first
    (KV, "    if (b->published) {\n        if (kv->watch)", "    if (false) {\n        if (kv->watch)", "test_simulator"),  # reuse without eviction
    (KV, "int full = num_computed / c->block_size;", "int full = kv_blocks_for(kv, num_computed);",
         "test_simulator"),  # publish a block that is not full
    (KV, "    free_unlink(kv, id);\n    kv->num_cached[group]--;",
         "    kv->num_cached[group]--;", "test_kv_cache"),  # a hit stays on the free list
    (KV, "    if (kv_find(kv, b->hash, b->group, tokens) != KV_NONE)\n        return;\n",
         "", "test_kv_cache"),  # publish the same block twice
    (KV, "for (; seq->num_hashed < full; seq->num_hashed++) {", "for (seq->num_hashed = 0; seq->num_hashed < full; seq->num_hashed++) {",
         "test_simulator"),  # chain from the wrong parent
    (KV, "    if (!seq || !seq->hashes)\n", "    if (true)\n", "test_prompt_hashes"),  # a prompt is hashed again and again
    (KV, "    seq->num_hashes = old.num_hashes;\n", "", "test_prompt_hashes"),  # a match that is undone forgets them
    (KV, "(seq->num_hashes == 0 || !hash_equal(seq->hashes[0], parent))", "seq->num_hashes == 0", "test_kv_cache"),  # those of the first root stay
    (KV, "i >= seq->num_hashes || !hash_equal(seq->hashes[i], parent)", "i >= seq->num_hashes", "test_kv_cache"),  # another's block behind other tokens
    (KV_HASH, "~kv->config.key[1]", "kv->config.key[1]", "test_kv_cache"),  # a salt could imitate a block
    (KV_HASH, "    sip_word(&s, parent.lo);\n    sip_word(&s, parent.hi);\n    for", "    (void)parent;\n    for",
         "test_simulator"),  # blocks of another prefix that hold the same tokens
    (KV, "            kv->num_cached[g]++;\n            free_relink(kv, id);", "            kv->num_cached[g]++;\n            free_append(kv, id);",
         "test_kv_cache"),  # a failed admission moves entries
    (KV, "    kv->num_cached[group]--;\n    kv->num_active[group]++;\n}", "}", "test_simulator"),  # a hit counts as cached
    (KV, "        kv->num_cached[b->group]--;\n", "", "test_simulator"),  # an evicted page counts as cached
    (KV, "kv->blocks[id].parent = parent;", "kv->blocks[id].parent = seq->hash.lo;", "test_view"),  # a page is its own parent
    ("scheduler/scheduler.c", "        for (int j = 0; j < n - 1; j++)\n            s->stats.accepted_at[j]++;\n", "", "test_scheduler"),  # no draft was right at any place
    ("scheduler/policy.c", "s->stats.lost += (uint64_t)(r->num_lost - r->num_computed);", "s->stats.lost += (uint64_t)r->num_lost;", "test_scheduler_blocks"),  # what the cache gave back is lost, too
    ("scheduler/predict.c", "norm += x[i] * px[i];", "norm = x[i] * px[i];", "test_predict"),  # a gain of the last term alone
    ("scheduler/predict.c", "budget -= n;", "budget = budget;", "test_predict"),  # a step without a bound
    ("scheduler/predict.c", "num_prompt - num_cached, 1, num_cached", "num_prompt, 1, 0", "test_predict"),  # a hit costs what a miss does
    ("engine/kv_explain.c", "same > e->same && ", "", "test_view"),  # the last block, not the nearest
    ("engine/kv_explain.c", "past->hash.lo == h.lo && ", "", "test_view"),  # another block was evicted
    (VIEW, "t->ids[i], index, r->id);", "t->ids[i], 0, r->id);", "test_view"),  # the first request owns all
    (KV, "kv->blocks[id].group == group && ", "", "test_kv_cache"),  # a page of another group
    (KV, "served &= i + 1 - run[g] <= kv_first_served(c, g, i + 1);\n            more &= c->groups[g].kind != KV_FULL || id != KV_NONE;", "served = i + 1 - run[g] <= kv_first_served(c, g, i + 1);\n            more &= c->groups[g].kind != KV_FULL || id != KV_NONE;", "test_kv_cache"),  # a hit that one group serves
    (KV, "run[g] = id == KV_NONE ? 0 : run[g] + 1;", "run[g] = id == KV_NONE ? run[g] : run[g] + 1;",
         "test_kv_cache"),  # a hit over a gap
    (KV, "more &= c->groups[g].kind != KV_FULL || id != KV_NONE;", "more &= id != KV_NONE;",
         "test_kv_cache"),  # the search ends at what a window gave back
    (KV, "        if (served) {\n            best = i + 1;", "        if (served && best == 0) {\n            best = i + 1;",
         "test_kv_cache"),  # the first hit that every group serves
    # ---- KV cache: windows
    (KV_GROUP, "% window : window - 1;", "% window : window - 2;", "test_kv_cache"),  # a window one token too narrow
    (KV_GROUP, "kv_first_seen(position, window, chunked) / KV_TILE * KV_TILE", "kv_first_seen(position, window, chunked)", "test_kv_cache"),  # part of a tile is given back
    (KV, "case KV_WINDOW: return first_kept(c, g, num_blocks * c->block_size);",
         "case KV_WINDOW: return 0;", "test_kv_cache"),  # a hit needs blocks that no window shows
    (KV, "case KV_WINDOW: return first_kept(c, g, num_blocks * c->block_size);",
         "case KV_WINDOW: return num_blocks * c->block_size < c->groups[g].window ? 0 : num_blocks - c->groups[g].window / c->block_size;",
         "test_kv_cache"),  # a hit lacks the rest of the window's first tile
    ("include/kv_group.h", "chunked && window > 0 ? position % window : window - 1;", "window - 1;", "test_canonical"),  # a chunk is a window
    ("include/kv_group.h", "position % window :", "position % window + 1 :", "test_canonical"),  # a chunk begins a token early
    (KV, "keep = first_kept(c, g, position);", "keep = position / c->block_size;",
         "test_simulator"),  # blocks are given back that the window shows
    (KV, "keep = first_kept(c, g, position);", "keep = 0;",
         "test_kv_cache"),  # a window keeps every block
    (KV, "+ (KV_TILE - 1) + c->max_ahead, size", "+ (KV_TILE - 1), size", "test_simulator"),  # steps in flight need no blocks of a window
    (KV, "pages += min_int(blocks, window_blocks(c, g)); break;", "pages += blocks; break;", "test_kv_cache"),  # a request is refused that a window has room for
    (KV, "(span + 2 * (size - 1)) / size", "(span + size - 1) / size", "test_kv_cache"),  # a window begins with a block
    (SCHED, "kv->config.max_ahead < depth * config->max_step_tokens", "kv->config.max_ahead < config->max_step_tokens",
            "test_scheduler"),  # more steps in flight than a window has blocks for
    # ---- KV cache: states
    (KV, "seq->restores = kv->has_state && best > 0;", "seq->restores = false;", "test_simulator"),  # a hit without its state
    (KV, "        if (seq->saves)\n            moves[n++] = (struct kv_move){.from = from, .to = t->saved};\n", "",
         "test_simulator"),  # a state is not saved
    (KV, "seq->rolls_back ? t->saved : t->live", "t->live", "test_simulator"),  # a state holds rejected drafts
    (SCHED, "if (n < 1 + it->num_drafts && s->kv->has_state)", "if (false)", "test_simulator"),  # nor is it asked to roll back
    (KV, "            moves[n++] = (struct kv_move){.from = from, .to = t->live};", "            t->live = from;",
         "test_simulator"),  # a sequence writes the snapshot that it found
    (KV, "moves[n++] = (struct kv_move){.from = from, .to = t->ids[entry]};", "moves[n++] = (struct kv_move){.from = t->live, .to = t->ids[entry]};",
         "test_kv_cache"),  # a snapshot of what rejected drafts left
    (KV, "if (seq->num_hashed == entry + 1)", "if (false)", "test_kv_cache"),  # a snapshot under no hash
    (KV, "c->groups[g].kind == KV_STATE && i < (num_computed - 1) / c->block_size; i++)", "c->groups[g].kind == KV_STATE && i < 0; i++)",
         "test_kv_cache"),  # snapshots are not published
    (KV, "i < (num_computed - 1) / c->block_size; i++)", "i < num_computed / c->block_size; i++)",
         "test_simulator"),  # a snapshot is published before it is written
    (KV, "kv_available(kv) >= spare + num_states(kv);", "kv_available(kv) >= num_states(kv);", "test_kv_cache"),  # snapshots take what running requests need
    (KV, "position - seq->snapshot_at >= c->snapshot_tokens", "true", "test_kv_cache"),  # a snapshot of every block
    (KV, "position - seq->snapshot_at >= c->snapshot_tokens", "false", "test_scheduler_blocks"),  # none behind the prompt, nor do drafts end there
    (KV, "position > seq->saved_at", "position >= seq->saved_at", "test_simulator"),  # a saved state goes before it is copied back
    (KV, "    if (kv_available(kv) < num_states(kv))\n        return false;\n", "", "test_kv_cache"),  # a saved state takes a reserved page
    (POLICY, "        end = last;\n", "        end = end;\n", "test_simulator"),  # no snapshot where the prompt's end is
    (POLICY, "p->moves + p->num_moves);", "p->moves);", "test_simulator"),  # moves of one request over those of another
    (POLICY, "    plan_moves(s, p);\n    s->next_plan++;", "    s->next_plan++;", "test_simulator"),  # a plan without its moves
    (KV, "pages += 1 + c->share; break;", "pages += 1; break;", "test_kv_cache"),  # a hit has no page to copy its state to
    # ---- KV cache: reservations
    (KV, "            b->exclusive = b->ref == 1;", "            b->exclusive = true;", "test_kv_cache"),  # shared blocks count as one sequence's
    (KV, "            if (id != KV_NONE && kv->blocks[id].exclusive)\n                id = KV_NONE;\n", "",
         "test_simulator"),  # a block that a reservation counts on is shared
    (KV, "own += kv->blocks[t->ids[i]].ref == 1;", "own++;", "test_kv_cache"),  # a reservation counts on blocks that others share
    (KV, "        seq->reserved++;\n        kv->num_reserved++;\n", "", "test_simulator"),  # what a window gives back is not promised again
    (KV_H, "return kv->num_free - kv->num_reserved;", "return kv->num_free;", "test_simulator"),  # reserved pages are taken
    (KV, "    kv->num_reserved -= seq->reserved;\n", "", "test_simulator"),  # reservations outlive their sequence
    # ---- scheduler -------------------------------------------------------------------------------------------
    (POLICY, "v != s->running.head; v = v->prev", "v; v = v->prev", "test_simulator"),  # the oldest may be preempted
    (POLICY, "        if (v->num_in_flight > 0) {\n            *deferred_victim = v;\n            return false;\n        }\n",
             "        v->num_in_flight = v->num_pending = 0;\n", "test_simulator"),  # preempt what the device still runs
    (POLICY, "s->draining.len > 0 || ", "", "test_scheduler_blocks"),  # preempt though blocks are on their way back
    (POLICY, "(after && !is_fully_reserved(r))", "false", "test_scheduler_blocks"),  # a deferred victim is planned again and again
    (POLICY, "block_size &&\n                  (!s->kv->has_state || r->num_computed < last_boundary(s, r));", "block_size;",
             "test_scheduler_blocks"),  # wait for a snapshot that is there
    (POLICY, "if (!is_fully_reserved(v))\n            return v;", "return v;", "test_simulator"),  # no end of preemptions
    (POLICY, "(is_fully_reserved(r) && !kv_reserve(s->kv, &r->seq, sched_compute_end(r)))", "false",
             "test_simulator"),  # the last start takes no reserve
    (POLICY, "return is_short || s->stats.preemptions != preemptions ? -1 : budget;", "return budget;",
             "test_simulator"),  # start others in a step that preempts
    (POLICY, "int limit = r->num_tokens - 1;", "int limit = r->num_tokens;", "test_simulator"),  # nothing left to sample from
    (POLICY, "budget = min_int(budget, max_chunk);", "budget = budget;", "test_scheduler"),  # streams stall
    (POLICY, "int budget = s->config.max_step_tokens - round.num;", "int budget = s->config.max_step_tokens;",
             "test_simulator"),  # prefills eat the decodes' tokens
    (SCHED, "        sched_list_append(&s->draining, r);\n        return false;\n",
            "        sched_list_append(&s->draining, r);\n        kv_release(s->kv, &r->seq);\n        return false;\n",
            "test_simulator"),  # blocks of a cancelled request return too early
    (POLICY, "c && sched_before(s, c, r); c = c->next", "c; c = c->next", "test_simulator"),  # wait for a younger one
    (POLICY, "if (usable && computed_by_another(s, r)) {", "if (false) {", "test_scheduler_blocks"),  # never wait for another's block
    (POLICY, "from = max_int(it.first, r->num_prompt_logprobs)", "from = it.first", "test_simulator"),  # prompt log-probabilities twice
    (SCHED, "pos >= r->min_tokens && ", "", "test_scheduler"),  # stop before min_tokens
    (POLICY, "if (r->num_pending > 0 && (!s->config.async || request_sees_tokens(r)))",
             "if (r->num_pending > 0 && !s->config.async)", "test_scheduler"),  # penalties run ahead
    (SCHED, "(s->waiting.len > 0 && s->waiting_tokens + r->num_tokens > c->max_waiting_tokens)", "false",
            "test_scheduler"),  # an unbounded queue
    (QUEUES, "if (s->config.policy == SCHED_PRIORITY && a->priority != b->priority)", "if (false)",
            "test_scheduler"),  # priorities ignored
    (POLICY, "kv_unmatch(s->kv, &r->seq);\n            r->num_computed = 0;\n            break;",
             "kv_release(s->kv, &r->seq);\n            r->num_computed = 0;\n            break;",
             "test_scheduler_blocks"),  # a failed admission makes its entries young
    (POLICY, "return n > t->waited || (n == t->waited && t->rest-- > 0);", "return true;", "test_simulator"),  # a plan takes all that decode
    (POLICY, "return n > t->waited || (n == t->waited && t->rest-- > 0);", "return (t->num-- > 0) | (n < 0);",
             "test_simulator"),  # the first in order have every turn
    (POLICY, "    if (budget < 0 && p->num_items == 0 && s->next_plan == s->next_resolve)\n        plan_running(s, p, max_chunk, true);\n", "",
             "test_simulator"),  # whose turn it is waits for blocks of those whose turn it is not
    (POLICY, "if (r->num_pending > 0 && (!s->config.async || request_sees_tokens(r)))",
             "if (r->num_pending > 0 && request_sees_tokens(r))", "test_simulator"),  # a token that is not back is fed in
    (POLICY, "budget = min_int(budget, part < MIN_PART ? MIN_PART : (int)min_int64(part, INT32_MAX));", "",
             "test_simulator"),  # one plan takes a whole prompt
    (SCHED, "            if (r->num_in_flight == 0) {\n", "            if (r->num_in_flight >= 0) {\n",
            "test_simulator"),  # freed once for each plan
    (POLICY, "decoding += decodes;", "decoding++;", "test_scheduler"),  # prompts that go on count as decodes
    (SCHED, "{&s->draining, &s->running, &s->waiting}", "{&s->running, &s->running, &s->waiting}",
            "test_scheduler"),  # a dead device keeps what had ended
    # ---- the chain of samplers
    (SAMPLER, "(steps < mean ? mean - steps : steps - mean)", "steps", "test_sampler"),  # typical is top-p
    (SAMPLER, "(s->key[i] == key && i >= last.index)", "(s->key[i] == key && i > last.index)", "test_sampler"),  # XTC takes the last, too
    (SAMPLER, "KEEP(s->cand_prob[i] >= least || i == first);", "KEEP(s->cand_prob[i] >= least);", "test_sampler"),  # Mirostat leaves nothing
    (SAMPLER, "mean * mean, 0)) / 256;", "mean * mean, 0));", "test_sampler"),  # sigma of other units
    (SAMPLER, "out->id = has_filter(s, row) ? s->id[at] : sample_unfiltered(s, point);", "out->id = s->id[at];", "test_sampler"),  # who asks for probabilities gets another token
    (SAMPLER, "bool left = at >= 0 && s->cand_prob[at] > 0;", "bool left = at >= 0;", "test_sampler"),  # a token without a probability is left
    (CUDA % "sample_chain.cuh", "bool left = (mass_t)i < n;", "bool left = (mass_t)i <= n;", "test_emu_sample"),  # one more than are left
    (SAMPLER, "row->num_logprobs >= 0 || logits_row_has_chain(row))", "row->num_logprobs >= 0)", "test_ranks"),  # ranks sample from a part
    ("kernels/cuda/sample_chain.cuh", "id > c.far_id", "id >= c.far_id", "test_emu_sample"),  # typical loses the last of its tokens
    ("scheduler/request.c", "    if (r->sampling.mirostat_tau > 0) // a draft's surprise is known only when its token is\n        room = 0;\n", "",
                            "test_scheduler"),  # drafts are judged by an old surprise
    # ---- what a request's own tokens say
    ("engine/token_history.c", "len = len < reach ? len : reach;", "", "test_token_history"),  # breakers break nothing
    ("engine/token_history.c", "? z[i - from] : to - i) : 0;", "? z[i - from] : z[i - from]) : 0;", "test_token_history"),  # a match longer than seen
    ("engine/token_history.c", "if (scratch[i] >= known)", "if (scratch[i] > known)", "test_token_history"),  # n-grams one longer
    ("engine/token_history.c", "        c->list[i].add = 0;", "        c->list[i].add += 0;", "test_token_history"),  # old penalties stay
    # ---- requests of the API
    (SAMPLER, "(logits[i] == logits[id] && i < id)", "(logits[i] == logits[id] && i <= id)", "test_sampler"),  # a rank one too low
    (SAMPLER, "entries + row->entry_end, row->num_wanted", "entries + row->entry_start, row->num_wanted",
              "test_sampler"),  # log-probabilities of tokens that entries adjust
    (DETOK, "bool may_end = d->min_tokens == 0;", "bool may_end = d->min_tokens <= 1;", "test_detok"),  # a stop one token early
    (DETOK, "d->stops[s].matched = d->stops[s].fail[d->stops[s].len];", "d->stops[s].matched = 0;",
            "test_detok"),  # a stop that begins in one that ended nothing is missed
    (DETOK, "if (d->stop_index >= 0 && !d->keep_stop)", "if (d->stop_index >= 0)", "test_detok"),  # the stop is cut off
    ("server/requests/seed.h", "splitmix64(splitmix64(seed) + (uint64_t)j)", "splitmix64(seed + (uint64_t)j)",
                      "test_server_openai"),  # a choice is another seed's
    ("server/dialects/openai_parse.c", " && r->seed != -1", "", "test_server_openai"),  # -1 is a seed
    # ---- spans that are no tokens
    (KV, "    return kv_chain(kv, parent, kv_block_names(kv, seq, tokens, i));", "    return kv_chain(kv, parent, tokens + first);",
         "test_spans"),  # placeholders count
    (KV, "        parent = kv_span_chain(kv, parent, span, from - first, from - span->first, to - from);\n", "        (void)from, (void)to;\n",
         "test_spans"),  # a block knows no more of a span than the names of its rows in it
    (KV_HASH, "    sip_word(&s, (uint32_t)skip | (uint64_t)(uint32_t)span->len << 32);", "    sip_word(&s, (uint32_t)skip);",
         "test_simulator"),  # a whole span of another length
    (KV_HASH, "sip_start(~kv->config.key[0], kv->config.key[1])", "sip_start(kv->config.key[0], kv->config.key[1])",
         "test_spans"),  # a salt could imitate a span
    (KV_SPANS, "    return (token_id)(0x80000000u | ", "    return (token_id)(", "test_spans"),  # a name could be an id
    (KV, "    seq->num_spans = old.num_spans;\n", "", "test_simulator"),  # a match that is undone forgets them
    (POLICY, "    if (!span || !span->whole || span->first > last)", "    if (true)", "test_simulator"),  # chunks cut whole spans
    (POLICY, "    if (span->first > first && span->first + span->len > last + 1)", "    if (span->first > first)",
             "test_spans"),  # a span that fits is left for the next step
    (POLICY, "    return n <= room ? n : 0;", "    return n + 0 * room;", "test_simulator"),  # a step of more tokens than there may be
    (POLICY, "            left -= decode ? 0 : n;\n", "", "test_simulator"),  # two spans share the room of one
    (POLICY, "    if (drafts > 0 && !whole)", "    if (drafts > 0)", "test_simulator"),  # drafts take the room of a span
    (POLICY, "        if (n == 0 || outstanding + kv_missing(", "        if (outstanding + kv_missing(", "test_simulator"),  # one starts with no token
    (SCHED, "config->max_step_tokens - config->max_running + 1, end", "config->max_step_tokens + 1, end", "test_simulator"),  # a span for which there is never room
    ("include/request.h", "        row += spans[i].len;\n", "        row += i;\n", "test_spans"),  # rows of another span
    (REQUEST, "p->sampling.mirostat_tau <= 0 && p->num_spans == 0)", "p->sampling.mirostat_tau <= 0)", "test_spans"),  # a draft model reads placeholders
    (RECORD, "        s->whole = number(c, 0, 1) != 0;\n        s->hash.lo = number64(c);", "        s->whole = number(c, 0, 1) != 0;\n        number64(c);",
             "test_spans"),  # replayed with half of a hash
    (KV, "index_insert(kv, t->ids[i], kv_block_names(kv, seq, tokens, i), KV_PUBLISHED);", "index_insert(kv, t->ids[i], tokens + (size_t)i * (size_t)c->block_size, KV_PUBLISHED);",
         "test_embeds"),  # snapshots behind spans are never found
    (BATCH, "            v->embed_rows[E++] = t + at + i - item->first;", "            v->embed_rows[E++] = 0 * t + at + i - item->first;",
            "test_batch"),  # rows of the step's first item
    (BATCH, "        at = at > seq->spans[s].first ? at : seq->spans[s].first;\n", "        at = seq->spans[s].first;\n", "test_batch"),  # a chunk begins with all of the span
    ("engine/step_layout.c", "    step->num_embeds = c->embeds;\n", "", "test_embeds"),  # no row brings an embedding
    ("engine/settings.c", "if (!wanted || model->layer_embed == 0)", "if (true)", "test_embeds"),  # half of the embeddings of a token
    ("engine/ranks/step_wire.c", " && (e == 0 || p->embed_rows[e] > p->embed_rows[e - 1]);", ";", "test_comm_processes"),  # two embeddings of a row
    ("engine/ranks/step_wire.c", "    COPY(a.embeds, s->embeds, (size_t)s->num_embeds * (size_t)model->hidden);\n", "", "test_comm_processes"),  # embeddings stay behind
    ("kernels/cpu/cpu.c", "    while (e < step->num_embeds && step->embed_rows[e] < begin)\n        e++;\n", "", "test_embeds"),  # a thread begins with another's
    ("kernels/cpu/cpu.c", "embed_row(job, t++, step->embeds + (size_t)e *", "embed_row(job, t++, step->embeds + 0 *", "test_layers"),  # all bring the first
    (CUDA % "rows.cu", "        float v = kd_mul(from[i], a.all.factor);", "        float v = from[i];", "test_emu_kinds"),  # what a row brings is not scaled
    (CUDA % "step.c", "dev->max_graphs > 0 && step->num_embeds == 0 &&", "dev->max_graphs > 0 &&", "test_emu_embeds"),  # a CUDA graph looks the ids up
    # ---- pages in host memory
    ("include/backend.h", "           (v->from_tier == KV_DEVICE || v->to_tier == KV_DEVICE);", "           true;", "test_comm_processes"),  # between two pages of the host
    ("engine/ranks/step_wire.c", "        ok &= backend_can_move(l, &p->moves[m]);\n", "        ok &= p->moves[m].from >= 0;\n", "test_comm_processes"),  # pages that there are not
    ("kernels/ref/ref_kv.c", "(tier == KV_HOST ? dev->host_kv : dev->kv)", "dev->kv + (tier == KV_HOST)", "test_host_pages"),  # the host's pages are the device's
    ("kernels/cpu/kv.c", "    return tier == KV_HOST ? (char *)page_in(dev, tier, page) + kv_page_bytes(dev)", "    return tier == KV_HOST ? (char *)page_in(dev, tier, page)", "test_host_pages"),  # scales over numbers
    (CUDA % "kv.c", "i < a->num; i++, host += a->page_bytes) {", "i < a->num; i++) {", "test_emu_kinds"),  # pieces of a page over each other
    # ---- grids
    (KV_HASH, "    sip_word(&s, (uint32_t)span->grid[0] | (uint64_t)(uint32_t)span->grid[1] << 32);", "    sip_word(&s, 0);",
              "test_simulator"),  # another grid's keys
    (KV_SPANS, "    for (int i = 0; i < s; i++)\n        back += seq->spans[i].len - extent_of(&seq->spans[i]);\n", "",
               "test_spans"),  # a chunk behind a grid begins without its offset
    (KV_SPANS, "            back += span->len - extent_of(span);\n", "", "test_spans"),  # text behind a grid goes on by its rows
    (KV_SPANS, "row / plane, cell[1] = row % plane / columns", "row / plane, cell[1] = row / columns", "test_spans"),  # lines of all frames
    (BATCH, "has_spans |= r->seq.num_spans > 0;", "has_spans |= r->seq.num_spans > 0 && item->first < r->num_prompt;",
            "test_json_arch"),  # the output goes without the offset
    (BATCH, "v->rope_positions + v->query_start[i], (size_t)T)", "v->rope_positions, (size_t)T)", "test_batch"),  # of the last item alone
    (SCHED, "if (span->grid[0] > 0 && !config->has_axes)", "if (false)", "test_spans"),  # a grid that nothing rotates by
    (RECORD, "rows *= s->grid[a] = (int)number(c, 0, s->len);", "rows *= (int)number(c, 0, s->len);", "test_spans"),  # replayed without grids
    ("engine/ranks/step_wire.c", "    COPY(a.rope_positions, s->rope_positions, s->rope_positions ? ROPE_AXES * s->num_tokens : 0);\n", "",
                                 "test_comm_processes"),  # axes stay behind
    ("engine/ranks/step_wire.c", "ok &= is_within(p->rope_positions[a * T + t], p->positions[t]);", "ok &= true;", "test_comm_processes"),  # rows of no table
    ("kernels/rope.h", "i >= s->size[0] + s->size[1] ? 2 : i >= s->size[0]", "i >= s->size[0] + s->size[2] ? 1 : 2 * (i >= s->size[0])",
                       "test_json_arch"),  # width before height
    ("kernels/rope.h", "s->in_turns && i >= 3 * s->size[axis] ? 0 : axis", "axis", "test_json_arch"),  # turns have no end
    ("kernels/cpu/device.h", "rope_axis(&t->sections, i) * step->num_tokens", "0 * step->num_tokens", "test_layers"),  # all pairs by time
    (CUDA % "qkv.cu", "rope_axis(&a.sections, i) * a.rows + row", "rope_axis(&a.sections, i) + ROPE_AXES * row", "test_emu_rows"),  # axes of a row side by side
    (CUDA % "step.c", "g->has_axes == has_axes && ", "", "test_emu_embeds"),  # a CUDA graph of text
    # ---- a plan as a step
    (BATCH, "    if (plan->num_moves > 0)\n        memcpy(v.moves, plan->moves, (size_t)plan->num_moves * sizeof *v.moves);\n", "",
            "test_batch"),  # a step without the moves of its plan
    (BATCH, "memset(ids, 0, (size_t)given_back * sizeof *ids);", "memset(ids, 0xff, (size_t)given_back * sizeof *ids);",
            "test_batch"),  # a device is told of pages that are none
    (BATCH, "state ? &table->live : table->ids + given_back,", "table->ids + given_back,", "test_batch"),  # a state is not the live one
    (BATCH, "= state ? -1 : kv_slot(", "= kv_slot(", "test_batch"),  # slots in pages of states
    (BATCH, "if (out->failed[row] && !b->failed[i])", "if (false)", "test_batch"),  # a sample that is not finite
    (FORWARD, "    if (step->num_moves > 0)\n        ops->kv_copy(dev, step->moves, step->num_moves);\n    if (ops->step_begin(dev, step))\n        return; // a CUDA graph has run the same phases\n",
              "    if (ops->step_begin(dev, step))\n        return;\n    if (step->num_moves > 0)\n        ops->kv_copy(dev, step->moves, step->num_moves);\n",
              "test_batch"),  # a CUDA graph runs before pages are copied
    # ---- drafts
    (BATCH, "out->ids[row] != drafts[row - sample])", "row > sample && out->ids[row - 1] != drafts[row - 1 - sample])",
            "test_drafts"),  # one draft too many is accepted
    (BATCH, "out->ids[row] != drafts[row - sample])", "true)", "test_drafts"),  # no draft is accepted
    (BATCH, "    for (int j = item->num_drafts; j > 0; j--)\n        token_counts_take_back(&r->counts, r->tokens[known + j - 1]);\n", "",
            "test_drafts"),  # penalties count rejected drafts
    (BATCH, "bits + (size_t)j * step_mask_words(b->vocab) : NULL;", "bits : NULL;", "test_drafts"),  # drafts have the mask of the first row
    (BATCH, "mask_job_is_late(m) ? ITEM_LATE", "false ? ITEM_LATE", "test_service"),  # a token without a mask
    (SCHED, "s->kv->has_state ? kv_rollback(s->kv, &r->seq)", "false ? 0", "test_simulator"),  # a state with a token that was none
    (SCHED, "    if (over)\n        sched_start_over(s, r);", "", "test_simulator"),  # likewise without drafts
    (SCHED, "    sched_ready(s, r);\n    if (r->state == REQUEST_RUNNING)", "    if (r->state == REQUEST_RUNNING)", "test_simulator"),  # late for ever
    (SCHED, "if (!r->asked && !r->late &&", "if (!r->asked &&", "test_simulator"),  # a late request is held twice
    (SCHED, "            r->asked = true;\n", "", "test_scheduler_blocks"),  # asked for in each step
    (SCHED, "i < FETCH_AHEAD", "i <= FETCH_AHEAD", "test_scheduler_blocks"),  # too early
    (SCHED, "&& !request_needs_all_rows(r)) {", ") {", "test_scheduler_blocks"),  # fetched for nothing
    (QUEUES, "    r->asked = false;\n", "", "test_scheduler_blocks"),  # computed again where it could be fetched
    (KV, "run[g] = can_be ? run[g] + 1 : 0;", "run[g] = can_hit(kv, h, g, names) ? run[g] + 1 : 0;", "test_kv_groups"),  # nothing is ever fetched
    (KV, "more &= c->groups[g].kind != KV_FULL || can_be;", "more &= can_be;", "test_kv_groups"),  # a window's gap ends the search
    (KV, "i >= kv_first_served(c, g, longest) && kv_find", "kv_find", "test_kv_groups"),  # what a window no longer sees
    (KV, "kv_available(kv) == 0 || kv_find(kv, w->hash", "kv_find(kv, w->hash", "test_kv_groups"),  # a reserved page is taken
    (KV, "|| kv_find(kv, w->hash, w->group, names) != KV_NONE)", ")", "test_kv_groups"),  # two equal entries
    (KV, "    kv->num_active[w->group]--;\n    kv->num_cached[w->group]++;\n    free_append", "    free_append", "test_kv_groups"),  # the counts drift
    (KV, "kv->blocks[id].common = common;\n            if", "if", "test_kv_groups"),  # common blocks count as private
    (KV, "            kv->watch(kv->watch_arg, KV_EVICTED, id);", "            (void)id;", "test_kv_groups"),  # evictions go untold
    ("engine/adapters.c", ".domain = domain_of(a, &file)", ".domain = 1", "test_adapters"),  # adapters hit each other's pages
    (KV, "        kv->blocks[id].retained = false;\n        free_unlink", "        free_unlink", "test_kv_groups", "hangs"),  # passed over for ever
    (KV, "b->retained = b->published && (b->retained || seq->retain);", "b->retained = b->published && b->retained;", "test_kv_groups"),  # evicted as any other
    (KV, "    seq->retain = old.retain;\n", "", "test_kv_groups"),  # forgotten after its first turn
    (SEGMENTS, "        r.group &= ~(uint32_t)RETAINED; // once\n", "", "test_kv_store"),  # moved for ever
    (SEGMENTS, "| (t->retained ? RETAINED : 0)", "", "test_kv_store"),  # dropped as any other
    (CRC, "c = _mm_crc32_u64(c, word)", "c = _mm_crc32_u32((uint32_t)c, (uint32_t)word)", "test_kv_store"),  # half of the bytes
    (CRC, "tables[7 - i][byte]", "tables[i][byte]", "test_kv_store"),  # the other way round
    (SEGMENTS, "same && crc32c(0, t->page, s->page_bytes) == r.page_check", "same", "test_kv_store"),  # wrong bytes
    (SEGMENTS, "memcmp(record + sizeof r, t->tokens,", "memcmp(t->tokens, t->tokens,", "test_kv_store"),  # another prompt's page
    (SEGMENTS, "r.check == record_check(s, at) &&", "", "test_kv_store"),  # pages by damaged records
    (SEGMENTS, "others + 2 * s->segment_bytes", "others", "test_kv_store"),  # DIR grows beyond its bound
    (SEGMENTS, "        move_used(s, own);", "        (void)own;", "test_kv_store"),  # what is in use goes
    (SEGMENTS, "if (segments_has(s, t->hash, t->group))\n        return STATUS_OK;", "", "test_kv_store"),  # written twice
    (SEGMENTS, "    at->used |= has;", "", "test_kv_store"),  # nobody is in use
    (SEGMENTS, "at->dead |= same && st != STATUS_OK;", "", "test_kv_store"),  # damage is read again and again
    (SEGMENTS, "int end = both < MAX_PAGES ? (int)both", "int end = both < MAX_PAGES ? (int)whole", "test_kv_store"),  # records without pages
    (SEGMENTS, "flock(s->lock_file, LOCK_EX | LOCK_NB) == 0", "true", "test_kv_store"),  # two write
    (STORE, "more = n > 0 || !s->closing;", "more = !s->closing;", "test_kv_store"),  # what was posted is lost at the end
    (SEGMENTS, "const uint64_t number = next_number(s);", "const uint64_t number = s->last ? s->last->number + 1 : 1;", "test_kv_store"),  # a file without its other stops writing
    (SEGMENTS, "flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK", "flags | O_CLOEXEC | O_NONBLOCK", "test_kv_store"),  # a link leads out of DIR
    (SEGMENTS, "flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK", "flags | O_CLOEXEC | O_NOFOLLOW", "test_kv_store", "hangs"),  # a pipe is waited for
    (SEGMENTS, "AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))", "AT_SYMLINK_NOFOLLOW) != 0)", "test_kv_store"),  # a folder stops writing
    (SEGMENTS, "if (begins && !make_room(s) && s->last)", "if (false && !make_room(s))", "test_kv_store"),  # DIR stays as large as it was
    (SEGMENTS, "        drop_segment(s, s->last);", "        (void)0;", "test_kv_store"),  # its last segment does
    (SEGMENTS, "return errno ? STATUS_IO : STATUS_FORMAT;", "return STATUS_IO;", "test_kv_store"),  # a file that was cut off is a disk that fails
    (STORE, "writes && more && s->ops->refresh", "n == 0 && writes && more && s->ops->refresh", "test_kv_store", "hangs"),  # a busy reader finds nothing new
    (STORE, "    if (s->notify) // under lock: whoever ends it with kv_store_notify() is not called any more\n        s->notify(s->notify_arg);\n    pthread_mutex_unlock(&s->lock);\n", "    pthread_mutex_unlock(&s->lock);\n    if (s->notify)\n        s->notify(s->notify_arg);\n",
            "test_kv_store"),  # whoever is gone is told
    (KV, "for (int i = num - 1; i >= 0; i--) {\n        free_unlink", "for (int i = 0; i < num; i++) {\n        free_unlink", "test_kv_groups"),  # the first blocks go first
    (KV, "if (id != KV_NONE && kv->blocks[id].ref == 0)\n                kv->seen", "if (id != KV_NONE)\n                kv->seen", "test_kv_groups"),  # pages in use are freed
    (POLICY, "    if (r->late)\n        return 0;", "", "test_simulator"),  # a row is planned before its mask is there
    (POLICY, "        if (r->late) // S16\n            continue;", "", "test_scheduler_blocks"),  # likewise from the queue
    (POLICY, "c->has_next_hash && !c->late &&", "c->has_next_hash &&", "test_simulator"),  # others wait for whom nobody computes
    (MASKS, "    w->unwanted = w->working == r;", "", "test_service"),  # a filter is asked when it is freed
    (BATCH, "f->rollback(f->state, accepted);", "f->rollback(f->state, m->num_drafts);",
            "test_drafts"),  # a filter takes back more than it accepted
    (BATCH, "int sample = b->sample_row[i] >= 0 ? b->sample_row[i] : b->first_row[i + 1];", "int sample = b->first_row[i + 1] - (b->sample_row[i] >= 0);",
            "test_drafts"),  # only the row of the last draft says what comes
    (SCHED, "r->num_computed = r->num_resolved = end + n - 1;", "r->num_computed = r->num_resolved = end + n;",
            "test_scheduler"),  # a rejected draft counts as computed
    (SCHED, "r->num_pending -= 1 + it->num_drafts;", "r->num_pending--;", "test_scheduler"),  # drafts stay pending
    (SCHED, "    r->num_tokens -= r->num_pending;\n    r->num_pending = 0;\n    bool left", "    bool left",
            "test_scheduler"),  # a request that ends keeps pending tokens
    (REQUEST, "r->max_tokens - r->num_tokens - 1;", "r->max_tokens - r->num_tokens;", "test_scheduler"),  # drafts beyond max_tokens
    (REQUEST, "r->filter || r->drafter || r->draft || r->counts", "r->filter || r->draft || r->counts", "test_scheduler"),  # a drafter does not see every token
    (POLICY, "if (pages <= 0 || pages <= room->pages)", "if (true)", "test_scheduler"),  # drafts take blocks that others need
    (POLICY, "room.tokens = (int)min_int64(tokens, ", "room.tokens = (int)min_int64(INT32_MAX, ", "test_simulator"),  # drafts take tokens that prompts may have
    (DRAFTING, "            record_draft(record, o->req);\n", "            (void)record;\n",
              "test_service"),  # drafts are not replayed
    (SERVICE, "- 1 - item->num_drafts + e->index;", "- 1 - item->num_drafts;", "test_service"),  # every token of an item has the first one's log-probability
    (DRAFTING, "(r->filter && !r->filter->rollback) || ", "", "test_service"),  # drafts for a filter that cannot take them back
    # ---- masks beside the step
    (ENGINE, "        now->batch.step.masks_wait = wait_for_masks;\n", "", "test_masks"),  # masks are read before they are there
    (MASKS, "while (w->computed < ticket)", "while (w->computed + 1 < ticket)", "test_masks"),  # a step waits for the masks of the one before
    (ENGINE, "        mask_worker_post(&e->masks, &now->batch);\n", "        mask_worker_post(&e->masks, &now->batch);\n        mask_worker_wait(&e->masks, now->batch.ticket);\n",
             "test_masks"),  # masks hold up the launch
    (ENGINE, "mask_worker_wait(&e->masks, status == STATUS_OK ? step->batch.ticket : e->masks.posted);", "(void)0;", "test_masks"),  # filters are asked after a device failed
    # ---- engine and service
    (ENGINE, "e->num_steps = depth > 2 ? depth : 2;", "e->num_steps = 2;", "test_service"),  # steps in flight over one another
    (OBSERVERS, "    if (plan || in_flight)\n        record_plan(", "    if (plan)\n        record_plan(",
              "test_service"),  # a step that preempted and planned nothing is not replayed
    (SERVICE, "return r->matcher && r->matcher->ends(r->matcher->state, e->token) ? FINISH_STOP : FINISH_NONE;",
              "return FINISH_NONE;", "test_service"),  # a stop string ends nothing
    (SERVICE, "return r->matcher && r->matcher->ends(r->matcher->state, e->token) ? FINISH_STOP : FINISH_NONE;",
              "return r->matcher && r->matcher->ends(r->matcher->state, e->token) ? FINISH_CANCELLED : FINISH_NONE;",
              "test_service"),  # it is called a cancel
    (SERVICE, "        return FINISH_ERROR;\n    if (r->filter &&", "        return FINISH_NONE;\n    if (r->filter &&",
              "test_service"),  # a request goes on with a token that its filter refused
    (SERVICE, "            for (; i + 1 < n && s->events[i + 1].req == r; i++)\n                r->num_tokens -= s->events[i + 1].token >= 0;\n", "",
              "test_service"),  # events of a request that a stop string has ended
    (SERVICE, "r->num_tokens -= s->events[i + 1].token >= 0;", "(void)0;", "test_service"),  # tokens behind a stop string are counted
    (TEXT_ENCODE, "token_id id = s->content ? -1 : control_at(",
                  "token_id id = control_at(", "test_text_encode"),  # a client's words become control tokens
    (TEXT_ENCODE, "if (tokenizer_adds_bos(t) && !has_bos)",
                  "if (tokenizer_adds_bos(t))", "test_text_encode"),  # BOS twice
    (OBSERVERS, "record_plan(o->record, plan, max_chunk);", "record_plan(o->record, plan, o->pace.max_chunk);", "test_service"),  # a change of pace is not replayed
    (OBSERVERS, ".target_ns = depth == 1 ? config->target_itl_ns : 0", ".target_ns = config->target_itl_ns",
              "test_service"),  # plans in flight are timed as if each were alone
    (DRAFTER, "if (len > best) {", "if (len >= best) {", "test_drafter"),  # the oldest of equal matches
    (DRAFTER, "drafts[at + 1 + i - n]", "tokens[n - 1]", "test_drafter"),  # a text that repeats itself stops
    (DRAFTER, "    g->num_indexed = 0;\n", "", "test_drafter"),  # what was indexed before it grew is forgotten
    (DRAFTER, "g->num_indexed < n - 1", "g->num_indexed < n", "test_drafter"),  # the last tokens are found where they are
    (LENGTH, "if (rate > most) {", "if (rate > 0 * most) {", "test_drafter"),  # every draft, whatever it costs
    (LENGTH, "int tried = right < num_drafts ? right + 1 : right;", "int tried = num_drafts;", "test_drafter"),  # drafts behind a wrong one count as wrong
    (LENGTH, "while (known > 0 && !is_known(d, &d->costs[known]))", "while (false)", "test_drafter"),  # rows that were never tried are free
    (LENGTH, "left < 0 || cost_of_catching_up(d, o->behind) > left)", "false)", "test_drafter"),  # a draft model may lose any time
    (LENGTH, " + cost_of_drafting(d, offers, c.num_offers);", ";", "test_drafter"),  # its drafts are free
    (SERVICE, "    drafting_drop(&s->drafting, r);\n", "", "test_draft_model"),  # its pages of an ended request are lost
    (REQUEST, "                                  .sampling = p->sampling};", "                                  .sampling = {.top_p = 1, .repetition_penalty = 1}};",
              "test_draft_model"),  # it does not sample as the request does
    ("engine/engine.c", "        per_block += ranks_kv_block_bytes(e->draft->ranks);\n", "        per_block += 0;\n", "test_draft_model"),  # its pages are beyond the budget
    (DRAFT_MODEL, "    copy->num_computed = copy->num_resolved;\n    return", "    return", "test_json_mtp"),  # it keeps rows of its own
    (DRAFT_MODEL, "keep_row(copy, first + j, result->out, row + j);", "keep_row(copy, first + j, result->out, row);", "test_json_mtp"),  # behind drafts the row of another token
    (DRAFT_MODEL, "copy->mtp_first + copy->num_resolved < first)", "false)", "test_json_mtp"),  # rows that are not kept any more
    (BATCH, "position + r->mtp_first - r->num_prompt", "position - r->num_prompt", "test_mtp"),  # it samples with other random numbers
    (LENGTH, "c->chance[i] *= rate_of(d, &o->req->draft_rate);", "", "test_drafter"),  # each draft as likely as the first
    (LENGTH, "sorted[(n - 1) / 3]", "sorted[n - 1]", "test_drafter"),  # a pause of the machine sets the cost
    (LENGTH, "d->steps - c->measured < (uint64_t)c->retry;", "true;", "test_drafter"),  # what was slow once is never tried again
    (LENGTH, "if (c->count > 0 && c->measured == d->steps) {", "if (false) {", "test_drafter"),  # one pause of the machine counts as many
    (LENGTH, "d->costs[i].count = 0;", "(void)0;", "test_drafter"),  # slow first steps without drafts speak for bad ones
    (LENGTH, "d->lost += lost > 1 && (d->unsure || !known) ? 1 : lost;", "d->lost += lost;", "test_drafter"),  # a slow start stops drafts
    (LENGTH, "if (d->computes_again)", "if (false)", "test_drafter"),  # what states compute again costs nothing
    (LENGTH, "(o->again + o->take)", "o->take", "test_drafter"),  # what is computed again is not computed once more
    (POLICY, "return due ? boundary - computed :", "return due ? MAX_DRAFTS :", "test_scheduler_blocks"),  # drafts pass the place where a snapshot is due
    (POLICY, "bool last = decode || (is_again(r) && n == num_todo(s, r));", "bool last = decode;", "test_scheduler_blocks"),  # states do not draft behind a wrong draft
    (POLICY, "n += is_decoding(s, r) || is_again(r);", "n += is_decoding(s, r);", "test_scheduler_blocks"),  # those that go back do not count as rows
    ("scheduler/drafting.c", "item->first >= item->req->num_prompt", "false", "test_draft_model"),  # a step that computes good drafts again is taken for a prompt's
    (LENGTH, "if (!c->verified && ", "if (false && ", "test_drafter"),  # prompts are read before it is known what verifying takes
    (LENGTH, "c->catching_up == 0 ||", "true ||", "test_drafter"),  # the draft model catches up with all requests at once
    (LENGTH, "if (d->steps < d->paused_until || ", "if (", "test_drafter"),  # bad drafts go on
    (LENGTH, "rows + c.num < bound", "bound > 0", "test_drafter"),  # eight drafts where two are too many
    ("engine/ranks/step_wire.c", "== first + i;", ">= 0;", "test_comm_processes"),  # positions that are not the sequence's
    (PACE, "(left > 2 * decodes ? left : 2 * decodes)", "left", "test_pace"),  # slow decodes starve prompts
    (PACE, "(rest > least ? rest : least)", "rest", "test_pace"),  # prompts for nothing
    (PACE, "if (num_prompt < PACE_MIN_CHUNK)", "if (num_prompt < 1)", "test_pace"),  # a few tokens pay for all weights
    (PACE, "(x - *value) * WEIGHT", "x - *value", "test_pace"),  # one slow step sets the pace
    (PACE, "left = (double)p->target_ns - decodes;", "left = (double)p->target_ns;", "test_pace"),  # decodes take no time
    (PACE, "(double)ns < p->decode_ns : p->token_ns > 0", "false : p->token_ns > 0", "test_pace"),  # one stall, and decodes are slow for ever
    (PACE, "p->token_ns > 0 && num_decode > 0) {", "false) {", "test_pace"),  # decodes that are never alone take no time
    (PACE, "more > 0 ? more * p->token_ns", "more > 0 ? 0", "test_pace"),  # more decodes take no longer
    (RECORD, "p->config.async = number(c, 0, 1) != 0;", "number(c, 0, 1);", "test_replay"),  # replayed without asynchronous scheduling
    (RANKS, "        world->ops->abort(world, \"closed with steps in flight\");\n", "        (void)0;\n",
            "test_ranks", "hangs"),  # the last stage waits for nobody
    # ---- pooling ---------------------------------------------------------------------------------------------
    (POOLING, "r->pooling == POOLING_CLS && n > 0 && first == 0", "r->pooling == POOLING_CLS && n > 0", "test_pooling"),  # the first of the last chunk
    (POOLING, "r->pooling == POOLING_MEAN && first == 0", "false", "test_pooling"),  # what was there before a preemption stays
    (POOLING, "? (float)r->num_prompt : 1", "? 2 : 1", "test_pooling"),  # no mean
    (POOLING, "!last || finish_vector(r, hidden, head) ? ITEM_GOOD", "!last || (finish_vector(r, hidden, head), true) ? ITEM_GOOD", "test_pooling"),  # infinity passes
]
