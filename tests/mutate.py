#!/usr/bin/env python3
"""Breaks the code on purpose, one place at a time, and expects a test to notice.

A test that no mutation kills is decoration. Each row of MUTATIONS is one mutant:

    (file, exact old text, new text, test program that must fail)

The old text must stand in the file exactly once. To cover a new module, append rows, each with a comment behind it that
names the bug, and run `tests/mutate.py [part of a file or test name ...]`; `--list [part ...]` prints the rows, and `--check`
says whether every old text stands where it should. A mutant that does not compile is an error of its row; a test that
hangs is killed after a timeout and counts as caught.

Over 600 lines: the rows are one table.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIMEOUT = 200  # seconds a test may run; the slowest sound one, test_ops, needs 35 on a quiet core
SIM_REQUESTS = "200000"

KV = "engine/kv_cache.c"
KV_H = "include/kv_cache.h"
KV_GROUP = "include/kv_group.h"
KV_HASH = "engine/kv_hash.c"
SCHED = "scheduler/scheduler.c"
POLICY = "scheduler/policy.c"
QUEUES = "scheduler/queues.c"
REQUEST = "scheduler/request.c"
SAMPLER = "kernels/cpu/sampler.c"
PHILOX = "kernels/philox.h"
BODY = "kernels/cpu/body.h"
BODY_ATTENTION = "kernels/cpu/body_attention.h"
GEMM = "kernels/cpu/gemm.c"
POOL = "kernels/cpu/pool.c"
CPU = "kernels/cpu/cpu.c"
CPU_DEVICE = "kernels/cpu/device.h"
MIX = "kernels/cpu/mix.c"
BODY_MIX = "kernels/cpu/body_mix.h"
ATTENTION = "kernels/cpu/attention.c"
ROPE = "kernels/rope.c"
REF = "kernels/ref/backend.c"
TILES = "kernels/cpu/body_gemm.h"
AVX2 = "kernels/cpu/vec_avx2.h"
AVX512 = "kernels/cpu/vec_avx512.h"
PACK = "kernels/cpu/pack.c"
QUANTS_H = "base/quants.h"
QUANTIZE = "engine/models/quantize.c"
ENCODE = "base/quants_encode.c"
DECODE = "base/quants.c"
REF_OPS = "kernels/ref/ref_ops.c"
DETOK = "engine/text/detok.c"
SPM = "engine/text/tokenizer_spm.c"
MERGE_HEAP = "engine/text/merge_heap.h"
BPE = "engine/text/tokenizer_bpe.c"
MERGES = "engine/text/tokenizer_merges.c"
HF = "engine/models/hf/"
PRE = "engine/text/tokenizer_pre.c"
GGUF = "engine/models/gguf.c"
WEIGHTS = "engine/models/weights.c"
TENSOR_READ = "engine/models/tensor_read.c"
CGROUP = "base/cgroup.c"
PROCESSORS = "base/cpus.c"
CONFIG = "engine/models/model_config.c"
CONVERT = "engine/models/convert.c"
ARCHS = "engine/models/architectures.c"
KV_LAYERS = "engine/models/kv_layers.c"
BATCH = "engine/batch.c"
ENGINE = "engine/engine.c"
FORWARD = "engine/forward.c"
MASKS = "engine/mask_worker.c"
JINJA = "engine/text/jinja/%s.c"
PROCESSES = "engine/ranks/comm_processes.c"
COMM = "engine/ranks/comm_threads.c"
SHARD = "engine/models/shard.c"
RANKS = "engine/ranks/ranks.c"
SERVICE = "scheduler/service.c"
RECORD = "scheduler/record.c"
TEXT_ENCODE = "engine/text/text_encode.c"
PACE = "scheduler/pace.c"
ANSWERS = "engine/ranks/result_message.c"
HEAD = "kernels/cpu/head.c"
CPU_KV = "kernels/cpu/kv.c"
ROPE_TABLE = "kernels/cpu/rope_table.c"
WEIGHT = "kernels/cpu/weight.c"
CUDA = "kernels/cuda/%s"
NEAREST = "server/nearest.c"
FOREIGN_FLAGS = "server/foreign_flags.c"
METRICS = "server/metrics.c"
FIELD_RULES = "server/dialects/field_rules.c"
OPENAI_PARSE = "server/dialects/openai_parse.c"
LLAMA = "server/dialects/llama_completion.c"

MUTATIONS = [
    # ---- KV cache --------------------------------------------------------------------------------------------
    (KV, "hash_equal(kv->blocks[id].hash, h) &&\n                              block_holds(kv, id, tokens)))",
         "hash_equal(kv->blocks[id].hash, h)))", "test_kv_cache"),  # trust the hash
    (KV, "b->prev = b->published ? kv->free_tail : KV_NONE;\n    b->next = b->published ? KV_NONE : kv->free_head;",
         "b->prev = KV_NONE;\n    b->next = kv->free_head;", "test_kv_cache"),  # youngest evicted first
    (KV, "    if (b->published) {\n        index_remove(kv, id);\n        kv->num_evicted++;\n    }\n",
         "", "test_simulator"),  # reuse without eviction
    (KV, "int full = num_computed / c->block_size;", "int full = kv_blocks_for(kv, num_computed);",
         "test_simulator"),  # publish a block that is not full
    (KV, "if (kv->blocks[id].ref++ == 0)\n        free_unlink(kv, id);",
         "kv->blocks[id].ref++;", "test_kv_cache"),  # a hit stays on the free list
    (KV, "    if (index_find(kv, b->hash, b->group, tokens) != KV_NONE)\n        return;\n",
         "", "test_kv_cache"),  # publish the same block twice
    (KV, "for (; seq->num_hashed < full; seq->num_hashed++) {", "for (seq->num_hashed = 0; seq->num_hashed < full; seq->num_hashed++) {",
         "test_simulator"),  # chain from the wrong parent
    (KV_HASH, "~kv->config.key[1]", "kv->config.key[1]", "test_kv_cache"),  # a salt could imitate a block
    (KV_HASH, "    sip_word(&s, parent.lo);\n    sip_word(&s, parent.hi);\n", "    (void)parent;\n",
         "test_simulator"),  # blocks of another prefix that hold the same tokens
    (KV, "if (--kv->blocks[id].ref == 0)\n                free_relink(kv, id);",
         "if (--kv->blocks[id].ref == 0)\n                free_append(kv, id);",
         "test_kv_cache"),  # a failed admission moves entries
    (KV, "kv->blocks[id].group == group && ", "", "test_kv_cache"),  # a page of another group
    (KV, "served &= i + 1 - run[g]", "served = i + 1 - run[g]", "test_kv_cache"),  # a hit that one group serves
    (KV, "run[g] = id == KV_NONE ? 0 : run[g] + 1;", "run[g] = id == KV_NONE ? run[g] : run[g] + 1;",
         "test_kv_cache"),  # a hit over a gap
    (KV, "more &= c->groups[g].kind != KV_FULL || id != KV_NONE;", "more &= id != KV_NONE;",
         "test_kv_cache"),  # the search ends at what a window gave back
    (KV, "        if (served) {\n            best = i + 1;", "        if (served && best == 0) {\n            best = i + 1;",
         "test_kv_cache"),  # the first hit that every group serves
    # ---- KV cache: windows
    (KV_GROUP, "position - window + 1", "position - window + 2", "test_kv_cache"),  # a window one token too narrow
    (KV_GROUP, "first / KV_TILE * KV_TILE", "first", "test_kv_cache"),  # part of a tile is given back
    (KV, "case KV_WINDOW: return kv_first_kept(num_blocks * c->block_size, c->groups[g].window) / c->block_size;",
         "case KV_WINDOW: return 0;", "test_kv_cache"),  # a hit needs blocks that no window shows
    (KV, "case KV_WINDOW: return kv_first_kept(num_blocks * c->block_size, c->groups[g].window) / c->block_size;",
         "case KV_WINDOW: return num_blocks * c->block_size < c->groups[g].window ? 0 : num_blocks - c->groups[g].window / c->block_size;",
         "test_kv_cache"),  # a hit lacks the rest of the window's first tile
    (KV, "keep = kv_first_kept(position, c->groups[g].window) / c->block_size;", "keep = position / c->block_size;",
         "test_simulator"),  # blocks are given back that the window shows
    (KV, "keep = kv_first_kept(position, c->groups[g].window) / c->block_size;", "keep = 0;",
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
    (KV, "first - seq->snapshot_at >= c->snapshot_tokens", "true", "test_kv_cache"),  # a snapshot of every block
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
    (POLICY, "budget = min_int(budget, share < MIN_SHARE ? MIN_SHARE : (int)min_int64(share, INT32_MAX));", "",
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
    ("scheduler/request.c", "    if (r->sampling.mirostat_tau > 0) // what a draft costs is known when its token is\n        room = 0;\n", "",
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
    ("server/seed.h", "splitmix64(splitmix64(seed) + (uint64_t)j)", "splitmix64(seed + (uint64_t)j)",
                      "test_server_openai"),  # a choice is another seed's
    ("server/dialects/openai_parse.c", " && r->seed != -1", "", "test_server_openai"),  # -1 is a seed
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
    (BATCH, " && accepted == j - 1 &&", " &&", "test_drafts"),  # a filter takes a draft behind one that it refused
    (BATCH, "m->filter->rollback(m->filter->state, accepted);", "m->filter->rollback(m->filter->state, m->num_drafts);",
            "test_drafts"),  # a filter takes back more than it accepted
    (BATCH, "int sample = b->sample_row[i] >= 0 ? b->sample_row[i] : b->first_row[i + 1];", "int sample = b->first_row[i + 1] - (b->sample_row[i] >= 0);",
            "test_drafts"),  # only the row of the last draft says what comes
    (SCHED, "r->num_computed = r->num_resolved = end + n - 1;", "r->num_computed = r->num_resolved = end + n;",
            "test_scheduler"),  # a rejected draft counts as computed
    (SCHED, "r->num_pending -= 1 + it->num_drafts;", "r->num_pending--;", "test_scheduler"),  # drafts stay pending
    (SCHED, "    r->num_tokens -= r->num_pending;\n    r->num_pending = 0;\n    bool left", "    bool left",
            "test_scheduler"),  # a request that ends keeps pending tokens
    (REQUEST, "r->max_tokens - r->num_tokens - 1;", "r->max_tokens - r->num_tokens;", "test_scheduler"),  # drafts beyond max_tokens
    (REQUEST, "r->filter || r->drafter || r->counts", "r->filter || r->counts", "test_scheduler"),  # a drafter does not see every token
    (POLICY, "if (pages <= 0 || pages <= room->pages)", "if (true)", "test_scheduler"),  # drafts take blocks that others need
    (POLICY, "room.tokens = (int)min_int64(tokens, ", "room.tokens = (int)min_int64(INT32_MAX, ", "test_simulator"),  # drafts take tokens that prompts may have
    (SERVICE, "    if (request_draft(r, drafts, n) > 0)\n        record_draft(s->record, r);\n", "    request_draft(r, drafts, n);\n",
              "test_service"),  # drafts are not replayed
    (SERVICE, "- 1 - item->num_drafts + e->index;", "- 1 - item->num_drafts;", "test_service"),  # every token of an item has the first one's log-probability
    (SERVICE, " ||\n        (r->filter && !r->filter->rollback))", ")", "test_service"),  # drafts for a filter that cannot take them back
    # ---- masks beside the step
    (ENGINE, "        now->batch.step.masks_wait = wait_for_masks;\n", "", "test_masks"),  # masks are read before they are there
    (MASKS, "while (w->computed < ticket)", "while (w->computed + 1 < ticket)", "test_masks"),  # a step waits for the masks of the one before
    (ENGINE, "        mask_worker_post(&e->masks, &now->batch);\n", "        mask_worker_post(&e->masks, &now->batch);\n        mask_worker_wait(&e->masks, now->batch.ticket);\n",
             "test_masks"),  # masks hold up the launch
    (ENGINE, "mask_worker_wait(&e->masks, status == STATUS_OK ? step->batch.ticket : e->masks.posted);", "(void)0;", "test_masks"),  # filters are asked after a device failed
    # ---- engine and service
    (ENGINE, "e->num_steps = depth > 2 ? depth : 2;", "e->num_steps = 2;", "test_service"),  # steps in flight over one another
    (SERVICE, "    if (plan || num_in_flight(s) > 0)\n        record_plan(", "    if (plan)\n        record_plan(",
              "test_service"),  # a step that preempted and planned nothing is not replayed
    (SERVICE, "return r->matcher && r->matcher->ends(r->matcher->state, e->token) ? FINISH_STOP : FINISH_NONE;",
              "return FINISH_NONE;", "test_service"),  # a stop string ends nothing
    (SERVICE, "return r->matcher && r->matcher->ends(r->matcher->state, e->token) ? FINISH_STOP : FINISH_NONE;",
              "return r->matcher && r->matcher->ends(r->matcher->state, e->token) ? FINISH_CANCELLED : FINISH_NONE;",
              "test_service"),  # it is called a cancel
    (SERVICE, "        return FINISH_ERROR;\n    return r->matcher", "        return FINISH_NONE;\n    return r->matcher",
              "test_service"),  # a request goes on with a token that its filter refused
    (SERVICE, "            for (; i + 1 < n && s->events[i + 1].req == r; i++)\n                r->num_tokens -= s->events[i + 1].token >= 0;\n", "",
              "test_service"),  # events of a request that a stop string has ended
    (SERVICE, "r->num_tokens -= s->events[i + 1].token >= 0;", "(void)0;", "test_service"),  # tokens behind a stop string are counted
    (TEXT_ENCODE, "token_id id = s->content ? -1 : control_at(",
                  "token_id id = control_at(", "test_text_encode"),  # a client's words become control tokens
    (TEXT_ENCODE, "if (tokenizer_adds_bos(t) && !has_bos)",
                  "if (tokenizer_adds_bos(t))", "test_text_encode"),  # BOS twice
    (SERVICE, "record_plan(s->record, plan, chunk);", "record_plan(s->record, plan, s->config.max_chunk);", "test_service"),  # a change of pace is not replayed
    (SERVICE, ".target_ns = s->depth == 1 ? config->target_itl_ns : 0", ".target_ns = config->target_itl_ns",
              "test_service"),  # plans in flight are timed as if each were alone
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
            "test_ranks"),  # the last stage waits for nobody
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
    (PROCESSES, "waited > m->deadline_ns", "waited < 0", "test_comm_processes"),  # a rank that stays away is waited for
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
    (RANKS, "    if (k->world)\n        k->world->ops->abort(k->world, why);\n", "", "test_ranks"),  # other stages wait for a dead one
    (ANSWERS, "size_t n = num_top(&step->rows[i]), first = i * MAX_TOP_LOGPROBS;",
              "size_t n = num_top(&step->rows[i]), first = 0;", "test_ranks"),  # every row has the first's alternatives
    (WEIGHTS, "(char *)&m->layers[layer - first];", "(char *)&m->layers[layer % m->config.num_layers];",
              "test_ranks"),  # layers of unequal stages in other places
    (SHARD, "int64_t first = (int64_t)num * s->rank / s->world;", "int64_t first = (int64_t)each * s->rank % num;",
            "test_shard"),  # a copied kv head is another's
    (SHARD, "        bias->data = (const float *)bias->data + r.begin * rows;\n", "", "test_shard"),  # every rank has the first biases
    (SHARD, "r = segments(s, hidden, shard_block(down));\n        cut_rows", "r = segments(s, hidden, 1);\n        cut_rows",
            "test_ranks"),  # gate is cut elsewhere than down
    (SHARD, "if (attn_out_size(a) % (b->attn * world) != 0)", "if (false)", "test_shard"),  # cut inside a block
    (SHARD, "if (hidden > 0 && num_blocks(hidden, b->down) < world)", "if (false)", "test_shard"),  # a rank without a part
    (WEIGHT, "total * (dev->rank * w->num_segments + i) / NUM_SEGMENTS - start", "(int64_t)p->num_blocks * i / w->num_segments",
             "test_ranks"),  # segments of the part, not of the whole
    (WEIGHT, "    p->data += (size_t)(desc->start / LANES) * p->panel_bytes;\n", "", "test_ranks"),  # every rank has the first tokens
    (TILES, "case 4: sum = four_segments(s, 0, v, t); break;",
            "case 4: sum = rows_add(rows_add(rows_add(segment(s, 0, v, t), segment(s, 1, v, t)), segment(s, 2, v, t)), segment(s, 3, v, t)); break;",
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
    (PRE, '(?![^" SPACES "])|',
          '|', "test_bpe"),  # a run of spaces takes the next word's
    (PRE, '.name = "qwen2", .nfc = true,',
          '.name = "qwen2",', "test_bpe"),  # no normalisation
    (PRE, "if (st == STATUS_OK && end > invalid)",
          "if (false)", "test_bpe"),  # lose what is not UTF-8
    (GGUF, "if (offset != *end)",
            "if (offset % g->alignment)", "test_gguf"),  # tensors may overlap
    (GGUF, "stop > g->file.size",
            "stop > g->file.size + 31", "test_gguf"),  # read past the end
    (TENSOR_READ, "(p[k + 1] & 0x7c) == 0x7c",
            "(p[k + 1] & 0x7c) == 0x7d", "test_model_config"),  # accept infinities
    (TENSOR_READ, "first = (uint64_t)quants_scale_offset(type);",
            "first = 0;", "test_model_config"),  # look for Q6_K's scale where the others have it
    (TENSOR_READ, "p[i] > 252", "p[i] > 253", "test_model_config"),  # MXFP4 with numbers beyond f32
    (WEIGHTS, "t->view.ndim != want.ndim || memcmp",
            "t->view.ndim != want.ndim && memcmp", "test_model_config"),  # accept wrong shapes
    (CONFIG, "*v != meta_array_int(&a, 0)",
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
    (WEIGHTS, "(i * turns + (size_t)p->at) * chunk", "i * turns * chunk", "test_json_arch"),  # the queries are the gate, too
    (CPU, "if (layer->attn.gate)\n        pool_run", "if (false)\n        pool_run", "test_json_arch"),  # the output is not gated
    (SHARD, "return (struct range){h.begin / of_group,", "return (struct range){0,", "test_shard"),  # the groups of ranks before, too
    ("engine/models/model_config.c", "(int64_t)m->groups * m->key_dim > 1 << 22", "false", "test_recurrent_config"),  # keys of any size
    (ENGINE, "(states / token + 15) / 16 * 16", "states / token / 16 * 16", "test_json_arch"),  # pages of states are larger than keys
    (MIX, "c.out_gate = in + channels;", "c.out_gate = in;", "test_mix"),  # the gates change places
    (CPU_KV, "bytes = kv_page_bytes(dev);", "bytes = halves * kv_half_elems(dev) * kv_elem_bytes(dev);", "test_mix"),  # a snapshot has keys' bytes only
    (SHARD, "cut_mix(s, part, i, true, x->key_dim);", "cut_mix(s, part, i, false, x->key_dim);", "test_shard"),  # rows of heads for groups
    (SHARD, "layer->state_layer = (uint16_t)own->groups[layer->state_group].num_layers++;", "", "test_shard"),  # places of other stages
    (KV_LAYERS, "if (n % c->state_layers == 0)", "if (n == 0)", "test_kv_layers"),  # states beyond the page
    (WEIGHTS, "case OF_ATTN: return a != NULL;", "case OF_ATTN: return true;", "test_recurrent_config"),  # tensors of both kinds in every layer
    ("engine/models/model_config.c", "r->recurrent[i] = v == 0;", "", "test_recurrent_config"),  # every layer attends
    (QUANTIZE, "if (weight && (weight_is_plain(at.slot->role) ||", "if (weight && (", "test_recurrent_config"),  # convolutions are quantised
    (WEIGHTS, "return is_f32(s->role) ||", "return", "test_model_config"),  # norms converted, too
    (BATCH, "- p->frequency_penalty * (float)c->output", "", "test_penalties"),  # an occurrence counts for nothing
    (BATCH, ".div = p->repetition_penalty", ".div = 1", "test_penalties"),  # repetition goes unpunished
    (BATCH, ".div = 1, .add = r->bias[i].add", ".div = 1, .add = -r->bias[i].add", "test_penalties"),  # bias turned round
    (REF, "        part.bias = NULL; // every rank has it, the sum takes it once\n", "        ;\n", "test_ranks"),  # the reference's ranks add a bias each
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
    (QUANTIZE, "if (t->view.ndim < 2)", "if (t->view.ndim < 1)", "test_quantize"),  # norms quantised
    (QUANTIZE, "        if (x[i] > limit || x[i] < -limit) {", "        if (x[i] > limit) {",
               "test_quantize"),  # what is too far below zero is cut in silence
    (TENSOR_READ, "if (i < atomic_load(&r->bad)) {", "{", "test_tensor_read"),  # another mistake than the first of the file
    ("engine/models/gguf_split.c", "no != s->num || of != count", "of != count", "test_gguf_split"),  # another part in its place
    ("engine/models/gguf_split.c", "tensor->offset += s->starts[i];", "", "test_gguf_split"),  # every part begins where the first does
    (HF + "recipe.c", "i / 2 + (i % 2 ? d / 2 : 0)", "i", "test_folder"),  # rows of q and k as the folder has them
    (HF + "recipe.c", "dst[i] = f + plus;", "dst[i] = f;", "test_folder"),  # Gemma's norms less one
    (HF + "safetensors.c", "t->bytes > size - t->at", "false", "test_folder"),  # a tensor beyond the end of its file
    (HF + "shards.c", "!memchr(t.data, '/', t.len)", "true", "test_folder"),  # an index that leads out of the folder
    (HF + "files.c", "if (!link_is_allowed(d, target)) {", "if (false) {", "test_folder"),  # and a link
    (HF + "config.c", "|| !hf_key_is_suspect(name)", "|| true", "test_folder"),  # unknown mathematics
    (HF + "quantized.c", "row / (uint64_t)q->block_rows * scale_bytes", "row * scale_bytes", "test_folder"),  # another block's scale
    (HF + "quantized.c", "if (half_to_float(half) != scale)", "if (false)", "test_folder"),  # a scale that is rounded
    (HF + "jdoc.c", "depth >= JDOC_MAX_DEPTH", "depth >= 1 << 20", "test_folder"),  # a header as deep as it likes
    (TENSOR_READ, "model_file_place(f, t->offset + start + at, place)", "model_file_place(f, t->offset + 0 * start + at, place)",
     "test_tensor_read"),  # a place in the piece as one in the tensor
    (CGROUP, "(list[n] == ',' || list[n] == 0)", "true", "test_cpus"),  # cpuset's group for cpu's
    (CGROUP, "        *last = 0;\n", "        return;\n", "test_cpus"),  # not the groups around ours
    (PROCESSORS, "time < period ? 1 : ", "", "test_cpus"),  # no processor at all for half of one's time
    (PROCESSORS, "time > 0 && period > 0", "time > 0", "test_cpus"),  # so much time in no period
    (QUANTIZE, "    if (job.temporary[0])\n        unlink(job.temporary);\n", "", "test_quantize"),  # half files stay
    (QUANTIZE, "in.st_dev == out.st_dev && in.st_ino == out.st_ino", "strcmp(c->in, c->out) == 1",
               "test_quantize"),  # a file may be written over itself
    (QUANTIZE, "int k = kv == meta_find(job->f, own_keys[0]) ? 0", "int k = false ? 0",
               "test_quantize"),  # the file says it is of the old type
    (QUANTIZE, "atomic_fetch_add(&w->next, w->share)) < w->rows", "atomic_fetch_add(&w->next, w->share + 1)) < w->rows",
               "test_quantize"),  # rows between the shares are left out
    # ---- kernels ---------------------------------------------------------------------------------------------
    (SAMPLER, "        if (above > target)\n            return",
            "        if (above >= target)\n            return", "test_sampler"),  # the boundary of a sample moves
    (SAMPLER, "(s->key[i] == key && i <= last.index)",
            "(s->key[i] == key)", "test_sampler"),  # top-k keeps all of a tie
    (SAMPLER, "need - 1).through",
            "need).through", "test_sampler"),  # one token too many
    (SAMPLER, "(l > 0 ? l / e->div : l * e->div) + e->add",
            "l / e->div + e->add", "test_sampler"),  # the repetition penalty rewards what is unlikely
    (SAMPLER, "if (u == 0x80000000u)",
            "if (u == 0x80000001u)", "test_sampler"),  # minus zero sorts below zero
    (PHILOX, "k0 += 0x9E3779B9u",
            "k0 += 0x9E3779B8u", "test_sampler"),  # another random stream
    (BODY_ATTENTION, "                s = v16_keep(s, begin[t] - i, end[t] - i, nothing);\n",
            "                s = s;\n", "test_ops"),  # attention reads what lies past the end
    (BODY_ATTENTION, "        values_half_pair(out, w, c, dtype, begin - 1, t, 2);\n", "",
            "test_canonical"),  # a window that begins within a pair loses a token
    (BODY_ATTENTION, "s = v16_mul(s, v16_load(c->key_scale[i / ATTN_TILE]));", "s = v16_mul(s, scale);",
            "test_ops"),  # int8: keys without their scales
    (BODY_ATTENTION, "            part[2 * j + used / 2] = pair_part(tile, dtype, at0 + 2 * (i + j) + used / 2);",
            "            for (int k = 0; k < 2; k++)\n                part[2 * j + k] = pair_part(tile, dtype, at0 + 2 * (i + j) + k);",
            "test_ops"),  # a pair reads the token after the context
    (ATTENTION, "        first_partial += dev->kv_heads * (chunk1 - chunk0);\n", "",
            "test_ops"),  # long sequences beside each other share their slots
    (ATTENTION, "            if (partials + more > cpu_attn_partials(job->dev))\n                break;\n", "",
            "test_ops"),  # more of them than there is room for
    (BODY_ATTENTION, "        if (all_low > low || all_high < high)\n            rescale_out(&w, c);\n", "",
            "test_canonical"),  # queries of other ranges: what they had so far is not scaled to the new maximum
    (BODY_ATTENTION, "    rescale = v16_if_less(top, v16_set1(-FLT_MAX), v16_set1(1), rescale); // nothing yet\n", "",
            "test_kernels"),  # a row whose window begins later is NaN
    (BODY_ATTENTION, "x = v16_sub(v16_mul(v16_load(w->p + at), scale), best);",
            "x = v16_fma(v16_load(w->p + at), scale, v16_sub(zero, best));", "test_canonical"),  # a weight with one rounding less
    (BODY_ATTENTION, "x = v16_max(v16_set1(-127), x);", "x = v16_max(v16_set1(-126), x);", "test_kernels"),  # weights never become 0
    (AVX512, "0xff, _mm512_setr_epi32(0, 4, 8, 12, 2, 6,", "0xff, _mm512_setr_epi32(0, 4, 8, 12, 6, 2,", "test_kernels"),  # sums of two queries change places
    (ATTENTION, "&c->key_scale[i]) = scale + head * B;", "&c->key_scale[i]) = scale + head * 0 * B;", "test_ops"),  # decode, int8: scales of the first head for all
    (BODY_ATTENTION, "    if (c->step0 == 0) {", "    if (c->step0 >= 0) {", "test_ops"),  # each step of decode forgets those before it
    (ATTENTION, "c->step0 = step, c->step1 = step + 1;", "c->step0 = step, c->step1 = 4;", "test_ops"),  # steps of decode are done twice
    (ATTENTION, "from = u % m.per_head * ATTN_QUERIES;\n        float *q", "from = 0;\n        float *q",
                "test_ops"),  # decode, large groups: the first eight heads again
    (ATTENTION, "head + each < heads ? head + each : heads", "head + each < heads ? head + each : heads - 1",
                "test_ops"),  # decode: the last kv head of an item is left out
    (ATTENTION, "own == i && later < last", "own == i && later < last + ATTN_STEP", "test_prefetch"),  # what is not there is asked for
    (ATTENTION, "tile += which;", "tile += 1;", "test_prefetch"),  # decode: half of the next step is not asked for
    (TILES, "rows_add(rows_add(segment(s, i, v, t), segment(s, i + 1, v, t)),",
            "rows_add(rows_add(segment(s, i, v, t), segment(s, i + 3, v, t)),", "test_canonical"),  # another tree of segments
    (CPU, "    if (slot >= 0)\n", "    if (slot >= -1)\n", "test_ops"),  # padding is written
    (ATTENTION, "&step->groups[layer->kv_group]", "&step->groups[0]", "test_layers"),  # every layer reads the first group's pages
    (CPU, "job->step->groups[layer->kv_group].slots[t]", "job->step->groups[0].slots[t]", "test_layers"),  # and writes there
    (CPU, "finish_heads(dev, key, a->kv_heads, a,", "finish_heads(dev, key, a->kv_heads, &dev->model.attn[0],", "test_layers"),  # keys of every layer rotate alike
    (ATTENTION, ".kv_layer = layer->kv_layer,", ".kv_layer = layer->kv_layer / 2,", "test_layers"),  # layers read each other's keys
    (CPU, "m->attn[0].kv_heads || a->head_dim != m->attn[0].head_dim", "m->attn[0].kv_heads", "test_layers"),  # pages for heads of another size
    (HEAD, "if (r == 0 && step->masks", "if (step->masks", "test_layers"),  # masks are waited for more than once
    (HEAD, "            step->masks_wait(step->masks_arg);\n", "            (void)0;\n", "test_layers"),  # masks that are not computed yet
    (HEAD, "out->hidden + (size_t)r * (size_t)dev->model.hidden", "out->hidden", "test_layers"),  # hidden states of the first rows only
    (CPU_KV, "        if (dev->kv_dtype == DTYPE_I8)\n            memcpy", "        if (false)\n            memcpy", "test_layers"),  # int8 pages are copied without scales
    (ROPE_TABLE, "= {t, t->filled, end};", "= {t, t->filled + 1, end};", "test_layers"),  # a position between two fills is left out
    # ---- architectures ---------------------------------------------------------------------------------------
    (CPU_DEVICE, "float *a = x + (interleaved ? 2 * i : i), *b = interleaved ? a + 1 : a + t->pairs;",
          "float *a = x + 2 * i, *b = a + 1;", "test_json_arch"),  # every architecture turns adjacent pairs
    (CPU, "    for (int i = 0; bias && i < num_heads * d; i++)\n        x[i] += bias[i];\n",
          "    (void)bias;\n", "test_json_arch"),  # no bias of q and k
    (CPU, "value[i] += bias[2][i];", "value[i] += bias[1][i];", "test_json_arch"),  # the values get the keys' bias
    (CPU, "+ (size_t)i] += job->bias[i];", "+ (size_t)i] -= job->bias[i];", "test_json_arch"),  # the output's bias subtracted
    (CPU, "bool rotated = a->qk_norm == QK_NORM_ROTATED;", "bool rotated = true;", "test_json_arch"),  # norm of heads after the rotation
    (CPU, "bool rotated = a->qk_norm == QK_NORM_ROTATED;", "bool rotated = false;", "test_json_arch"),  # hunyuan: before it
    (CPU, "x[i] += job->bias[i];", "x[i] -= job->bias[i];", "test_json_arch"),  # the bias of what is scaled subtracted
    (CPU, "resid[i] += scale * x[i];", "resid[i] += x[i];", "test_json_arch"),  # no residual scale
    (CPU, "row[i] *= scale;", "row[i] /= scale;", "test_json_arch"),  # the embedding is scaled the other way
    (WEIGHTS, "t.offset += t.bytes / all * (uint64_t)before;", "", "test_json_arch"),  # every part is the fused tensor's first
    (WEIGHTS, "there && (!at.bias", "true && (!at.bias", "test_model_config"),  # parts and the fused tensor side by side
    ("engine/engine.c", "> e->model.ropes[i].original_context)", "< e->model.ropes[i].original_context)", "test_json_arch"),  # the other factors of LongRoPE
    ("kernels/cpu/body_attention.h", "s = tanh_v16(v16_mul(s, v16_set1(c->inner)));", "s = v16_mul(s, v16_set1(c->inner));", "test_json_arch"),  # scores without their cap
    ("kernels/cpu/body.h", "v16_set1(0.0713548162726f), v16_mul(x, x)", "v16_set1(0.0713548162726f), x", "test_json_arch"),  # another GELU
    (HEAD, "dev->kernels->softcap(logits, n, dev->model.logit_softcap);", ";", "test_json_arch"),  # logits without their cap
    (CPU, "device_norm(dev, x, x, job->norm, 0, D);", ";", "test_json_arch"),  # no norm behind a sublayer
    (CPU, "device_norm(dev, x, x, norm, 0, num_heads * d);", "device_norm(dev, x, x, norm, 0, d);", "test_json_arch"),  # a norm of the first head
    (CPU, "a->qk_norm == QK_NORM_EACH ? h * d : 0", "0", "test_json_arch"),  # all heads by the first one's norm
    ("kernels/cpu/device.h", "d->before ? d->before : d->resid", "d->resid", "test_json_arch"),  # parallel blocks one after the other
    (BODY, "v = n - i < LANES ? v16_keep(v, 0, n - i, zero) : v;", "", "test_kernels"),  # LayerNorm counts what is past the row
    (BODY, "v16_sub(v16_load_part(x + i, n - i), mean), scale)", "v16_load_part(x + i, n - i), scale)", "test_canonical"),  # the mean stays
    (BODY, "v16_if_less(x, zero, tail, v16_sub(one, tail))", "v16_sub(one, tail)", "test_canonical"),  # exact GELU of one side
    (GEMM, "+= bias[panel * LANES + i];", "+= bias[i];", "test_canonical"),  # biases of the first panel
    (GEMM, "const float *bias = job->bias[part];", "const float *bias = job->bias[0];", "test_canonical"),  # up gets the bias of gate
    (HEAD, "logits[v] += bias[v];", "logits[v] -= bias[v];", "test_json_arch"),  # the head's bias subtracted
    (ATTENTION, ".inner = cap > 0 ? scale / cap : 0,", ".inner = cap > 0 ? scale : 0,", "test_canonical"),  # a soft cap of 1
    (CPU, "layer->down, layer->ffn_post_norm, step);", "layer->down, layer->attn_post_norm, step);", "test_canonical"),  # the norm of another sublayer
    (SHARD, "heads(s, a, whole->part[0].shape[0] != a->heads, 1)", "heads(s, a, false, 1)", "test_ranks"),  # norms of more heads than kv heads
    (WEIGHTS, "!strncmp(part_name(c, at.slot, at.part, at.bias, layer, own), name.data, name.len)", "true", "test_model_config"),  # a norm that nothing reads
    (CONFIG, "r->arch->one_norm == ALWAYS ||", "", "test_model_config"),  # Cohere with a norm of the feed-forward
    (CONFIG, "r->arch->window_rope && windowed[i]", "0", "test_json_arch"),  # layers with a window rotate as the others
    (SHARD, "a->qk_norm == QK_NORM_WHOLE && world > 1", "false", "test_shard"),  # ranks normalise their own heads
    (CONFIG, "h->logit_scale = 1 / h->logit_scale;", "h->logit_scale = h->logit_scale;", "test_json_arch"),  # logits multiplied, not divided
    (CONFIG, "layer % every == every - 1", "layer % every == 0", "test_json_arch"),  # other layers go without rotation
    (CONFIG, "|| c->attn[i].rope != a->rope", "", "test_json_arch"),  # layers with and without rotation share a spec
    (CUDA % "rows.cu", "if (a.factor != 1)", "if (false)", "test_emu_rows"),  # the embedding is not scaled
    (CPU, "bias[1], layer->k_norm, position", "bias[1], layer->q_norm, position",
          "test_json_arch"),  # keys get the queries' norm
    (ATTENTION, "(window > 0 && past > window ? past - window : 0)", "(window > 0 && past > window ? past - window - 1 : 0)",
                "test_json_arch"),  # the window is one token longer
    (ATTENTION, "return window > 0 && positions[row0] + 1 > window ? positions[row0] + 1 - window : 0;",
                "return 0 * window * row0;", "test_ops"),  # blocks outside the window are read
    (REF, "max_int(0, end - a->window) : 0;", "max_int(0, end - a->window + 1) : 0;",
          "test_json_arch"),  # the window is one token shorter
    (ROPE, "case ROPE_LINEAR: freq /= r->factor; break;", "case ROPE_LINEAR: break;", "test_json_arch"),  # no linear scaling
    (ROPE, "freq /= r->freq_factors[i];", "freq *= r->freq_factors[i];", "test_json_arch"),  # factors the wrong way
    (ROPE, "if (turns > r->high_freq)", "if (turns > r->low_freq)", "test_json_arch"),  # Llama 3: nothing between the bounds
    (ROPE, "floor(yarn_pair(r, r->beta_fast))", "ceil(yarn_pair(r, r->beta_fast))",
           "test_json_arch"),  # YaRN's ramp begins a pair later
    (CONFIG, "rope->attn_factor *= 0.1f * logf(rope->factor) + 1.0f;", "rope->attn_factor *= 1.0f;",
             "test_json_arch"),  # YaRN without its temperature
    (ARCHS, '{"qwen2", .qkv_bias', '{"qwen2", .rope_interleaved = true, .qkv_bias', "test_json_arch"),  # Qwen 2 with llama's pairs
    (CONFIG, "!read_attn_scale(&r) ||", "", "test_json_arch"),  # attention.scale ignored
    (CONFIG, "if (r->arch->window_every_layer || *window == 0 || every)", "if (true)",
             "test_model_config"),  # a window for every layer of Qwen
    (CONFIG, "return !is_suspect(a, name, len) ||", "return true ||",
             "test_model_config"),  # keys that nobody knows
    (CONFIG, "windowed[i] = n == 0 || i % n != n - 1;", "windowed[i] = n == 0 || i % n != 0;",
             "test_model_config"),  # the first of n layers is the one without a window
    (KV_LAYERS, "return a.full < b.full;", "return a.full > b.full;", "test_kv_layers"),  # pages of full attention half empty
    (KV_LAYERS, "== c->kv_layers) {", "> c->kv_layers) {", "test_kv_layers"),  # a group beyond its pages
    (SHARD, "own->groups[layer->kv_group].num_layers++;", "own->kv_layers;", "test_shard"),  # groups of a stage share places
    (WEIGHTS, "case WEIGHT_QKV: return model_attn(c, layer)->qkv_bias;", "case WEIGHT_QKV: return false;", "test_model_config"),  # biases left in the file
    (REF_OPS, "(float)(int8_t)block[192 + k / 16]",
            "(float)block[192 + k / 16]", "test_quants"),  # Q6_K's scales without a sign
    (DECODE, "b->d_min = -load_half(p + 2);", "b->d_min = load_half(p + 2);", "test_quants"),  # Q4_1's minimum is taken off
    (DECODE, "(p[i % 32] >> i / 32 & 1) << 2", "(p[i % 32] >> i / 64 & 1) << 2", "test_quants"),  # Q3_K's third bits of another 32
    (REF_OPS, "ldexpf(1, block[0] - 128)", "ldexpf(1, block[0] - 127)", "test_quants"),  # MXFP4 twice as large
    (REF_OPS, "p[j + 4] >> 4 | p[j] >> 6 << 4",
            "p[j + 4] >> 4 | p[j - 4] >> 6 << 4", "test_quants"),  # a minimum with the upper bits of a scale
    (PACK, "load32(p + 2 + 4 * j) ^ 0x80808080u", "load32(p + 2 + 4 * j)", "test_quants"),  # Q8_0 packed signed
    (PACK, "    w->minus_min[r] ^= 0x8000u;\n", "", "test_quants"),  # minima are added
    (PACK, ">> s & 0x01010101u) << j", ">> j & 0x01010101u) << j", "test_quants"),  # fifth bits of another 32
    (PACK, "int shift = s % 4 * 2;", "int shift = s % 2 * 2;", "test_quants"),  # the upper bits of another 32
    (PACK, "* 0x00204081u", "* 0x00204080u", "test_quants"),  # one in four of Q5_0's fifth bits lost
    (PACK, "w->minus_min[r] ^ 0x8000u", "w->minus_min[r]", "test_quants"),  # Q2_K's minima are added
    (QUANTS_H, "(p[8 + s % 4] >> s / 4 * 2 & 3) << 4) - 32;", "(p[8 + s % 4] >> s / 4 * 2 & 3) << 4);",
           "test_quants"),  # Q3_K's scales without a sign
    (PACK, "if (left < LANES || cols % pack_block(dtype))", "if (false)", "test_kernels"),  # rows past the matrix are not zero
    (POOL, "p->turn = (uint16_t)(p->turn + !p->alone);", "p->turn++;", "test_kernels"),  # an old note of what is left looks new
    (POOL, "            pool_partition(p->num_items, thread, p->num_threads, begin, end);", "            *begin = *end;", "test_kernels"),  # nothing is left
    (POOL, "            *begin = *end - piece;", "            *end = *begin + piece;", "test_kernels"),  # a helper takes what its owner will
    (POOL, "i <= HELPED && i < p->num_threads", "i < 1", "test_kernels"),  # nobody helps
    (GEMM, "at->num_panels == 2 ? first + p->panel_bytes : first", "first", "test_ops"),  # the second panel is the first
    (GEMM, "g++, y += LANES, rows_left", "g++, rows_left", "test_ops"),  # and lies where the first does
    (GEMM, "run_tile(job, at, false, y, ldy, LANES, job->finish == FINISH_ADD);",
           "run_tile(job, at, false, y, ldy, LANES, false);", "test_ops"),  # the residual is lost
    (GEMM, "run_tile(job, &at, i == 1, sums[i]", "run_tile(job, &at, false, sums[i]", "test_ops"),  # SwiGLU of few tokens: the first factor twice
    (GEMM, "sums[i] + g * LANES, LD, LANES, false);", "sums[i], LD, LANES, false);", "test_ops"),  # all groups of it in one place
    (GEMM, "width = rows_left < width ? rows_left : width;", "(void)rows_left;", "test_ops"),  # what lies beside its last row is lost
    (TILES, "rows_add(four_segments(s, 0, v, t), four_segments(s, 4, v, t))",
            "rows_add(four_segments(s, 0, v, t), four_segments(s, 0, v, t))", "test_canonical"),  # half of K twice
    (TILES, "a.b1 = job->bounds[i + 1];", "a.b1 = job->bounds[job->num_segments];", "test_canonical"),  # segments overlap
    (BODY, "max + (0x7fffff - 0x7e0000)", "max + (0x7fffff - 0x7f0000)", "test_kernels"),  # 127.5 steps: one is cut off at 128
    (BODY, "max >= 0x71800000", "max >= 0x7f800001", "test_kernels"),  # an infinity is a number
    (TILES, "0x30);", "0x10);", "test_kernels"),  # Q6_K of five bits
    (TILES, "case DTYPE_Q4_0: return dots_set1(x->minus8);",
            "case DTYPE_Q4_0: return dots_set1(act_base_bits(x));", "test_kernels"),  # Q4_0 without its zero point
    (TILES, "return dots_set1(x->minus8 - (act_base_bits(x) - x->minus8));",
            "return dots_set1(x->minus8);", "test_kernels"),  # Q5_0 with the zero point of Q4_0
    (TILES, "return dots_set1(x->minus32[half]);",
            "return dots_set1(x->minus32[0]);", "test_kernels"),  # both halves of Q6_K take off the first one's
    (TILES, "rows_load_u8(w->low.min[part] + row)",
            "rows_load_u8(w->low.min[0] + row)", "test_kernels"),  # one minimum for 256
    (TILES, "(float)act_sum(x, half) : x->s",
            "(float)act_sum(x, half) : act_scale(x)", "test_canonical"),  # a minimum times the scale, not the sum
    (TILES, "(float)act_sum(x, half)",
            "(float)act_sum(x, 1 - half)", "test_canonical"),  # each minimum of Q2_K times the other half's sum
    (TILES, "quads_load(p->high[v]), 2 - j,", "quads_load(p->high[v]), 3 - j,", "test_kernels"),  # Q3_K's third bit of another number
    (TILES, "129, 141, 153", "128, 141, 153", "test_kernels"),  # IQ4's smallest positive number is zero
    (AVX512, "_mm_subs_epu8(_mm_loadu", "_mm_sub_epi8(_mm_loadu", "test_kernels"),  # MXFP4's smallest scale is infinite
    (AVX2, "_mm_subs_epu8(_mm_loadl", "_mm_sub_epi8(_mm_loadl", "test_kernels"),  # the same on AVX2
    (AVX2, "_mm256_srli_epi32(m256_load_u8(p), 4)", "m256_load_u8(p)", "test_kernels"),  # Q2_K's minimum with its scale
    (TILES, "case DTYPE_Q6_K: return 2; // weights", "case DTYPE_Q6_K: return 4; // weights", "test_quants"),  # more of Q6_K than 16 bits hold
    (TILES, "case DTYPE_MXFP4: return 4; // 31", "case DTYPE_MXFP4: return 8; // 31", "test_quants"),  # more of Q5_0 than 16 bits hold
    (TILES, "dots_add_narrow(i < steps ? start : d->dot[v][t]", "dots_add_narrow(start", "test_kernels"),  # the first of two sums of 16 bits is lost
    (AVX2, "return dots_set1(x->minus128);", "return dots_set1(act_base_bits(x));", "test_kernels"),  # AVX-VNNI: bytes stored plus 128 as they are
    # ---- chat templates --------------------------------------------------------------------------------------
    (JINJA % "str", "memcpy(b->marks + at, s->marks + from, to - from);", "(void)at;",
        "test_json_chat"),  # pieces lose whose they are
    (JINJA % "str", "t->marks = s->marks ? s->marks + from : NULL;", "t->marks = s->marks;",
        "test_json_chat"),  # a slice has the marks of the beginning
    (JINJA % "str", "a->p + a->len != buf->p + buf->len || ", "",
        "test_json_chat"),  # append in place over another string's end
    (JINJA % "json", "return value_of_str(marked_blend(j, &out));", "return value_of_str(marked_str(j, &out));",
        "test_json_chat"),  # a client's JSON in pieces of both kinds
    (JINJA % "jinja", "if (n > (size_t)j->steps)", "if (false)", "test_json_chat"),  # loops without end
    (JINJA % "eval", "if (r->calls == JINJA_MAX_CALLS)", "if (false)", "test_json_chat"),  # macros without end
    (JINJA % "eval", "        s->num = 0;\n", "", "test_json_chat"),  # a loop's variables outlive their turn
    (JINJA % "lex", "past = at + 2 + (trims && at + 2 < l->len && l->p[at + 2] == '\\n');", "past = at + 2;",
        "test_json_chat"),  # no trim_blocks
    (JINJA % "operators", "(r < 0) != (b < 0) ? r + b : r", "false ? r + b : r", "test_json_chat"),  # C's modulo
    (JINJA % "expr", "p->ifs || p->unknown", "p->unknown", "test_json_chat"),  # refuse what Jinja lets pass in an if
    (JINJA % "methods", "{\"append\", NULL, \"\", 0}", "{\"append\", list_copy_, \"*\", 0}",
        "test_json_chat"),  # the sandbox lets lists be changed
    # ---- CUDA kernels, on the emulator -----------------------------------------------------------------------
    (CUDA % "weight.c", "cuda_layout_of(desc->part[i].dtype) == LAYOUT_COUNT", "false",
            "test_emu_load"),  # take formats that it has no GEMM for
    (CUDA % "weight.c", "    if (rt_failed(dev->rt))\n        rt_wait(dev->rt, 0, err);\n    else\n", "", "test_emu_forward"),  # a device that failed at load is called too small
    (CUDA % "memory.c", "    if (rt_failed(dev->rt)) // it gives no memory either\n        return rt_wait(dev->rt, 0, err);\n", "",
         "test_emu_forward"),  # the same where the cache is made
    (CUDA % "attn.cuh", "    return kv_vector(kv, b, seq, pos, h) * (size_t)kv.head_dim;",
         "    return (size_t)((unsigned)kv_vector(kv, b, seq, pos, h) * (unsigned)kv.head_dim);",
         "test_emu_attention"),  # places in the cache counted in 32 bits
    (CUDA % "attn_decode.cu", "        kd_copy_wait<1>();\n        __syncwarp();\n        const float *scale = SCALED ? scales + stage * 2 * PAGE : NULL;",
         "        kd_copy_wait<2>();\n        __syncwarp();\n        const float *scale = SCALED ? scales + stage * 2 * PAGE : NULL;",
         "test_emu_attention"),  # large groups: a wait that is too weak
    (CUDA % "attn_decode.cu", "        __syncwarp();\n#pragma unroll\n        for (int g = 0; g < G; g++) {\n            float before", "#pragma unroll\n        for (int g = 0; g < G; g++) {\n            float before",
         "test_emu_attention"),  # scores are read before other lanes have written them
    (CUDA % "attn_decode.cu", "        __syncwarp(); // the stage and the scores are written again\n", "", "test_emu_attention"),  # a stage is written while others read it
    (CUDA % "attn_decode.cu", "    kd_copy_wait<0>();\n    __syncthreads(); // every warp is done with its stages\n    float *out = (float *)(void *)shared",
         "    kd_copy_wait<0>();\n    float *out = (float *)(void *)shared", "test_emu_attention"),  # combining warps writes over a ring in use
    (CUDA % "attn_decode.cu", "bool ok = page * PAGE + r >= it.begin && page * PAGE + r < it.end;", "bool ok = true;",
         "test_emu_attention"),  # NaN of slots that are not the sequence's
    (CUDA % "attn_decode.cu", "if (column == 0)\n                    scores[g * PAGE + r + sub] = t >= it.begin && t < it.end ? s[g] : -INFINITY;",
         "if (column == 0)\n                    scores[g * PAGE + r + sub] = t >= it.begin && t <= it.end ? s[g] : -INFINITY;",
         "test_emu_attention"),  # one token too many
    (CUDA % "attn_decode.cu", "                                      page + DECODE_WARPS, h, lane);\n        kd_copy_wait<1>();\n        __syncwarp();\n        const float *scale = SCALED ? scales + stage * 2 * PAGE",
         "                                      page + 1, h, lane);\n        kd_copy_wait<1>();\n        __syncwarp();\n        const float *scale = SCALED ? scales + stage * 2 * PAGE", "test_emu_attention"),  # a warp takes the pages of another
    (CUDA % "attn_decode.cu", "for (int bits = PER_ROW / 2; bits > 0; bits >>= 1)", "for (int bits = PER_ROW / 4; bits > 0; bits >>= 1)",
         "test_emu_attention"),  # half of a row is left out
    (CUDA % "attn_decode.cu", "STAGE = 2 * PAGE * HD * 2,\n        QUERY = 16 * HD * 2,", "STAGE = 2 * PAGE * HD * 2,\n        QUERY = 8 * HD * 2,",
         "test_emu_attention"),  # too little shared memory
    (CUDA % "attn_decode.cu", "        float o = 0;\n        for (int s = begin; s < end; s++)\n            o += rescale(p[(size_t)s * stride + (size_t)d], max) *",
         "        float o = 0;\n        for (int s = begin; s < end; s++)\n            o +=", "test_emu_attention"),  # split-KV partials are not rescaled
    (CUDA % "attn_prefill.cu", "        kd_copy_wait<1>();\n        __syncthreads();\n", "        kd_copy_wait<1>();\n", "test_emu_attention"),  # prefill: copies of other threads are not waited for
    (CUDA % "attn_prefill.cu", "        __syncthreads(); // the stage is written again\n", "", "test_emu_attention"),  # prefill: a stage is written while others read it
    (CUDA % "attn_prefill.cu", "        kd_copy_wait<1>();\n        __syncthreads();\n", "        kd_copy_wait<1>();\n        if (warp < 3)\n            __syncthreads();\n",
         "test_emu_attention"),  # a barrier that some do not reach
    (CUDA % "attn_prefill.cu", "kd_ldmatrix4_trans(b, values", "kd_ldmatrix4(b, values", "test_emu_attention"),  # values are not transposed
    (CUDA % "attn_prefill.cu", "bool seen = token <= p &&", "bool seen = token <= p + 1 &&", "test_emu_attention"),  # a row sees the token after it
    (CUDA % "attn_prefill.cu", "token > p - a.window)", "token >= p - a.window)", "test_emu_attention"),  # a window one token too wide
    (CUDA % "attn_decode.cu", "s[n][e] = t >= it.begin && t < it.end ? s[n][e] * scale[PAGE + t % PAGE] : 0;", "s[n][e] = s[n][e] * scale[PAGE + t % PAGE];",
         "test_emu_attention"),  # int8, large groups: the scale of a slot without a token
    (CUDA % "attn_decode.cu", "p = page * PAGE + t >= it.begin && page * PAGE + t < it.end ? p * scale[PAGE + t] : 0;", "p = p * scale[PAGE + t];",
         "test_emu_attention"),  # int8, small groups: the same
    (CUDA % "attn_decode.cu", "s[g] *= scale[r + sub];", "s[g] *= scale[r];", "test_emu_attention"),  # int8: the scale of another token
    (CUDA % "attn_prefill.cu", "2 * TOKENS, (int)threadIdx.x, PREFILL_THREADS);\n            __syncthreads();", "2 * TOKENS, (int)threadIdx.x, PREFILL_THREADS);",
         "test_emu_attention"),  # 8 bits: a tile is read before it is widened
    (CUDA % "attn_prefill.cu", "s[n][e] = token >= begin && token < end ? s[n][e] * scale[TOKENS + token % TOKENS] : 0;", "s[n][e] = s[n][e] * scale[TOKENS + token % TOKENS];",
         "test_emu_attention"),  # int8, prefill: the scale of a slot without a token
    (CUDA % "attn.cuh", "*(uint4 *)(void *)(to + r * HD * 2 + (((c + 1) ^ (r & 7)) << 4)) = high;", "*(uint4 *)(void *)(to + r * HD * 2 + ((c ^ (r & 7)) << 4)) = high;",
         "test_emu_attention"),  # 8 bits: half of a piece over the other
    (CUDA % "attn_wgmma.cu", "    kd_copy_wait<1>();\n    kd_shared_fence();\n", "    kd_copy_wait<1>();\n", "test_emu_attention"),  # wgmma: the first keys are not fenced
    (CUDA % "attn_wgmma.cu", "    kd_copy_wait<0>();\n    kd_shared_fence();\n", "    kd_copy_wait<0>();\n", "test_emu_attention"),  # wgmma: the next keys are not fenced
    (CUDA % "attn_wgmma.cu", "    kd_copy_wait<0>();\n    kd_shared_fence();\n", "    kd_copy_wait<1>();\n    kd_shared_fence();\n", "test_emu_attention"),  # wgmma: copies are not waited for
    (CUDA % "attn_wgmma.cu", "((c % 8 ^ r % 8) << 4)", "(c % 8 << 4)", "test_emu_attention"),  # wgmma: no swizzle
    (CUDA % "attn_wgmma.cu", "c / 8 * rows * ROW_BYTES", "c / 8 * ROW_BYTES", "test_emu_attention"),  # wgmma: blocks of columns over each other
    (CUDA % "attn_wgmma.cu", "kd_across_k(values, WIDE_TOKENS * ROW_BYTES, PATTERN)", "kd_across_k(values, PATTERN, WIDE_TOKENS * ROW_BYTES)",
         "test_emu_attention"),  # wgmma: the strides of values exchanged
    (CUDA % "attn_wgmma.cu", "kd_wgmma<HD, HALF, true>(o, p[k]", "kd_wgmma<HD, HALF, false>(o, p[k]", "test_emu_attention"),  # wgmma: values are not transposed
    (CUDA % "attn_wgmma.cu", "warp / 4 * GROUP_ROWS * ROW_BYTES", "0", "test_emu_attention"),  # wgmma: both warpgroups have the first's queries
    (CUDA % "attn_wgmma.cu", "k % 4 * 32)), k > 0);", "k % 4 * 32)), true);", "test_emu_attention"),  # wgmma: scores on top of the tile's before
    (CUDA % "attn_wgmma.cu", "        kd_wgmma_wait<1>(); // the scores\n", "", "test_emu_attention"),  # wgmma: scores are read before they are there
    (CUDA % "attn_wgmma.cu", "    kd_wgmma_wait<0>(); // outputs of the tiles before\n", "", "test_emu_attention"),  # wgmma: outputs are rescaled while they are added to
    (CUDA % "attn_wgmma.cu", "    kd_wgmma_wait<0>(); // the last outputs\n", "", "test_emu_attention"),  # wgmma: a block ends with wgmma in flight
    (CUDA % "attn_wgmma.cu", "    kd_wgmma_hold(p);\n    kd_wgmma_fence();\n", "    kd_wgmma_hold(p);\n", "test_emu_attention"),  # wgmma: registers are not fenced
    (CUDA % "attn_wgmma.cu", "    kd_shared_fence();\n    __syncthreads(); // and nobody", "    kd_shared_fence();\n    // and nobody", "test_emu_attention"),  # wgmma: a stage is written while others read it
    (CUDA % "attn_wgmma.cu", "o[i][e] *= f[e >> 1];", "o[i][e] *= 1;", "test_emu_attention"),  # wgmma: outputs are not rescaled
    (CUDA % "attn_wgmma.cu", "rows.sum[e] *= f[e];", "", "test_emu_attention"),  # wgmma: sums are not rescaled
    (CUDA % "attn_wgmma.cu", "base[e] = top[e] == -INFINITY ? 0 : -top[e];", "base[e] = -top[e];", "test_emu_attention"),  # wgmma: a row that saw nothing yet
    (CUDA % "attn_wgmma.cu", "bool seen = token <= p &&", "bool seen = token <= p + 1 &&", "test_emu_attention"),  # wgmma: a row sees the token after it
    (CUDA % "attn_wgmma.cu", "first + WIDE_TOKENS - 1 > rows.low", "first + WIDE_TOKENS - 1 > rows.high", "test_emu_attention"),  # wgmma: a tile that only some rows of a warp see whole
    (CUDA % "attn_wgmma.cu", "first <= rows.high - window", "first <= rows.low - window", "test_emu_attention"),  # wgmma: the same at the window's beginning
    (CUDA % "attn_wgmma.cu", "bool ok = pos + (int)(n * STEP) >= begin && pos + (int)(n * STEP) < end;", "bool ok = pos + (int)(n * STEP) >= begin;",
         "test_emu_attention"),  # wgmma: slots past the end
    (CUDA % "attn_prefill.cu", "strcmp(wgmma, \"1\") == 0 &&", "true &&", "test_emu_attention"),  # wgmma where nobody asked for it
    (CUDA % "work.c", "(r -= c->tile_rows) >= 0;)", "(r -= 2 * c->tile_rows) >= 0;)", "test_emu_work"),  # half of the tiles
    (CUDA % "work.c", "    sort_tiles(a, c->tile_rows, tiles, n);\n", "    sort_tiles(a, c->tile_rows, tiles, 0);\n", "test_emu_work"),  # the lightest tile of a long prompt comes before the heaviest of others
    (CUDA % "work.c", "t->position + t->first / a->group - a->window + 1 : 0;", "t->position : 0;", "test_emu_work"),  # what a tile reads, without its window
    (CUDA % "emu/wgmma.cpp", "return at ^ ((at >> 7 & (w - 1)) << 4);", "return at;", "test_emu_intrinsics"),  # emulator: no swizzle
    (CUDA % "emu/wgmma.cpp", "        memset(s.d[l], 0xff, sizeof(float) * (size_t)(n / 2)); // what was there must not look valid\n", "", "test_emu_intrinsics"),  # emulator: sums can be read in flight
    (CUDA % "emu/wgmma.cpp", "    w->fenced = false; // whoever waited may touch registers now\n", "", "test_emu_intrinsics"),  # emulator: one fence is enough
    (CUDA % "emu/wgmma.cpp", "if (b->writer[l.piece] == l.number)", "if (l.number == 0)", "test_emu_attention"),  # emulator: fences are not seen
    (CUDA % "emu/wgmma.cpp", "if (r.known && r.n == n && digest(r) != r.fenced)", "if (false)", "test_emu_intrinsics"),  # emulator: registers written behind the fence
    (CUDA % "emu/wgmma.cpp", "if (b->warps[i].history != b->warps[i / 4 * 4].history)", "if (false)", "test_emu_intrinsics"),  # emulator: warps that do not do the same
    (CUDA % "qkv.cu", "!finite || max < 7.88860905e-31f; // 2^-100", "!finite || max == 0;", "test_emu_rows"),  # int8: vectors too small for a scale
    (CUDA % "qkv.cu", "finite = __ballot_sync(ALL_LANES, finite) == ALL_LANES;", "__syncwarp();", "test_emu_rows"),  # int8: a NaN that lane 0 does not see
    (CUDA % "intrinsics.h", "    if (a >= 0x43e80000u)\n        return (uint8_t)(sign | 0x7eu);\n    if (a >= 0x3c800000u)\n        return (uint8_t)(sign | (a - ", "    if (a >= 0x3c800000u)\n        return (uint8_t)(sign | (a - ",
         "test_emu_intrinsics"),  # fp8: large numbers wrap around
    (CUDA % "ranks.cu", "bool go = peer_barrier(a.peers, epoch + 1, arrived);", "bool go = true;", "test_emu_ranks"),  # parts are added before they are there
    (CUDA % "ranks.cu", "    peer_barrier(a.peers, epoch + 2, arrived);\n    if (threadIdx.x == 0)\n        a.peers.epochs[blockIdx.x] = epoch + 2;\n}\n\n// Rank", "    if (threadIdx.x == 0)\n        a.peers.epochs[blockIdx.x] = epoch + 2;\n}\n\n// Rank",
         "test_emu_ranks"),  # a part is written while others read it
    (CUDA % "ranks.cu", "v[r] = add4(v[2 * r], v[2 * r + 1]);", "v[r] = add4(v[r], v[r + n / 2]);", "test_emu_ranks"),  # another tree
    (CUDA % "ranks.cu", "float max = num < 0 ? NAN : -INFINITY;", "float max = -INFINITY;", "test_emu_ranks"),  # a rank's row that is not finite is sampled from
    (CUDA % "ranks.cu", "            if (a.bias)\n                v = add4(v,", "            if (a.bias && a.peers.rank == 0)\n                v = add4(v,", "test_emu_ranks"),  # a bias on one rank alone
    (CUDA % "sample.cu", "topk->ids[at] = a.begin + i;", "topk->ids[at] = i;", "test_emu_ranks"),  # local top-k by its place among a rank's tokens
    (CUDA % "sample.cu", "if (d.adjusted < 0 || row.row < 0 || topk != TOPK)", "if (d.adjusted < 0 || row.row < 0 || TOPK)", "test_emu_ranks"),  # local top-k before entries and mask
    (CUDA % "gemm.cu", "return (red[0] + red[stride]) + (red[2 * stride] + red[3 * stride]);", "return ((red[0] + red[stride]) + red[2 * stride]) + red[3 * stride];",
         "test_emu_ranks"),  # a rank's segments in another order
    (CUDA % "gemm.cu", "    __syncthreads();\n    finish<NT>(a, red, tile, m0);", "    finish<NT>(a, red, tile, m0);", "test_emu_gemm"),  # segments are added before they are there
    (CUDA % "gemm.cu", "kd_grid_wait(); // weights do not depend on the kernel before, x does", "", "test_emu_gemm"),  # x is read before the kernel before has written it
    (CUDA % "gemm.cu", "ring[u] = load_fragment<F>(a.w, tile, s + u + RING, lane);", "ring[u] = load_fragment<F>(a.w, tile, s + u + 1, lane);",
         "test_emu_gemm"),  # the ring holds the wrong step
    (CUDA % "gemm.cu", "return (int)((long long)steps * i / SEGMENTS);", "return steps / SEGMENTS * i;", "test_emu_gemm"),  # the last steps are left out
    (CUDA % "gemm.cu", "r.second[i] = both * (float)(int8_t)(s >> (16 + 8 * i));", "r.second[i] = both * (float)(uint8_t)(s >> (16 + 8 * i));",
         "test_emu_gemm"),  # scales of Q6_K without a sign
    (CUDA % "gemm.cu", "if (nan >> (kd_lane() & 16) & 0xffffu)", "if (false)", "test_emu_gemm"),  # a NaN among logits is lost
    (CUDA % "gemm.cu", "float s0 = red[0] + red[stride], s1 = red[2 * stride] + red[3 * stride];",
         "float s0 = red[0] + red[stride], s1 = red[2 * stride] + red[2 * stride];", "test_emu_gemm"),  # a segment twice, another never
    (CUDA % "pack.cu", "word[0] |= q << (i / 2 * 4 + i % 2 * 16);", "word[0] |= q << (i * 4);", "test_emu_gemm"),  # nibbles in the order of the file
    (CUDA % "qkv.cu", "    __syncwarp();\n    if (kind < 2) {", "    if (kind < 2) {", "test_emu_rows"),  # a head is rotated before it is whole
    (CUDA % "qkv.cu", "    if (slot < 0)\n        return;", "", "test_emu_rows"),  # padding is written somewhere
    (CUDA % "sample.cu", "    if (u == 0x80000000u)\n        u = 0;\n", "", "test_emu_sample"),  # -0 below +0
    (CUDA % "sample.cu", "        __syncthreads();\n        above = s->before;", "        above = s->before;", "test_emu_sample"),  # the digit of another thread is read before it is written
    (CUDA % "sample.cu", "        __syncthreads(); // entries of one token come in order: one a pass\n", "", "test_emu_sample"),  # entries of one token in any order
    (CUDA % "sample.cu", "largest = max[g] < INFINITY ? fmaxf(largest, max[g]) : INFINITY;", "largest = fmaxf(largest, max[g]);",
         "test_emu_sample"),  # a row that holds NaN is sampled from
    (CUDA % "sample.cu", "mass_t need = share < 1 ? 1 :", "mass_t need =", "test_emu_sample"),  # top-p 0 keeps nothing
    (CUDA % "sample.cu", "(key == v.last_key && id <= v.last_id)", "key == v.last_key", "test_emu_sample"),  # ties at the end of top-k
    (CUDA % "sample.cu", "to[i] = 2 * i + 1 < n ? kd_add(from[2 * i], from[2 * i + 1]) : from[2 * i];", "to[i] = kd_add(from[2 * i], 2 * i + 1 < n ? from[2 * i + 1] : from[2 * i]);",
         "test_emu_sample"),  # the odd group out is counted twice
    (CUDA % "work.c", "if (n == 0 || seen[entries[i].token] == *stamp) {", "if (n == 0) {", "test_emu_sample"),  # entries of a token at once
    (CUDA % "step.c", "        if (g->num_tokens == tokens && same_splits && g->adjusts == key.adjusts)", "        if (g->num_tokens == tokens && same_splits)",
         "test_emu_steps"),  # a graph without entries replays a step that has some
    (CUDA % "work.c", "        slots[t] = -1;\n", "        slots[t] = 0;\n", "test_emu_steps"),  # padding rows write a block
    (CUDA % "multiply.c", "w->layout != LAYOUT_F32 ? dev->work.num_decode : m;", "w->layout != LAYOUT_F32 ? 0 : m;",
         "test_emu_forward"),  # decodes go through cuBLASLt beside a long prompt
    (CUDA % "multiply.c", "others > CUDA_TOKENS && !dev->exact && ", "others > CUDA_TOKENS && ", "test_emu_forward"),  # exact: long prompts go through cuBLASLt
    (CUDA % "phases.c", "    else if (!dev->exact)\n        attend_splits(dev, layer);", "    else if (true)\n        attend_splits(dev, layer);", "test_emu_forward"),  # exact: decodes alone take the kernel of decodes
    (CUDA % "work.c", "c->exact ? 0 : step->num_decode", "step->num_decode", "test_emu_work"),  # exact: no tiles for rows that decode
    (CUDA % "multiply.c", "    int others = m - dev->work.num_decode;\n", "    int others = m;\n", "test_emu_forward"),  # a short prompt beside decodes leaves the skinny GEMM
    (CUDA % "multiply.c", ".scale = half ? x->scale + first : NULL,", ".scale = half ? x->scale : NULL,", "test_emu_forward"),  # cuBLASLt's rows get the factors of the first ones
    (CUDA % "peers.c", "        shot = dev->work.num_decode;\n", "        shot = 0;\n", "test_emu_ranks"),  # decodes are added by NCCL beside a long prompt
    (CUDA % "phases.c", ".split0 = list->one_launch ? 0 : first[row],", ".split0 = 0,", "test_emu_forward"),  # every launch of decode takes the first one's splits
    (CUDA % "work.c", "first_split[end + 1] - first_split[row] <= max_splits)", "first_split[end] - first_split[row] <= max_splits)", "test_emu_forward"),  # a launch has a row too many
    (CUDA % "step.c", "    if (dev->num_graphs == dev->max_graphs)\n        return NULL;\n", "    if (dev->num_graphs == dev->max_graphs)\n        return &dev->graphs[0];\n",
         "test_emu_steps"),  # a bucket beyond those that are kept replays another
    (CUDA % "step.c", "    rt_upload(dev->rt, dev->staging, dev->upload[slot], dev->work.bytes);\n",
         "    rt_upload(dev->rt, dev->staging, dev->upload[slot], 16);\n    rt_upload(dev->rt, dev->staging, dev->upload[slot], dev->work.bytes);\n", "test_emu_steps"),  # two uploads a step
    (CUDA % "ranks.cu", "        for (int k = i * CUDA_GROUP; k < (i + 1) * CUDA_GROUP && k < num; k++)", "        for (int k = i * CUDA_GROUP; k < (i + 1) * CUDA_GROUP; k++)",
         "test_emu_ranks"),  # maxima of a local top-k that is not there
    (CUDA % "rows.cu", "    if (i >= a.n)\n        return;\n    float v = a.x[row", "    float v = a.x[row", "test_emu_rows"),  # a GEMM of cuBLASLt writes past its columns
    (CUDA % "pack.cu", "i += SCATTER_BLOCKS * SCATTER_THREADS)", "i += 2 * SCATTER_BLOCKS * SCATTER_THREADS)", "test_emu_rows"),  # half of a long part of an upload
    (CUDA % "step.c", "bool same_splits = memcmp(g->max_splits, key.max_splits, sizeof key.max_splits) == 0;", "bool same_splits = true;", "test_emu_steps"),  # a graph replays a step with more splits of a spec
    (CUDA % "step.c", "    if (step->masks && step->masks_wait)\n", "    if (false)\n", "test_emu_steps"),  # masks are read before they are there
    (CUDA % "phases.c", ".slots = dev->inputs.groups[layer->kv_group].slots,", ".slots = dev->inputs.groups[0].slots,", "test_emu_forward"),  # every layer writes to the pages of the first group
    (CUDA % "phases.c", "int spec = layer->attn.index, rows = dev->work.num_decode;", "int spec = 0, rows = dev->work.num_decode;", "test_emu_forward"),  # every layer decodes by the splits of the first spec
    (CUDA % "phases.c", ".tile_rows = dev->work_config.tile_rows,\n                             .window = layer->attn.window};", ".tile_rows = dev->work_config.tile_rows,\n                             .window = dev->model.attn[0].window};", "test_emu_forward"),  # every layer has the window of the first
    (CUDA % "phases.c", ".rope_pairs = rope ? rope->dim / 2 : 0,", ".rope_pairs = dev->model.ropes[0].dim / 2,", "test_emu_forward"),  # positions rotate in every layer
    (CUDA % "work.c", ".begin = at > begin ? at : begin,", ".begin = at,", "test_emu_steps"),  # decode reads what a window gave back
    (CUDA % "phases.c", "a.of = &dev->inputs.rows[first].row;", "a.of = &dev->inputs.rows[0].row;", "test_emu_steps"),  # hidden states of the first rows for those that follow
    (CUDA % "phases.c", "    float *to = dev->result[dev->num_begun & 1].hidden;\n", "    float *to = dev->result[0].hidden;\n", "test_emu_steps"),  # hidden states of two steps in one place
    (CUDA % "kv.c", ".num = 2 * dev->model.kv_layers,", ".num = dev->model.kv_layers,", "test_emu_steps"),  # a page is copied without its values
    (CUDA % "kv.c", "        if (!dev->key_scales)\n            continue;", "        continue;", "test_emu_steps"),  # and without the scales of int8
    (CUDA % "attn_prefill.cu", "int begin = a.window > 0 ? t.position + t.first / G + 1 - a.window : 0;", "int begin = a.window > 0 ? t.position + t.first / G + 1 - a.window - KV_TILE : 0;", "test_emu_attention"),  # prefill reads pages that a window gave back
    (CUDA % "attn_wgmma.cu", "int begin = a.window > 0 ? t.position + t.first / G + 1 - a.window : 0;", "int begin = a.window > 0 ? t.position + t.first / G + 1 - a.window - KV_TILE : 0;", "test_emu_attention"),  # wgmma: the same
    (ENGINE, "    if ((named || backend_cuda_at_hand()) &&", "    if (backend_cuda_at_hand() &&", "test_emu_load"),  # auto falls back without a word
    (ENGINE, "    depth = depth < PLAN_MAX_DEPTH ? depth : PLAN_MAX_DEPTH; // there may be more stages\n", "", "test_ranks"),  # as many plans as stages
    (CUDA % "emu/emu.cpp", "    memset(dst, 0xff, (size_t)bytes); // what was there must not look valid\n", "", "test_emu_intrinsics"),  # a copy lands before it is waited for
    # ---- fields of a request
    (OPENAI_PARSE, "if (other && other != given && !same_value(other, v)) {", "if (false) {",
            "test_server_openai"),  # two names, two values: one is dropped
    (OPENAI_PARSE, "field_rule_has(alias, given) ? json_integer(INT_MAX) : json_incref(given)", "json_incref(given)",
            "test_server_openai"),  # -1 is no limit but a bad one
    (FIELD_RULES, "if (v && !field_rule_has(rule, v))", "if (v)", "test_server_openai"),  # values that ask for nothing are refused
    (FIELD_RULES, "if (v && !field_rule_has(rule, v))", "if (false)", "test_server_openai"),  # nothing is refused
    (OPENAI_PARSE, "if (r->priority != 0 && !m->has_priorities)", "if (false)", "test_server_openai"),  # a priority without an effect
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


def run(cmd, cwd, timeout):
    """(exit status or None when it hung, output)"""
    env = dict(os.environ, QUIRE_SIM_REQUESTS=SIM_REQUESTS)
    env.setdefault("QUIRE_TEST_DATA", os.path.join(ROOT, "..", "shared", "data"))  # the copy has none beside it
    env.pop("QUIRE_SIM_SEED", None)
    p = subprocess.Popen(cmd, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors="replace")
    try:
        out, _ = p.communicate(timeout=timeout)
        return p.returncode, out
    except subprocess.TimeoutExpired:
        p.kill()
        p.communicate()
        return None, ""


def try_mutant(tree, build, row):
    """'caught', 'SURVIVED', or what is wrong with the row"""
    path, old, new, test = row
    name = os.path.join(tree, path)
    with open(name, encoding="utf-8") as f:
        text = f.read()
    if text.count(old) != 1:
        return f"ERROR: old text found {text.count(old)} times"
    try:
        with open(name, "w", encoding="utf-8") as f:
            f.write(text.replace(old, new))
        status, out = run(["ninja", "-C", build, test], tree, 600)
        if status != 0:
            print(out[-2000:], file=sys.stderr)
            return "ERROR: does not compile"
        status, _ = run([find_program(build, test)], tree, TIMEOUT)
        return "SURVIVED" if status == 0 else "caught (hung)" if status is None else "caught"
    finally:
        with open(name, "w", encoding="utf-8") as f:
            f.write(text)


def find_program(build, test):
    for folder, _, files in os.walk(build):
        if test in files and os.access(os.path.join(folder, test), os.X_OK):
            return os.path.join(folder, test)
    sys.exit(f"no program {test} under {build}")


def bugs():
    """What the bug of each row is called: the comment behind it."""
    with open(os.path.abspath(__file__), encoding="utf-8") as f:
        notes = re.findall(r'"test_\w+"\),\s+# (.*)$', f.read(), re.MULTILINE)
    if len(notes) != len(MUTATIONS):
        sys.exit(f"{len(MUTATIONS)} rows, {len(notes)} comments behind them")
    return notes


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def chosen(words):
    return [i for i, row in enumerate(MUTATIONS) if not words or any(w in row[0] or w in row[3] for w in words)]


def print_list(words):
    """Files as headings; below each the test that must fail, and the bug."""
    notes, last = bugs(), None
    for i in chosen(words):
        path, test = MUTATIONS[i][0], MUTATIONS[i][3]
        if path != last:
            print(("\n" if last else "") + path)
        print(f"  {test:20} {notes[i]}")
        last = path
    print(f"\n{len(chosen(words))} of {len(MUTATIONS)} mutations")


def check():
    """Rows rot where the code changes: exit status 1 and a line for each that no longer says anything."""
    bad = [f"{path}: found {read(path).count(old)} times: {old!r}" for path, old, _, _ in MUTATIONS if read(path).count(old) != 1]
    bugs()
    marks = run(["git", "grep", "-nE", "^(<{7}|>{7}) "], ROOT, 60)  # left by a merge
    bad += marks[1].splitlines() if marks[0] == 0 else []
    print("\n".join(bad) or f"{len(MUTATIONS)} rows apply")
    return 1 if bad else 0


def main():
    if sys.argv[1:2] == ["--list"]:
        print_list(sys.argv[2:])
        return 0
    if sys.argv[1:] == ["--check"]:
        return check()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    words = sys.argv[1:]
    rows = [MUTATIONS[i] for i in chosen(words)]
    needs_server = any(r[3].startswith(("test_json_", "test_server_")) for r in rows)
    os.environ.setdefault("QUIRE_TEST_DATA", os.path.join(os.path.dirname(root), "shared", "data"))
    if not os.path.isdir(os.environ["QUIRE_TEST_DATA"]):
        print(f"no test data at {os.environ['QUIRE_TEST_DATA']}: mutants survive whose tests need it", file=sys.stderr)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="quire-mutate-") as tmp:
        tree, build = os.path.join(tmp, "tree"), os.path.join(tmp, "build")
        shutil.copytree(root, tree, ignore=shutil.ignore_patterns(".git", "build", "build-*"))
        status, out = run(["cmake", "-S", tree, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                           "-DQUIRE_SERVER=" + ("ON" if needs_server else "OFF")], tree, 300)
        if status != 0:
            sys.exit(out)
        for test in sorted({r[3] for r in rows}):  # the sound programs pass, or nothing below means anything
            status, out = run(["ninja", "-C", build, test], tree, 900)
            if status == 0:
                status, out = run([find_program(build, test)], tree, TIMEOUT)
            if status != 0:
                print(out)
                print(f"{test} fails without a mutation")
                print(f"0 passed, {len(rows)} failed")
                return 1
        for row in rows:
            result = try_mutant(tree, build, row)
            failed += not result.startswith("caught")
            print(f"{result:14} {row[3]:18} {row[0]:26} {' '.join(row[1].split())[:70]}", flush=True)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
