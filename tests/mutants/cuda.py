"""Mutants: CUDA kernels, on the emulator. tests/mutate.py says what a row is."""

KV = "engine/kv_cache.c"
GEMM = "kernels/cpu/gemm.c"
ENGINE = "engine/engine.c"
CUDA = "kernels/cuda/%s"

ROWS = [
    # ---- CUDA kernels, on the emulator -----------------------------------------------------------------------
    (CUDA % "weight.c", "desc->part[0].dtype != desc->part[1].dtype) {", "false) {", "test_emu_load"),  # take experts that it has no GEMM for
    (CUDA % "weight.c", "    if (rt_failed(dev->rt))\n        rt_wait(dev->rt, 0, err);\n    else\n", "", "test_emu_forward"),  # a device that failed at load is called too small
    (CUDA % "weight.c", "if (rt_wait(dev->rt, *buffer, NULL) != STATUS_OK)", "if (rt_failed(dev->rt))", "test_emu_forward"),  # a buffer is written while it is copied from
    (CUDA % "weight.c", "first * (interleave ? 2 : 1)", "first", "test_emu_forward"),  # gates and ups of two pieces in one place
    (CUDA % "memory.c", "    cuda_loading_free(dev);\n    size_t workspace", "    size_t workspace", "test_emu_forward"),  # buffers of the load take memory of the cache
    (CUDA % "memory.c", "    if (rt_failed(dev->rt)) // it gives no memory either\n        return rt_wait(dev->rt, 0, err);\n", "",
         "test_emu_forward"),  # the same where the cache is made
    (CUDA % "attn.cuh", "    return kv_vector(kv, b, seq, pos, h) * (size_t)kv.head_dim;",
         "    return (size_t)((unsigned)kv_vector(kv, b, seq, pos, h) * (unsigned)kv.head_dim);",
         "test_emu_attention"),  # places in the cache counted in 32 bits
    (CUDA % "attn_decode.cu", "        kd_copy_wait<1>();\n        __syncwarp();\n        const float *scale = SCALED ? scales + stage * 2 * PAGE : NULL;",
         "        kd_copy_wait<2>();\n        __syncwarp();\n        const float *scale = SCALED ? scales + stage * 2 * PAGE : NULL;",
         "test_emu_attention", "test_decode"),  # large groups: a wait that is too weak
    (CUDA % "attn_decode.cu", "        __syncwarp();\n        if (a.softcap > 0) {", "        if (a.softcap > 0) {",
         "test_emu_attention", "test_decode"),  # scores are read before other lanes have written them
    (CUDA % "attn_decode.cu", "        __syncwarp(); // the stage and the scores are written again\n", "", "test_emu_attention", "test_decode"),  # a stage is written while others read it
    (CUDA % "attn_decode.cu", "    kd_copy_wait<0>();\n    __syncthreads(); // every warp is done with its stages\n    float *out = (float *)(void *)shared",
         "    kd_copy_wait<0>();\n    float *out = (float *)(void *)shared", "test_emu_attention", "test_decode"),  # combining warps writes over a ring in use
    (CUDA % "attn_decode.cu", "bool ok = page * PAGE + r >= it.begin && page * PAGE + r < it.end;", "bool ok = true;",
         "test_emu_attention", "test_decode"),  # NaN of slots that are not the sequence's
    (CUDA % "attn_decode.cu", "if (column == 0)\n                    scores[g * PAGE + r + sub] = t >= it.begin && t < it.end ? s[g] : -INFINITY;",
         "if (column == 0)\n                    scores[g * PAGE + r + sub] = t >= it.begin && t <= it.end ? s[g] : -INFINITY;",
         "test_emu_attention", "test_decode"),  # one token too many
    (CUDA % "attn_decode.cu", "                                      page + DECODE_WARPS<HD>, h, lane);\n        kd_copy_wait<1>();\n        __syncwarp();\n        const float *scale = SCALED ? scales + stage * 2 * PAGE",
         "                                      page + 1, h, lane);\n        kd_copy_wait<1>();\n        __syncwarp();\n        const float *scale = SCALED ? scales + stage * 2 * PAGE", "test_emu_attention", "test_decode"),  # a warp takes the pages of another
    (CUDA % "attn_decode.cu", "for (int bits = PER_ROW / 2; bits > 0; bits >>= 1)", "for (int bits = PER_ROW / 4; bits > 0; bits >>= 1)",
         "test_emu_attention", "test_decode"),  # half of a row is left out
    (CUDA % "attn_decode.cu", "STAGE = 2 * PAGE * HD * 2,\n        QUERY = 16 * HD * 2,", "STAGE = 2 * PAGE * HD * 2,\n        QUERY = 8 * HD * 2,",
         "test_emu_attention", "test_decode"),  # too little shared memory
    (CUDA % "attn_decode.cu", "        sum += sink_part(a.sinks, head, max);\n", "", "test_emu_attention"),  # sinks take no part
    (CUDA % "attn_prefill.cu", "sum[e] += sink_part(a.sinks, h * G + packed % G, max[e]);", "sum[e] += sink_part(a.sinks, h * G, max[e]);", "test_emu_attention"),  # prefill: the sink of a group's first head
    (CUDA % "attn_prefill.cu", "s = cap_score(s) * (a.softcap * LOG2_E);", "s = s * (a.softcap * LOG2_E);", "test_emu_attention"),  # scores without their cap
    (CUDA % "attn.cuh", "s[n][e] = cap_score(s[n][e] * scale);", "s[n][e] = s[n][e] * scale;", "test_emu_attention"),  # the same on tensor cores
    (CUDA % "attn_decode.cu", "scores[i] = cap_score(scores[i]) *", "scores[i] = scores[i] *", "test_emu_attention"),  # the same of small groups
    (CUDA % "attn_decode.cu", "SEARCH = LANES < 32 ? LANES : 32", "SEARCH = LANES", "test_emu_attention"),  # heads of 256: lanes that a warp does not have
    (CUDA % "attn_prefill.cu", "first[e] = seen.begin, last[e] = seen.end - 1;", "first[e] = seen.begin, last[e] = t.position + t.num_rows / G - 1;", "test_emu_attention"),  # prefill: a row sees all rows of its prompt
    (CUDA % "attn.cuh", "int before = chunked && window > 0 ? position % window : window - 1;", "int before = window - 1;", "test_emu_attention"),  # chunks are windows
    (CUDA % "work.c", "begin = kv_first_seen(end - 1, a->window, a->chunked);", "begin = kv_first_seen(end - 1, a->window, false);", "test_emu_work"),  # the same, of decode's splits
    (CUDA % "phases.c", "    if (layer->attn_gate)\n        cuda_gate", "    if (false)\n        cuda_gate", "test_emu_kinds"),  # attention without its gate
    (CUDA % "attn_decode.cu", "            float f = rescale(stat.x, max);", "            float f = 1;", "test_emu_attention", "test_decode"),  # split-KV partials are not rescaled
    (CUDA % "attn_decode.cu", "(uint32_t)num - 1) == (uint32_t)num - 1;", "(uint32_t)num - 1) == 0;",
         "test_emu_attention", "test_decode"),  # the first split to arrive combines what the others have not left
    (CUDA % "attn_decode.cu", "(uint32_t)num - 1) == (uint32_t)num - 1;", "(uint32_t)num) == (uint32_t)num - 1;",
         "test_emu_attention", "test_decode"),  # splits that have arrived are counted on in the next launch
    (CUDA % "attn_decode.cu", "    }\n    __syncthreads();\n    if (*is_last)", "    }\n    if (*is_last)", "test_emu_attention", "test_decode"),  # whether a split is the last is read before it is known
    (CUDA % "attn_prefill.cu", "        kd_copy_wait<1>();\n        __syncthreads();\n", "        kd_copy_wait<1>();\n", "test_emu_attention", "test_prefill"),  # prefill: copies of other threads are not waited for
    (CUDA % "attn_prefill.cu", "        __syncthreads(); // the stage is written again\n", "", "test_emu_attention", "test_prefill"),  # prefill: a stage is written while others read it
    (CUDA % "attn_prefill.cu", "        kd_copy_wait<1>();\n        __syncthreads();\n", "        kd_copy_wait<1>();\n        if (warp < 3)\n            __syncthreads();\n",
         "test_emu_attention", "test_prefill"),  # a barrier that some do not reach
    (CUDA % "attn_prefill.cu", "kd_ldmatrix4_trans(b, values", "kd_ldmatrix4(b, values", "test_emu_attention", "test_prefill"),  # values are not transposed
    (CUDA % "attn_prefill.cu", "token <= last[e >> 1] &&", "token <= last[e >> 1] + 1 &&", "test_emu_attention", "test_prefill"),  # a row sees the token after it
    (CUDA % "attn_prefill.cu", "token >= first[e >> 1];", "token >= first[e >> 1] - 1;", "test_emu_attention", "test_prefill"),  # a window one token too wide
    (CUDA % "attn_decode.cu", "s[n][e] = t >= it.begin && t < it.end ? s[n][e] * scale[PAGE + t % PAGE] : 0;", "s[n][e] = s[n][e] * scale[PAGE + t % PAGE];",
         "test_emu_attention"),  # int8, large groups: the scale of a slot without a token
    (CUDA % "attn_decode.cu", "p = page * PAGE + t >= it.begin && page * PAGE + t < it.end ? p * scale[PAGE + t] : 0;", "p = p * scale[PAGE + t];",
         "test_emu_attention"),  # int8, small groups: the same
    (CUDA % "attn_decode.cu", "s[g] *= scale[r + sub];", "s[g] *= scale[r];", "test_emu_attention", "test_decode"),  # int8: the scale of another token
    (CUDA % "attn_prefill.cu", "2 * TOKENS, (int)threadIdx.x, PREFILL_THREADS);\n            __syncthreads();", "2 * TOKENS, (int)threadIdx.x, PREFILL_THREADS);",
         "test_emu_attention"),  # 8 bits: a tile is read before it is widened
    (CUDA % "attn_prefill.cu", "s[n][e] = token >= begin && token < end ? s[n][e] * scale[TOKENS + token % TOKENS] : 0;", "s[n][e] = s[n][e] * scale[TOKENS + token % TOKENS];",
         "test_emu_attention"),  # int8, prefill: the scale of a slot without a token
    (CUDA % "attn.cuh", "*(uint4 *)(void *)(to + r * HD * 2 + (((c + 1) ^ (r & 7)) << 4)) = high;", "*(uint4 *)(void *)(to + r * HD * 2 + ((c ^ (r & 7)) << 4)) = high;",
         "test_emu_attention"),  # 8 bits: half of a piece over the other
    (CUDA % "attn_wgmma.cu", "    kd_copy_wait<1>();\n    kd_shared_fence();\n", "    kd_copy_wait<1>();\n", "test_emu_attention"),  # wgmma: the first keys are not fenced
    (CUDA % "attn_wgmma.cu", "    kd_copy_wait<0>();\n    kd_shared_fence();\n", "    kd_copy_wait<0>();\n", "test_emu_attention", "test_wide_prefill"),  # wgmma: the next keys are not fenced
    (CUDA % "attn_wgmma.cu", "    kd_copy_wait<0>();\n    kd_shared_fence();\n", "    kd_copy_wait<1>();\n    kd_shared_fence();\n", "test_emu_attention"),  # wgmma: copies are not waited for
    (CUDA % "attn_wgmma.cu", "((c % 8 ^ r % 8) << 4)", "(c % 8 << 4)", "test_emu_attention", "test_wide_prefill"),  # wgmma: no swizzle
    (CUDA % "attn_wgmma.cu", "c / 8 * rows * ROW_BYTES", "c / 8 * ROW_BYTES", "test_emu_attention"),  # wgmma: blocks of columns over each other
    (CUDA % "attn_wgmma.cu", "kd_across_k(values, WIDE_TOKENS * ROW_BYTES, PATTERN)", "kd_across_k(values, PATTERN, WIDE_TOKENS * ROW_BYTES)",
         "test_emu_attention"),  # wgmma: the strides of values exchanged
    (CUDA % "attn_wgmma.cu", "kd_wgmma<HD, HALF, true>(o, p[k]", "kd_wgmma<HD, HALF, false>(o, p[k]", "test_emu_attention"),  # wgmma: values are not transposed
    (CUDA % "attn_wgmma.cu", "warp / 4 * GROUP_ROWS * ROW_BYTES", "0", "test_emu_attention"),  # wgmma: both warpgroups have the first's queries
    (CUDA % "attn_wgmma.cu", "k % 4 * 32)), k > 0);", "k % 4 * 32)), true);", "test_emu_attention"),  # wgmma: scores on top of the tile's before
    (CUDA % "attn_wgmma.cu", "        kd_wgmma_wait<1>(); // the scores\n", "", "test_emu_attention", "test_wide_prefill"),  # wgmma: scores are read before they are there
    (CUDA % "attn_wgmma.cu", "    kd_wgmma_wait<0>(); // outputs of the tiles before\n", "", "test_emu_attention", "test_wide_prefill"),  # wgmma: outputs are rescaled while they are added to
    (CUDA % "attn_wgmma.cu", "    kd_wgmma_wait<0>(); // the last outputs\n", "", "test_emu_attention"),  # wgmma: a block ends with wgmma in flight
    (CUDA % "attn_wgmma.cu", "    kd_wgmma_hold(p);\n    kd_wgmma_fence();\n", "    kd_wgmma_hold(p);\n", "test_emu_attention"),  # wgmma: registers are not fenced
    (CUDA % "attn_wgmma.cu", "    kd_shared_fence();\n    __syncthreads(); // and no thread", "    kd_shared_fence();\n    // and nobody", "test_emu_attention", "test_wide_prefill"),  # wgmma: a stage is written while others read it
    (CUDA % "attn_wgmma.cu", "o[i][e] *= f[e >> 1];", "o[i][e] *= 1;", "test_emu_attention", "test_wide_prefill"),  # wgmma: outputs are not rescaled
    (CUDA % "attn_wgmma.cu", "rows.sum[e] *= f[e];", "", "test_emu_attention"),  # wgmma: sums are not rescaled
    (CUDA % "attn_wgmma.cu", "base[e] = top[e] == -INFINITY ? 0 : -top[e];", "base[e] = -top[e];", "test_emu_attention"),  # wgmma: a row that saw nothing yet
    (CUDA % "attn_wgmma.cu", "token <= rows.last[e >> 1] &&", "token <= rows.last[e >> 1] + 1 &&", "test_emu_attention"),  # wgmma: a row sees the token after it
    (CUDA % "attn_wgmma.cu", "seen_from(t.position + (first_row < most ? first_row : most) / G", "seen_from(t.position + (first_row + 15 < most ? first_row + 15 : most) / G", "test_emu_attention"),  # wgmma: a tile that only some rows of a warp see whole
    (CUDA % "attn_wgmma.cu", "rows.from = seen_from(t.position + (first_row + 15 < most ? first_row + 15 : most) / G", "rows.from = seen_from(t.position + (first_row < most ? first_row : most) / G", "test_emu_attention"),  # wgmma: the same at the window's beginning
    (CUDA % "attn_wgmma.cu", "bool ok = pos + (int)(n * STEP) >= begin && pos + (int)(n * STEP) < end;", "bool ok = pos + (int)(n * STEP) >= begin;",
         "test_emu_attention"),  # wgmma: slots past the end
    (CUDA % "gemm_wgmma.cu", "strcmp(asked, \"1\") == 0 &&", "true &&", "test_emu_attention"),  # wgmma where nobody asked for it
    (CUDA % "work.c", "(r -= c->tile_rows) >= 0;)", "(r -= 2 * c->tile_rows) >= 0;)", "test_emu_work"),  # half of the tiles
    (CUDA % "work.c", "    sort_tiles(a, c->tile_rows, tiles, n);\n", "    sort_tiles(a, c->tile_rows, tiles, 0);\n", "test_emu_work"),  # the lightest tile of a long prompt comes before the heaviest of others
    (CUDA % "work.c", "kv_first_seen(t->position + t->first / a->group, a->window, a->chunked);", "t->position;", "test_emu_work"),  # what a tile reads, without its window
    (CUDA % "emu/wgmma.cpp", "return at ^ ((at >> 7 & (w - 1)) << 4);", "return at;", "test_emu_intrinsics"),  # emulator: no swizzle
    (CUDA % "emu/wgmma.cpp", "        memset(s.d[l], 0xff, sizeof(float) * (size_t)(n / 2)); // the old sums must not look valid\n", "", "test_emu_intrinsics"),  # emulator: sums can be read in flight
    (CUDA % "emu/wgmma.cpp", "    w->fenced = false; // registers are free after the wait\n", "", "test_emu_intrinsics"),  # emulator: one fence is enough
    (CUDA % "emu/wgmma.cpp", "if (b->writer[l.piece] == l.number)", "if (l.number == 0)", "test_emu_attention"),  # emulator: fences are not seen
    (CUDA % "emu/wgmma.cpp", "if (r.known && r.n == n && digest(r) != r.fenced)", "if (false)", "test_emu_intrinsics"),  # emulator: registers written behind the fence
    (CUDA % "emu/wgmma.cpp", "if (b->warps[i].history != b->warps[i / 4 * 4].history)", "if (false)", "test_emu_intrinsics"),  # emulator: warps that do not do the same
    (CUDA % "qkv.cu", "h < size; h *= 2)", "h < size / 2; h *= 2)", "test_emu_rows", "test_qkv"),  # int8: the last stage of the keys' turn is missing
    (CUDA % "qkv.cu", "        __syncwarp();\n    }\n    for (int i = kd_lane(); i < d; i += 32)\n        x[i] = kd_mul(x[i], scale);",
            "    }\n    for (int i = kd_lane(); i < d; i += 32)\n        x[i] = kd_mul(x[i], scale);", "test_emu_rows", "test_qkv"),  # int8: stages of the keys' turn overtake each other
    (CUDA % "store.cuh", "!finite || max < 7.88860905e-31f; // 2^-100", "!finite || max == 0;", "test_emu_rows", "test_int8 qkv.cu"),  # int8: vectors too small for a scale
    (CUDA % "store.cuh", "finite = __ballot_sync(ALL_LANES, finite) == ALL_LANES;", "__syncwarp();", "test_emu_rows", "test_int8 qkv.cu"),  # int8: a NaN that lane 0 does not see
    (CUDA % "intrinsics.h", "    if (a >= 0x43e80000u)\n        return (uint8_t)(sign | 0x7eu);\n    if (a >= 0x3c800000u)\n        return (uint8_t)(sign | (a - ", "    if (a >= 0x3c800000u)\n        return (uint8_t)(sign | (a - ",
         "test_emu_intrinsics", "test_e4m3 test_emu_intrinsics.cu"),  # fp8: large numbers wrap around
    (CUDA % "ranks.cu", "bool go = peer_arrive(a.peers, epoch, arrived);\n    if (go && a.n", "bool go = true;\n    if (go && a.n", "test_emu_peers", "test_sum"),  # parts are added before they are there
    (CUDA % "ranks.cu", "    keep_epoch(a.peers, epoch, peer_part(a.peers, epoch, go, arrived));\n}\n\n// The first shot", "    keep_epoch(a.peers, epoch, go);\n}\n\n// The first shot", "test_emu_peers", "test_sum"),  # a part is written while others read it
    (CUDA % "ranks.cu", "v[r] = add4(v[2 * r], v[2 * r + 1]);", "v[r] = add4(v[r], v[r + n / 2]);", "test_emu_peers", "test_sum"),  # another tree
    (CUDA % "ranks.cu", "    go = peer_part(a.peers, epoch, go, arrived);\n", "", "test_emu_peers", "test_sum"),  # two shots: slices are read before they are there
    (CUDA % "ranks.cu", "return go && peer_barrier(g, epoch + 2, arrived);", "return peer_barrier(g, epoch + 2, arrived) && go;", "test_emu_peers", "test_stop"),  # two shots: who has no sums says that they are there
    (CUDA % "ranks.cu", "return epoch % 2 == 0 && peer_barrier", "return peer_barrier", "test_emu_peers", "test_stop"),  # a block that has failed says in its next launch that it has come
    (CUDA % "ranks.cu", "((T *)(void *)a.part[r])[begin + i] = v;", "((T *)(void *)a.part[a.peers.rank])[begin + i] = v;", "test_emu_peers", "test_sum"),  # two shots: others keep what they had of a slice
    (CUDA % "ranks.cu", "(sum_size<T>(a) + 32 * WORLD - 1) / (32 * WORLD)", "sum_size<T>(a) / (32 * WORLD)", "test_emu_peers", "test_sum"),  # two shots: nobody adds the end
    (CUDA % "ranks.cu", "i < all; i += 4 * size)", "i < all && i < 4 * size; i += 4 * size)", "test_emu_peers", "test_sum"),  # two shots: the first four slices
    (CUDA % "ops.h", "> worth * (size_t)world;", ">= worth * (size_t)world;", "test_emu_peers"),  # two shots of two ranks
    (CUDA % "peers.c", "        p->two_shots = all[0].two_shots; // all do the same\n", "", "test_processes.py", "add_alike"),  # each rank its own way
    (CUDA % "sample.cu", "float max = finite ? -INFINITY : NAN;", "float max = -INFINITY;", "test_emu_sample", "test_topk"),  # a slice that is not finite is sampled from
    (CUDA % "ranks.cu", "i = (int)threadIdx.x, at = from * n + i;", "i = (int)threadIdx.x, at = i;", "test_emu_peers", "test_gather"),  # the first rank's slices from all
    (CUDA % "sample.cu", "= {order_key(v.best), 0, 1}; // greedy", "= {order_key(v.best), 1, 1}; // greedy", "test_emu_sample"),  # the second of equal best tokens
    (CUDA % "sample.cu", "v.n = a.begin + end * CUDA_GROUP < a.end ?", "v.n = a.begin + end * CUDA_GROUP > 0 ?", "test_emu_sample"),  # a slice behind the last token
    (CUDA % "ranks.cu", "        if (a.bias)\n            v[k] = add4(", "        if (a.bias && a.peers.rank == 0)\n            v[k] = add4(", "test_emu_peers", "test_sum"),  # a bias on one rank alone
    (CUDA % "sample.cu", "topk->ids[at] = first + i;", "topk->ids[at] = a.begin + i;", "test_emu_sample"),  # local top-k by its place in a slice
    (CUDA % "sample.cu", "if (d.adjusted < 0 || row.row < 0 || topk != TOPK)", "if (d.adjusted < 0 || row.row < 0 || TOPK)", "test_emu_ranks"),  # local top-k before entries and mask
    (CUDA % "gemm_common.cuh", "return kd_add(kd_add(red[0], red[stride]), kd_add(red[2 * stride], red[3 * stride]));",
         "return kd_add(kd_add(kd_add(red[0], red[stride]), red[2 * stride]), red[3 * stride]);",
         "test_emu_ranks"),  # a rank's segments in another order
    (CUDA % "gemm.cu", "    __syncthreads();\n    finish<NT>(a, rows, red, a.segments.num", "    finish<NT>(a, rows, red, a.segments.num", "test_emu_gemm", "test_shapes"),  # segments are added before they are there
    (CUDA % "gemm.cu", "kd_grid_wait(); // weights do not depend on the kernel before, x does", "", "test_emu_gemm", "test_shapes"),  # x is read before the kernel before has written it
    (CUDA % "gemm.cu", "a.w, tile, s + RING - 1,", "a.w, tile, s + RING - 2,", "test_emu_gemm", "test_shapes"),  # the ring holds the wrong step
    (CUDA % "gemm.cu", "kd_copy_wait<RING - 2>();", "kd_copy_wait<RING - 1>();", "test_emu_gemm", "test_shapes"),  # the ring is read before its copies land
    (CUDA % "gemm.cu", "        __syncwarp(); // other lanes' copies have landed, and the stage before has been read\n", "", "test_emu_gemm", "test_shapes"),  # scales that other lanes copy are not waited for
    (CUDA % "gemm.cu", "        __syncthreads(); // every warp is done with its ring\n", "", "test_emu_gemm", "test_shapes"),  # sums are written over a ring in use
    (CUDA % "gemm.cu", "(stage == 0 ? RING - 1 : stage - 1)", "stage", "test_emu_gemm", "test_shapes"),  # the ring overwrites the step that is multiplied
    (CUDA % "gemm_staged.cu", "kd_copy_wait<DEPTH - 2>();", "kd_copy_wait<DEPTH - 1>();", "test_emu_gemm", "test_shapes"),  # staged: a step is read before its copies land
    (CUDA % "gemm_staged.cu", "            __syncthreads(); // others' copies have landed, and the stage before has been read\n", "", "test_emu_gemm", "test_shapes"),  # staged: copies of other warps are not waited for
    (CUDA % "gemm_staged.cu", "(stage == 0 ? DEPTH - 1 : stage - 1)", "stage", "test_emu_gemm", "test_shapes"),  # staged: the step that is multiplied is overwritten
    (CUDA % "gemm_staged.cu", "    kd_grid_wait(); // weights do not depend on the kernel before, x does\n", "", "test_emu_gemm", "test_shapes"),  # staged: x is read before the kernel before has written it
    (CUDA % "gemm_staged.cu", "a.w, copied, s + DEPTH - 1, lane);", "a.w, copied, s + DEPTH - 2, lane);", "test_emu_gemm", "test_shapes"),  # staged: weights of one step, tokens of another
    (CUDA % "gemm_staged.cu", "first + num - 1, &s, &stop);", "first, &s, &stop);", "test_emu_gemm", "test_shapes"),  # staged: only the first segment is copied
    (CUDA % "gemm_common.cuh", "n /= 2, num /= 2, at += NT * STAGED_THREADS)", "n /= 2, num /= 2)", "test_emu_gemm", "test_shapes gemm_staged.cu"),  # staged: two levels of the tree in one place
    (CUDA % "gemm_common.cuh", "c[j][e] = kd_add(lowest[j][e], c[j][e]);", "c[j][e] = lowest[j][e];", "test_emu_gemm", "test_shapes gemm_staged.cu"),  # staged: the right leaf is lost
    (CUDA % "gemm_common.cuh", "    __syncthreads(); // the ring is free\n    red +=", "    red +=", "test_emu_gemm", "test_shapes gemm_staged.cu"),  # staged: sums are written over a ring in use
    (CUDA % "gemm_common.cuh", "    __syncwarp();\n    if (tile >= 0)\n        finish", "    if (tile >= 0)\n        finish", "test_emu_gemm", "test_shapes gemm_staged.cu"),  # staged: sums are read before other lanes have written them
    (CUDA % "gemm_common.cuh", "    if (tile >= 0)\n        finish", "    finish", "test_emu_gemm", "test_logits gemm_staged.cu"),  # staged: maxima of tiles that are not there
    (CUDA % "gemm_staged.cu", "(panel + (j * 8 + lane / 4) * 64)", "(panel + (j * 8 + lane / 4) * 32)", "test_emu_gemm", "test_shapes"),  # staged: half of another token
    (CUDA % "gemm_common.cuh", "kd_count(&a.parts.arrived[tile], (uint32_t)num - 1) == (uint32_t)num - 1;", "kd_count(&a.parts.arrived[tile], (uint32_t)num - 1) == 0;", "test_emu_gemm", "test_shapes gemm_staged.cu"),  # staged: the first block adds what the others have not left
    (CUDA % "gemm_common.cuh", "    __syncthreads();\n    if (!*is_last)", "    if (!*is_last)", "test_emu_gemm", "test_shapes gemm_staged.cu"),  # staged: whether a block is the last is read before it is known
    (CUDA % "gemm_common.cuh", "parts + (n - 1) * NT * STAGED_THREADS", "parts + n % num * NT * STAGED_THREADS", "test_emu_gemm", "test_batch_invariance gemm_staged.cu"),  # staged: parts in another order
    (CUDA % "gemm_common.cuh", "return most > 4 ? 2 : most > 2;", "return most > 4;", "test_emu_gemm", "test_shapes gemm_staged.cu"),  # staged: too little shared memory
    (CUDA % "phases.c", ".num_adjusted = dev->bucket ? n", ".num_adjusted = dev->capturing ? n", "test_emu_limits", "test_60_gb"),  # a kernel is loaded while a graph is captured
    (CUDA % "big_kernels.h", "    return most;", "    return most < bytes ? most : bytes;", "test_emu_gemm", "test_shared_memory emu/rt_emu.cpp"),  # a kernel may have the shared memory of its first launch
    (CUDA % "gemm_wgmma.cu", "            kd_shared_fence();\n", "", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: copies are not fenced
    (CUDA % "gemm_wgmma.cu", "kd_copy_wait<DEPTH - 2>();", "kd_copy_wait<DEPTH - 1>();", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: a step is read before its copies land
    (CUDA % "gemm_wgmma.cu", "            __syncthreads(); // others' copies have landed, and the stage before has been multiplied\n", "", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: copies of other warps are not waited for
    (CUDA % "gemm_wgmma.cu", "(stage == 0 ? DEPTH - 1 : stage - 1)", "stage", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: the step before is overwritten
    (CUDA % "gemm_wgmma.cu", "((c ^ row / 2 % 4) << 4)", "(c << 4)", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: no swizzle
    (CUDA % "gemm_wgmma.cu", "    kd_grid_wait(); // weights do not depend on the kernel before, x does\n", "", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: x is read before the kernel before has written it
    (CUDA % "gemm_wgmma.cu", "kd_warp() / 4 * 64 * KD_NARROW_ROW", "0", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: both warpgroups have the first's rows
    (CUDA % "gemm_wgmma.cu", "stage * shape::step + b * 128 * KD_NARROW_ROW + k", "stage * shape::step + k", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: the second 128 rows are the first
    (CUDA % "gemm_wgmma.cu", "                c[j][e] = 0;\n", "                c[j][e] = n > 1 ? c[j][e] : 0;\n", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: a segment goes on with the sums of the one before
    (CUDA % "gemm_wgmma.cu", "            kd_wgmma_wait<0>();\n", "", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: sums are read before they are there
    (CUDA % "wgmma.h", "return (uint64_t)2 << 62", "return (uint64_t)1 << 62", "test_emu_gemm", "test_wgmma gemm_wgmma.cu"),  # gemm of wgmma: rows of another length
    (CUDA % "gemm_wgmma.cu", "a->parts.wgmma && (a->w.layout == LAYOUT_BF16 || a->w.layout == LAYOUT_F16)", "a->parts.wgmma", "test_emu_gemm", "test_wgmma"),  # gemm of wgmma: weights that are not its own
    (CUDA % "gemm_common.cuh", "traits::supers + (lane - WORDS) * 16;", "traits::supers + lane * 16;", "test_emu_gemm", "test_shapes gemm.cu"),  # factors of other rows
    (CUDA % "gemm_common.cuh", "return (int)((long long)steps * i / SEGMENTS);", "return steps / SEGMENTS * i;", "test_emu_gemm", "test_shapes gemm.cu"),  # the last steps are left out
    (CUDA % "gemm_common.cuh", "r.second[i] = both * (float)(int8_t)(s >> (16 + 8 * i));", "r.second[i] = both * (float)(uint8_t)(s >> (16 + 8 * i));",
         "test_emu_gemm", "test_dequant gemm.cu"),  # scales of Q6_K without a sign
    (CUDA % "gemm_common.cuh", "if (nan >> (kd_lane() & 16) & 0xffffu)", "if (false)", "test_emu_gemm", "test_logits gemm.cu"),  # a NaN among logits is lost
    (CUDA % "gemm_common.cuh", "s1 = kd_add(red[2 * stride], red[3 * stride]);", "s1 = kd_add(red[2 * stride], red[2 * stride]);", "test_emu_gemm", "test_shapes gemm.cu"),  # a segment twice, another never
    (CUDA % "pack.cu", "word[0] |= q << (i / 2 * 4 + i % 2 * 16);", "word[0] |= q << (i * 4);", "test_emu_gemm", "test_dequant"),  # nibbles in the order of the file
    (CUDA % "gemm_common.cuh", "(size & 0x01c001c0u)", "(size & 0x01800180u)", "test_emu_gemm"),  # 4-bit floats without their mantissa
    (CUDA % "gemm_common.cuh", "words[lane / 4] >> (16 * g)", "words[lane / 4]", "test_emu_gemm"),  # of MXFP4 the first 32 columns' scale for both
    (CUDA % "gemm_common.cuh", "        shared = 0;", "        shared = 3;", "test_emu_gemm"),  # of Q5_1 the factors of other columns
    (CUDA % "gemm_common.cuh", "min * (float)(own >> 24);", "r.min[i];", "test_emu_gemm"),  # of Q2_K the first 16 columns' minimum for both
    (CUDA % "pack.cu", "bytes[1] = (uint8_t)second.scale;", "bytes[1] = (uint8_t)e.scale;", "test_emu_gemm"),  # of Q2_K the first 16 columns' scale for both
    (CUDA % "blocks.h", "quant_u16(b + 2) ^ 0x8000;", "quant_u16(b + 2);", "test_emu_rows"),  # minima of Q4_1 are taken off
    (CUDA % "gemm_common.cuh", "0x18c85080u, 0xe2b28a54u, four), half);", "0x18c85080u, 0xe2b28a54u, four), 0x3210u);", "test_emu_gemm"),  # half of IQ4's table
    (CUDA % "rows.cu", "    if (dtype == DTYPE_IQ4_NL || dtype == DTYPE_IQ4_XS)", "    if (dtype == DTYPE_IQ4_NL)", "test_emu_rows"),  # indices of IQ4_XS for its numbers
    (CUDA % "blocks.h", "b[0] > 0 ? b[0] - 1 : 0;", "b[0];", "test_emu_gemm"),  # scales of MXFP4 as if its numbers were not doubled
    (CUDA % "gemm_common.cuh", "r.a.groups[blockIdx.x].expert * (size_t)values", "r.a.groups[0].expert * (size_t)values", "test_emu_experts"),  # experts: the biases of another
    (CUDA % "experts.cu", "fmaxf(fabsf(logit[e]), m)) > a.near)", "fmaxf(fabsf(logit[e]), m)) > 0)", "test_emu_experts"),  # experts in turn: none is near another
    (CUDA % "experts.c", "layer->ffn.weigh_input ? NULL : e->weights", "e->weights", "test_emu_experts"),  # experts: weighed before and after
    (CUDA % "qkv.cu", "    __syncwarp();\n    if (kind < 2) {", "    if (kind < 2) {", "test_emu_rows", "test_qkv"),  # a head is rotated before it is whole
    (CUDA % "qkv.cu", "    if (slot < 0)\n        return;", "", "test_emu_rows", "test_qkv"),  # padding is written somewhere
    (CUDA % "qkv.cu", "norm += (size_t)(head - (kind == 1 ? a.num_heads : 0)) * (size_t)d;", "norm += (size_t)head * (size_t)d;", "test_emu_rows", "test_qkv"),  # keys take the weights of other heads
    (CUDA % "qkv.cu", "head_norm(x, d, unit ? NORM_RMS : a.kind, a.eps)", "head_norm(x, d, a.kind, a.eps)", "test_emu_rows", "test_qkv"),  # a norm without weights subtracts the mean
    (CUDA % "rows.cu", "if (!a.bias || i >= a.n)", "if (!a.bias)", "test_emu_rows", "test_norm"),  # a bias behind the row counts as its largest
    (CUDA % "experts.cu", "a.bias ? kd_add(shared, a.bias[i]) : shared);", "shared);", "test_emu_experts"),  # the shared expert without its bias
    (CUDA % "phases.c", "layer->router_norm, dev->work.num_tokens", "layer->ffn_norm, dev->work.num_tokens", "test_emu_experts"),  # the router takes what the shared expert does
    (CUDA % "phases.c", "normalise_in_place(dev, dev->added, layer->expert_post_norm, rows);", "", "test_emu_experts"),  # what experts give, as it is
    (CUDA % "rows.cu", "y[i] = a.of_sum ? v : kd_mul(kd_add(y[i], v), scale)", "y[i] = kd_mul(kd_add(y[i], v), scale)", "test_emu_rows"),  # what is normalised is added again
    (CUDA % "work.c", "t < (size_t)T ? step->types[t] : 0", "t < (size_t)T ? step->types[0] : 0", "test_emu_work"),  # a token has the type of the first
    (CUDA % "phases.c", ".types = dev->limits.has_types ? dev->inputs.types : NULL", ".types = NULL", "test_emu_kinds"),  # one type for both texts
    (CUDA % "phases.c", ".of_sum = dev->model.block == BLOCK_SUM_NORM};", ".of_sum = false};", "test_emu_kinds"),  # the norm is of what is added
    (CUDA % "phases.c", "    if (!block_is_parallel(dev->model.block))\n", "    if (true)\n", "test_emu_kinds", "test_parallel_blocks"),  # parallel blocks take what attention has added
    (CUDA % "gemm_common.cuh", "if (a.softcap > 0)", "if (false)", "test_emu_gemm", "test_logits gemm.cu"),  # logits without their cap
    (CUDA % "experts.cu", "(value == top && other < best)", "(value == top && other > best)", "test_emu_experts", "test_route"),  # experts: of equal scores the higher id
    (CUDA % "experts.cu", "? best : kd_add(best, second)", "? best : best", "test_emu_experts", "test_route"),  # experts: a group is as good as its best
    (CUDA % "experts.cu", "if (a.seq_of && a.seq_of[row] < 0)", "if (false)", "test_emu_experts", "test_route"),  # experts: rows that are nobody's take some
    (CUDA % "experts.cu", "    __syncthreads(); // begin is to be counted up\n", "", "test_emu_experts", "test_groups"),  # experts: groups begin where others have counted
    (CUDA % "experts.cu", "return full + experts < num_slots ? full + experts : num_slots;", "return full > 0 ? full : 1;", "test_emu_experts", "test_gemm"),  # experts: groups that are not full have no block
    (CUDA % "experts.cu", "if (a.gate)\n            shared = kd_mul", "if (false)\n            shared = kd_mul", "test_emu_experts", "test_steps"),  # experts: the shared one without its gate
    (CUDA % "gemm.cu", "    kd_grid_wait();\n    if ((int)blockIdx.x >= *a.num_groups)", "    if ((int)blockIdx.x >= *a.num_groups)", "test_emu_experts", "test_gemm"),  # experts: groups are read before they are made
    (CUDA % "gemm.cu", "group.expert * (int)gridDim.y + (int)blockIdx.y,", "(int)blockIdx.y,", "test_emu_experts", "test_gemm"),  # experts: the weights of the first
    (CUDA % "gemm_staged.cu", "tile < 0 ? tile : group.expert * tiles + tile", "tile", "test_emu_experts", "test_gemm"),  # experts: staged, the weights of the first
    (CUDA % "gemm_staged.cu", "    kd_grid_wait();\n    if ((int)blockIdx.x >= *a.num_groups)", "    if ((int)blockIdx.x >= *a.num_groups)", "test_emu_experts", "test_gemm"),  # experts: staged groups are read before they are made
    (CUDA % "experts.cu", "            reads += n > 0;\n", "            reads += n;\n", "test_emu_experts"),  # counts of experts: rows are reads
    (CUDA % "experts.c", ".begins = !e->counted", ".begins = false", "test_emu_experts"),  # counts of experts: those of all steps
    (CUDA % "step.c", "    dev->experts.counted = false;\n", "", "test_emu_experts"),  # the same, but for the first
    (CUDA % "experts.cu", "{e - a.first_own, begin", "{e, begin", "test_emu_experts", "test_groups"),  # ranks' experts: their places in the whole model
    (CUDA % "experts.cu", "        if (is_own(a, a.experts[i]))\n", "        if (a.experts[i] >= 0)\n", "test_emu_experts", "test_groups"),  # slots of others' experts
    (CUDA % "experts.cu", "add_counts(a, rows, reads", "add_counts(a, slots, reads", "test_emu_experts"),  # counts of experts: the rank's own
    (CUDA % "experts.cu", "            if (a.experts[slot + (size_t)k] >= begin)\n", "", "test_emu_ranks"),  # sums of what others' experts left
    (CUDA % "experts.cu", "a.first_segment + s + 1);", "s + 1);", "test_emu_ranks"),  # segments of the first rank
    (CUDA % "experts.c", "own.shared = apart ? NULL : a.shared;", "own.shared = a.shared;", "test_emu_ranks"),  # the shared expert twice
    (CUDA % "experts.c", "many && (dev->exact || own_norms);", "many && own_norms;", "test_emu_ranks"),  # the shared expert's parts in the experts' tree
    (CUDA % "experts.c", "many && (dev->exact || own_norms);", "many && dev->exact;", "test_emu_ranks"),  # norms of ranks' parts
    (CUDA % "ranks.cu", "if (a.add && k * step < most)", "if (k * step < most)", "test_emu_ranks"),  # a sum of ranks on top of the layer's before
    (CUDA % "peers.c", ".add = add});", ".add = add || true});", "test_emu_ranks"),  # the same by NCCL
    (CUDA % "peers.c", "bool bf16 = cuda_act_dtype_of(w->matrix[0].layout) == ACT_DTYPE_BF16;", "bool bf16 = cuda_act_dtype_of(w->matrix[0].layout) != ACT_DTYPE_F16;", "test_emu_ranks"),  # NCCL: bf16 sums of F32 weights
    (CUDA % "peers.c", "    if (bf16)\n        cuda_norm(", "    if (false)\n        cuda_norm(", "test_emu_ranks"),  # NCCL: nobody rounds the parts
    (CUDA % "rows.cu", "a.x + row * (size_t)a.ldx * (a.bf16 ? 2 : 4);\n    float4 v = read_sums(x, i, a.n,", "a.x + row * (size_t)a.ldx * 4;\n    float4 v = read_sums(x, i, a.n,", "test_emu_rows", "test_finish"),  # bf16 sums: rows to be finished lie apart
    ("engine/warm_up.c", "run_step(k, n, 1, context, 2, err)", "run_step(k, n, 1, context, 1, err)", "test_emu_ranks"),  # warm-up: no graph is captured
    ("engine/warm_up.c", " && graphs-- > 0", "", "test_emu_ranks"),  # warm-up: more buckets than are kept
    (CUDA % "experts.c", ".per_row = per_row,", ".per_row = per_row > 0,", "test_emu_experts"),  # experts: another row of x
    (CUDA % "weight.c", "row0 + i * (m->rows / stack) +", "row0 +", "test_emu_experts"),  # experts: all in the place of one
    (CUDA % "sample.cu", "    if (u == 0x80000000u)\n        u = 0;\n", "", "test_emu_sample", "test_batches"),  # -0 below +0
    (CUDA % "sample.cu", "        __syncthreads();\n        above = s->before;", "        above = s->before;", "test_emu_sample", "test_topk"),  # the digit of another thread is read before it is written
    (CUDA % "sample.cu", "        __syncthreads(); // entries of one token come in order: one a pass\n", "", "test_emu_sample", "test_topk"),  # entries of one token in any order
    (CUDA % "sample.cu", "largest = max[g] < INFINITY ? fmaxf(largest, max[g]) : INFINITY;", "largest = fmaxf(largest, max[g]);",
         "test_emu_sample", "test_topk"),  # a row that holds NaN is sampled from
    (CUDA % "sample.cu", "        for (; before + mass_of_slice(v, slice) <= point; slice++)\n            before += mass_of_slice(v, slice);\n", "", "test_emu_sample"),  # a sample in the first slice
    (CUDA % "sample.cu", "        part[i] = s->bins[i];\n", "        part[i] = s->bins[i] / 2;\n", "test_emu_sample"),  # masses of a slice by halves
    (CUDA % "sample.cu", "(double)kd_add(v.max[g], -v.best) < low)", "(double)kd_add(v.max[g], -v.best) < low / 2)", "test_emu_sample"),  # min-p: groups that count are skipped
    (CUDA % "sample.cu", "(row.top_k <= 0 || row.top_k >= a.vocab)", "(row.top_k <= 0 || a.vocab > 0)", "test_emu_sample"),  # top-k among masses of all tokens
    (CUDA % "sample.cu", "bool all = s->found > BEST_GROUPS;", "bool all = s->found > BEST_GROUPS * 1000;", "test_emu_sample"),  # more groups of best tokens than are listed
    (CUDA % "sample.cu", "mass_t need = share < 1 ? 1 :", "mass_t need =", "test_emu_sample"),  # top-p 0 keeps nothing
    (CUDA % "sample.cu", "(key == v.last_key && id <= v.last_id)", "key == v.last_key", "test_emu_sample"),  # ties at the end of top-k
    (CUDA % "sample.cu", "to[i] = 2 * i + 1 < n ? kd_add(from[2 * i], from[2 * i + 1]) : from[2 * i];", "to[i] = kd_add(from[2 * i], 2 * i + 1 < n ? from[2 * i + 1] : from[2 * i]);",
         "test_emu_sample"),  # the odd group out is counted twice
    (CUDA % "work.c", "if (n == 0 || seen[entries[i].token] == *stamp) {", "if (n == 0) {", "test_emu_sample"),  # entries of a token at once
    (CUDA % "phases.c", ".num_adjusted = dev->bucket ? n : dev->work.num_adjusted,", ".num_adjusted = dev->work.num_adjusted,",
         "test_emu_steps"),  # a graph without entries replays a step that has some
    (CUDA % "work.c", "        slots[t] = -1;\n", "        slots[t] = 0;\n", "test_emu_steps"),  # padding rows write a block
    (CUDA % "multiply.c", "    return all ? 0 : dev->work.num_decode;", "    return 0;", "test_emu_forward"),  # decodes go through cuBLASLt beside a long prompt
    (CUDA % "multiply.c", "if (!dev->cublas || w->layout", "if (w->layout", "test_emu_forward"),  # exact: long prompts go through cuBLASLt
    (CUDA % "multiply.c", "dev->batch_dependent && (others", "(others", "test_emu_forward", "test_batch_dependent"),  # decodes go through cuBLASLt, whoever asked
    (CUDA % "multiply.c", "(all ? m : others) <= CUDA_TOKENS", "(all ? m + 1 : others) <= CUDA_TOKENS", "test_emu_forward", "test_batch_dependent"),  # dependent: not in a step of 65 rows
    (CUDA % "multiply.c", "(all ? m : others) <= CUDA_TOKENS", "(all ? m : others) < CUDA_TOKENS", "test_emu_forward", "test_batch_dependent"),  # dependent: in a step of 64 rows, too
    (CUDA % "multiply.c", "(others > CUDA_TOKENS || w->layout <= LAYOUT_F16 || w->e4m3)", "true", "test_emu_forward", "test_batch_dependent"),  # dependent: decodes wait for weights to become bf16
    (CUDA % "multiply.c", "w->layout <= LAYOUT_F16 || w->e4m3)", "w->layout <= LAYOUT_F16)", "test_emu_forward", "test_batch_dependent"),  # dependent: not FP8
    (CUDA % "multiply.c", "(others > CUDA_TOKENS || w->layout", "(w->layout", "test_emu_forward", "test_batch_dependent"),  # dependent: weights that are bf16 already are read twice
    (CUDA % "backend.c", "(dev->batch_dependent ? 4 : 0)", "0", "test_emu_forward", "test_batch_dependent"),  # dependent: devices with other bits share a model
    (CUDA % "step.c", "g->num_seen++ > 0 && g->num_forgot == forgot", "g->num_seen++ > 0", "test_emu_steps", "test_products_in_graphs"),  # a product that cuBLASLt has forgotten is captured
    (CUDA % "step.c", "        rt_range_end(dev->rt);\n        finish_step(dev, step);\n        rt_range_end(dev->rt);\n", "        rt_range_end(dev->rt);\n        finish_step(dev, step);\n", "test_emu_ranges", "test_ranges"),  # a replayed step's range has no end
    (CUDA % "step.c", "    finish_step(dev, dev->step);\n    rt_range_end(dev->rt);\n", "    finish_step(dev, dev->step);\n    if (!rt_failed(dev->rt))\n        rt_range_end(dev->rt);\n", "test_emu_ranges", "test_failed_step"),  # nor that of a step that failed
    (CUDA % "step.c", "             decode, step->num_tokens - decode);", "             decode, step->num_tokens);", "test_emu_ranges", "test_ranges"),  # decodes are prefill, too
    (CUDA % "backend.c", "    .attn_decode = ranged_attn_decode,\n", "    .attn_decode = cuda_phase_attn_decode,\n", "test_emu_ranges", "test_ranges"),  # a phase without a range
    (CUDA % "peers.c", "    if (rt_failed(dev->rt))\n        return; // cuda_peers_check()", "    if (false)\n        return; // cuda_peers_check()", "test_emu_ranks"),  # NCCL: a rank that has failed there waits for the others, who wait for it
    (CUDA % "peers.c", "    return !p->comm->ops->error(p->comm)[0];", "    return p->world > 0;", "test_emu_ranks", "hangs"),  # NCCL: a rank waits for one that has failed
    ("engine/ranks/ranks.c", "        setenv(\"CUDA_MODULE_LOADING\", \"EAGER\", 0);\n", "        setenv(\"CUDA_MODULE_LOADING\", \"EAGER\", 1);\n", "test_emu_ranks"),  # kernels are loaded early, whatever the user says
    ("engine/ranks/ranks.c", "if (r->here > 1 && r->tensor > 1 && strcmp(", "if (false && strcmp(", "test_emu_ranks"),  # an embedded engine's GPUs load kernels beside others that wait
    (CUDA % "gemm_common.cuh", "w.layout == LAYOUT_FP8 ? 2 : 0", "2", "test_emu_gemm"),  # FP8: a scale of 128 columns where each 32 have theirs
    (CUDA % "gemm_common.cuh", "size & 0x07f007f0u", "size & 0x07e007e0u", "test_emu_gemm"),  # FP8: the last bit of a number
    (CUDA % "pack.cu", "i % 4 < 2 ? 1 + i % 2 * 2 : i % 2 * 2", "i % 4", "test_emu_gemm"),  # FP8: columns in another order
    (CUDA % "pack.cu", "return cols % 128 ? LAYOUT_FP8_32 : LAYOUT_FP8;", "return cols % 32 ? LAYOUT_FP8_32 : LAYOUT_FP8;", "test_emu_gemm"),  # FP8: rows of part of 128 columns
    (CUDA % "rows.cu", "if (dtype == DTYPE_FP8) {", "if (false) {", "test_emu_rows"),  # FP8: rows of a table as of f16
    (CUDA % "attn_latent.cu", "        __syncthreads(); // the probabilities of all warps are there\n", "", "test_emu_latent", "test_fast"),  # latent: probabilities are read before they are there
    (CUDA % "attn_latent.cu", "        __syncthreads(); // the stage is written again\n", "", "test_emu_latent", "test_fast"),  # latent: a stage is written while others read it
    (CUDA % "attn_latent.cu", "bool ok = pos >= it.begin && pos < it.end;", "bool ok = true;", "test_emu_latent", "test_fast"),  # latent: NaN of slots that are not the sequence's
    (CUDA % "latent.c", ".x = (char *)x->data[dtype] + place(x, dtype, slot0),", ".x = x->data[dtype],", "test_emu_kinds"),  # latent: values of the first rows again
    (CUDA % "latent.c", "slots[g * size + r] = (g / H * size + r) * H + g % H;", "slots[g * size + r] = r * H + g % H;", "test_emu_kinds"),  # latent: groups of the first rows again
    (CUDA % "phases.c", "(dev->exact && device_is_latent(dev))", "false", "test_emu_kinds"),  # exact: latent, decodes are no tiles
    (CUDA % "phases.c", "    else if (!dev->exact)\n        attend_splits(dev, layer);", "    else if (true)\n        attend_splits(dev, layer);", "test_emu_forward"),  # exact: decodes alone take the kernel of decodes
    (CUDA % "work.c", "c->exact ? 0 : step->num_decode", "step->num_decode", "test_emu_work"),  # exact: no tiles for rows that decode
    (CUDA % "multiply.c", "    int others = m - dev->work.num_decode;\n", "    int others = m;\n", "test_emu_forward"),  # a short prompt beside decodes leaves the skinny GEMM
    (CUDA % "multiply.c", "ACT_DTYPE_F16 ? x->scale + first : NULL, NULL", "ACT_DTYPE_F16 ? x->scale : NULL, NULL", "test_emu_forward"),  # cuBLASLt's rows get the factors of the first ones
    (CUDA % "multiply.c", "row_of(x, ACT_DTYPE_BF16, first),", "row_of(x, ACT_DTYPE_BF16, 0),", "test_emu_forward", "test_w8a8"),  # W8A8: the rows before are quantised
    (CUDA % "weight.c", "            of_rows &= scale == scale_of(scales, groups, row, 0);\n", "", "test_emu_forward", "test_w8a8"),  # W8A8: a row has the scale of its first columns
    (CUDA % "weight.c", "            of_blocks &= scale == scale_of(scales, groups, row / 128 * 128, group);\n", "", "test_emu_forward", "test_w8a8"),  # W8A8: 128 rows have the scales of the first
    (CUDA % "multiply.c", "bool behind = w->e4m3 && ", "bool behind = false && ", "test_emu_forward", "test_w8a8"),  # W8A8: rows behind the step's most are written
    (CUDA % "gemm.cu", "groups = (a.w.cols / 128 + 3) / 4 * 4;", "groups = a.w.cols / 128;", "test_emu_gemm", "test_w8a8_groups"),  # W8A8: scales of blocks side by side
    (CUDA % "gemm.cu", "(size_t)(s / 4) * (size_t)a.w.rows + (size_t)row;", "(size_t)row * (size_t)(a.w.cols / 128) + (size_t)(s / 4);", "test_emu_gemm", "test_w8a8_groups"),  # W8A8: scales of groups row by row
    (CUDA % "rows.cu", "a.scale[(size_t)blockIdx.y * (size_t)a.ld_scale + (size_t)row]", "a.scale[(size_t)row * (size_t)(a.n / 128) + (size_t)blockIdx.y]", "test_emu_gemm", "test_w8a8_groups"),  # W8A8: scales of activations row by row
    (CUDA % "rows.cu", "for (int bits = 8; bits > 0;", "for (int bits = 16; bits > 0;", "test_emu_gemm", "test_w8a8_groups"),  # W8A8: two rows have the scale of one
    (CUDA % "multiply.c", ".ld_scale = e4m3.x_scale ? e4m3.m : 0}", ".ld_scale = e4m3.x_scale ? m - first : 0}", "test_emu_forward", "test_w8a8"),  # W8A8: scales of activations without their padding
    (CUDA % "gemm.cu", "order = 0x2031;", "order = 0x3210;", "test_emu_gemm", "test_w8a8"),  # W8A8: weights in the order of fragments
    (CUDA % "gemm.cu", "lane % 8 * 2 + lane / 8];", "lane];", "test_emu_gemm", "test_w8a8"),  # W8A8: scales of other rows
    (CUDA % "common.cuh", "kd_bits_float(v.x << 16), kd_bits_float(v.x & 0xffff0000u), kd_bits_float(v.y << 16),", "kd_bits_float(v.x & 0xffff0000u), kd_bits_float(v.x << 16), kd_bits_float(v.y << 16),", "test_emu_rows", "test_activations rows.cu"),  # bf16 sums: neighbours change places
    (CUDA % "qkv.cu", "row - (a.rows - a.num_bf16);", "row - a.num_bf16;", "test_emu_rows", "test_qkv"),  # bf16 sums: the first rows of q, k and v
    (CUDA % "multiply.c", "y, 2 * a->ldx, false, true, &a->scales)", "y, a->ldx, false, true, &a->scales)", "test_emu_forward", "test_w8a8"),  # bf16 sums: rows of q, k and v side by side
    (CUDA % "multiply.c", "(size_t)first * (size_t)ldy * (bf16 ? 2 : 4)", "(size_t)first * (size_t)ldy * 4", "test_emu_forward", "test_w8a8"),  # bf16 sums: rows lie apart
    (CUDA % "rows.cu", "largest < 7.88860905e-31f ? 0 :", "", "test_emu_gemm", "test_w8a8"),  # W8A8: a factor that is infinite
    (CUDA % "common.cuh", "s.column ? read4(s.column, i, n, whole) : one", "one", "test_emu_rows", "test_finish rows.cu"),  # W8A8: weights without their scales
    (CUDA % "peers.c", "        shot = dev->work.num_decode;\n", "        shot = 0;\n", "test_emu_ranks"),  # decodes are added by NCCL beside a long prompt
    (CUDA % "peers.c", "        if (p->comm->ops->error(p->comm)[0])\n", "        if (false)\n", "test_processes.py", "gpu_is_killed or another_process_fails"),  # nobody ends a kernel that waits for another process
    (CUDA % "peers.c", "    other->part = (float *)(void *)((char *)other->part + shift);\n", "", "test_processes.py", "one_gpu_of_two"),  # parts of another process are read where they lie there
    (CUDA % "peers.c", "rows, end, ld, ld});", "rows, end, end, ld});", "test_processes.py", "gpus_apart"),  # logits by NCCL: what others had in the step before is added
    (CUDA % "peers.c", "        gather_by_nccl(dev, s->max, n, begin / CUDA_GROUP, (end + CUDA_GROUP - 1) / CUDA_GROUP, s->ldmax);\n", "", "test_processes.py", "gpus_apart"),  # and the maxima are a rank's own
    (CUDA % "peers.c", "if (!p->shares && memcmp(", "if (false && memcmp(", "test_processes.py", "one_gpu_of_two"),  # two processes on one GPU
    (CUDA % "peers.c", "broadcast(p->comm, ids, sizeof ids, 0)", "broadcast(p->comm, ids, sizeof ids - 1, 0)", "test_processes.py", "long_sums"),  # others do not hear that there is NCCL
    ("engine/ranks/ranks.c", "apart += !processes_share_machine(", "apart += !c->processes && processes_share_machine(", "test_processes.py", "gpus_out_of_reach"),  # GPUs of two machines share a layer
    (CUDA % "phases.c", ".split0 = list->one_launch ? 0 : first[row],", ".split0 = 0,", "test_emu_forward"),  # every launch of decode takes the first one's splits
    (CUDA % "work.c", "first_split[end + 1] - first_split[row] <= max_splits)", "first_split[end] - first_split[row] <= max_splits)", "test_emu_forward"),  # a launch has a row too many
    (CUDA % "step.c", "    *g = key;\n", "    g->num_tokens = tokens;\n", "test_emu_steps"),  # a bucket beyond those that are kept replays another
    (CUDA % "step.c", "dev->graphs[i].last_step < oldest->last_step", "dev->graphs[i].last_step > oldest->last_step", "test_emu_steps"),  # the bucket used last gives way
    (CUDA % "step.c", "    upload(dev, dev->upload[slot]);\n",
         "    rt_upload(dev->rt, dev->staging, dev->upload[slot], 16);\n    upload(dev, dev->upload[slot]);\n", "test_emu_steps"),  # two uploads a step
    (CUDA % "step.c", "        rt_order(dev->rt, RT_UPLOADS, RT_UPLOAD_READ); // by the step before\n", "", "test_emu_steps"),  # an upload comes before the step before has read its own
    (CUDA % "step.c", "    enum status st = dev->peers.world > 1 ? cuda_peers_wait(dev, slot, err) : rt_wait(dev->rt, slot, err);\n    rt_range_end(dev->rt);\n    out->experts = *r->counts;\n",
         "    out->experts = *r->counts;\n    enum status st = dev->peers.world > 1 ? cuda_peers_wait(dev, slot, err) : rt_wait(dev->rt, slot, err);\n", "test_emu_ranks"),  # counts are read before they are there
    (CUDA % "step.c", "        rt_order(dev->rt, RT_WORK, RT_UPLOADED);\n", "", "test_emu_steps"),  # a step begins before its upload is there
    (CUDA % "step.c", "    bool tops = false;\n    if (has_entries(&dev->work))\n        rt_record(dev->rt, RT_WORK, RT_UPLOAD_READ);\n", "    bool tops = false;\n", "test_emu_steps"),  # edits are written over before they are read
    (CUDA % "step.c", "    dev->num_begun++;\n    int slot = (int)(dev->num_begun & 1);\n", "    dev->num_begun++;\n    int slot = 0;\n", "test_emu_steps"),  # host memory is filled again before it is copied
    (CUDA % "sample.cu", "    if (lane >= (int)all && lane < CUDA_TOPK) {", "    if (lane > (int)all && lane < CUDA_TOPK) {", "test_emu_sample", "test_topk"),  # a token behind the last of a local top-k
    (CUDA % "common.cuh", "times_sigmoid(x, kd_mul(1.5957691216f,", "times_sigmoid(x, kd_mul(0.79788456f,", "test_emu_gemm"),  # GELU: tanh of half
    (CUDA % "common.cuh", "u = up > 7 ? 7 : up < -7 ? -7 : up;", "u = up > 7 ? 7 : up;", "test_emu_rows"),  # the clamp of ups below
    (CUDA % "gemm_common.cuh", "up = kd_add(up, bias[a.n + n]);", "up = kd_add(up, bias[n]);", "test_emu_gemm"),  # gates' biases for ups
    (CUDA % "rows.cu", "u = add4(u, read4(a.bias + a.n, i, a.n, false));", "u = add4(u, read4(a.bias, i, a.n, false));", "test_emu_rows"),  # so behind cuBLASLt
    (CUDA % "multiply.c", "int rows = f->no_gate ? n : w->matrix[0].rows;", "int rows = n;", "test_emu_kinds"),  # cuBLASLt calculates half of gate and up
    (CUDA % "rows.cu", "bool whole = i + 4 <= a.n && a.ldx", "bool whole = a.ldx", "test_emu_rows", "test_finish"),  # a GEMM of cuBLASLt writes past its columns
    (CUDA % "pack.cu", "i += SCATTER_BLOCKS * SCATTER_THREADS)", "i += 2 * SCATTER_BLOCKS * SCATTER_THREADS)", "test_emu_rows", "test_scatter"),  # half of a long part of an upload
    (CUDA % "step.c", "bool same_splits = memcmp(g->max_splits, key.max_splits, sizeof key.max_splits) == 0;", "bool same_splits = true;", "test_emu_steps"),  # a graph replays a step with more splits of a spec
    (CUDA % "step.c", "    if (step->masks && step->masks_wait)\n", "    if (false)\n", "test_emu_steps"),  # masks are read before they are there
    (CUDA % "phases.c", ".slots = dev->inputs.groups[layer->kv_group].slots,", ".slots = dev->inputs.groups[0].slots,", "test_emu_kinds"),  # every layer writes to the pages of the first group
    (CUDA % "phases.c", "int spec = layer->attn.index, rows = dev->work.num_decode;", "int spec = 0, rows = dev->work.num_decode;", "test_emu_kinds"),  # every layer decodes by the splits of the first spec
    (CUDA % "phases.c", ".tile_rows = dev->work_config.tile_rows,\n                             .window = layer->attn.window,", ".tile_rows = dev->work_config.tile_rows,\n                             .window = dev->model.attn[0].window,", "test_emu_kinds"),  # every layer has the window of the first
    (CUDA % "phases.c", ".rope_pairs = rope ? rope->dim / 2 : 0,", ".rope_pairs = dev->model.ropes[0].dim / 2,", "test_emu_kinds"),  # positions rotate in every layer
    (CUDA % "work.c", ".begin = at > begin ? at : begin,", ".begin = at,", "test_emu_steps"),  # decode reads what a window gave back
    (CUDA % "phases.c", "&dev->inputs.rows[first].row : NULL", "&dev->inputs.rows[0].row : NULL", "test_emu_steps"),  # hidden states of the first rows for those that follow
    (CUDA % "phases.c", "    float *to = dev->result[dev->num_begun & 1].hidden;\n", "    float *to = dev->result[0].hidden;\n", "test_emu_steps"),  # hidden states of two steps in one place
    (CUDA % "mix.cu", "if (a.states.positions[row] < back)", "if (false)", "test_emu_mix"),  # recurrent: a sequence begins with what its page held
    (CUDA % "mix.cu", "a.tiled ? h % a.groups : h / (a.heads / a.groups)", "h / (a.heads / a.groups)", "test_emu_mix"),  # recurrent: heads take the keys of another group
    (CUDA % "mix.cu", "bool begins = a.states.positions[row] == 0;", "bool begins = true;", "test_emu_mix"),  # recurrent: every step begins a sequence
    (CUDA % "mix.cu", "        kd_copy_wait<0>();\n", "", "test_emu_mix", "test_layers"),  # recurrent: rows are read before their copies land
    (CUDA % "mix.cu", "        __syncthreads(); // others' copies have landed, and the rows before have been read\n", "", "test_emu_mix", "test_layers"),  # recurrent: copies of other warps are not waited for
    (CUDA % "mix.cu", "rows + next % (2 * MIX_AHEAD), a,", "rows + first % (2 * MIX_AHEAD), a,", "test_emu_mix", "test_layers"),  # recurrent: rows that are read are overwritten
    (CUDA % "backend.c", "m->kv_layers + m->state_layers < 1", "m->kv_layers < 1", "test_emu_ranks_mix"),  # recurrent: a stage without attention is refused
    (CUDA % "weight.c", "desc->layer, 0).axis == 1;", "desc->layer, 0).axis == 1 && desc->role != WEIGHT_MIX_OUT;", "test_emu_ranks_mix"),  # recurrent: a rank's segments are its own
    (CUDA % "kv.c", ".num = arrays,", ".num = dev->model.kv_layers,", "test_emu_steps"),  # a page is copied without its values
    (CUDA % "kv.c", "int num_scales = dev->scales ? dev->model.num_attn : 0;", "int num_scales = 0;", "test_emu_steps"),  # and without the scales of int8
    (CUDA % "kv.c", "return cuda_kv_page_arrays(dev) / attn_kv_places(model_attn(m, i));", "return cuda_kv_page_arrays(dev);", "test_emu_kinds"),  # pages of layers that keep more lie elsewhere
    (CUDA % "kv.c", "(whole ? all : place_elems(dev) / d)", "place_elems(dev) / d", "test_emu_kinds"),  # of their scales those of one place are copied
    (CUDA % "phases.c", "    if (attn->shares_kv)\n        a.kv.num_heads = 0;\n", "", "test_emu_kinds"),  # a layer without keys writes over those it takes
    (CUDA % "rows.cu", "id = id < a.vocab ? id : 0;", "id = id < a.vocab ? id : a.vocab - 1;", "test_emu_kinds"),  # tokens without embeddings of layers take the last ones
    (CUDA % "streams.cu", "kd_add(coefficient(a.coefs + k * STREAMS, m), 1)", "coefficient(a.coefs + k * STREAMS, m)", "test_emu_kinds"),  # streams: corrections lack their one
    (CUDA % "rows.cu", "i / 8 * 16 + i % 8 : i;", "i : i;", "test_emu_kinds"),  # sparse gates: ups count among them
    (CUDA % "multiply.c", "w->interleaved ? w->matrix[0].rows : n;", "n;", "test_emu_kinds"),  # and half of the columns are not multiplied
    (CUDA % "phases.c", "altup ? dev->added : dev->resid", "dev->resid", "test_emu_kinds"),  # streams: the gate of a layer's embedding takes what is not scaled
    (CUDA % "attn_prefill.cu", "a.chunked).begin;\n    int tile", "a.chunked).begin / 2;\n    int tile", "test_emu_attention"),  # prefill reads pages that a window gave back
    (CUDA % "ranks.cu", "a.part[i / (a.each / 4)])[i];", "a.part[0])[i];", "test_emu_peers"),  # a stage takes all from its first rank
    (CUDA % "ranks.cu", "            a.y[i] = a.part[i / a.each][i];\n    }\n    keep_epoch(a.peers, epoch, peer_part(a.peers, epoch, go, arrived));\n", "            a.y[i] = a.part[i / a.each][i];\n    }\n    keep_epoch(a.peers, epoch, go);\n", "test_emu_peers"),  # a stage's part is written while others read it
    (CUDA % "phases.c", "rt_download(dev->rt, dst, dev->resid + (size_t)rank * backend_resid_part(n, world),", "rt_download(dev->rt, dst, dev->resid,", "test_emu_ranks"),  # ranks hand over the same part
    (CUDA % "peers.c", "(p->apart ? y : p->part) + begin, part", "y + begin, part", "test_emu_ranks"),  # a part lies where others do not look
    (CUDA % "peers.c", "(p->apart ? y : p->part) + begin, part", "p->part + begin, part", "test_emu_ranks"),  # a part lies where NCCL does not look
    ("engine/ranks/ranks.c", "ops->host_alloc ? ops->host_alloc(k->dev, bytes)", "!ops ? NULL", "test_emu_ranks"),  # what stages hand over is not pinned
    (CUDA % "attn_wgmma.cu", "a.chunked).begin;\n    int tile", "a.chunked).begin / 2;\n    int tile", "test_emu_attention"),  # wgmma: the same
    (ENGINE, "    if ((named || backend_cuda_at_hand()) &&", "    if (backend_cuda_at_hand() &&", "test_emu_load"),  # auto falls back without a word
    (ENGINE, "    depth = depth < PLAN_MAX_DEPTH ? depth : PLAN_MAX_DEPTH; // there may be more stages\n", "", "test_ranks"),  # as many plans as stages
    (CUDA % "emu/emu.cpp", "    memset(dst, 0xff, (size_t)bytes); // the old bytes must not look valid\n", "", "test_emu_intrinsics"),  # a copy lands before it is waited for
    # ---- adapters
    (CUDA % "lora.cu", "a.scale ? kd_mul(t, a.scale[row]) : t;", "t;", "test_emu_lora", "test_types"),  # adapters: F16 activations as they are scaled
    (CUDA % "lora.cu", "kd_mul(m.scale, sum[i])", "sum[i]", "test_emu_lora", "test_types"),  # adapters: whatever the scale
    (CUDA % "lora.cu", "a.interleaved ? n / 8 * 16 + n % 8 : n", "n", "test_emu_lora", "test_types"),  # adapters: gates and ups in one place
    (CUDA % "lora.cu", "        }\n        __syncthreads();\n    }\n", "        }\n    }\n", "test_emu_lora", "test_types"),  # adapters: sums of the next row over those that are read
    (CUDA % "lora.cu", "        __syncthreads();\n        int i = ", "        int i = ", "test_emu_lora", "test_types"),  # adapters: sums that other warps have not written
    (CUDA % "lora.c", ".cols = round_up((int)a->shape[1], 8)", ".cols = (int)a->shape[1]", "test_emu_lora", "test_types"),  # adapters: rows of A side by side
    (CUDA % "lora.c", "dev->bucket ? work_lora_groups(&dev->work_config, w->num_tokens) : w->num_lora", "w->num_lora", "test_emu_lora", "test_graphs"),  # adapters: a graph of as many groups as it was captured with
    (CUDA % "work.c", "rows[num % CUDA_LORA_ROWS] = t;", "rows[num % CUDA_LORA_ROWS] = s;", "test_emu_lora", "test_types"),  # adapters: rows of sequences that have many
    (CUDA % "work.c", "n += (num + CUDA_LORA_ROWS - 1) / CUDA_LORA_ROWS;", "n += num / CUDA_LORA_ROWS;", "test_emu_lora", "test_types"),  # adapters: groups that are not full
    (CUDA % "work.c", "        groups[g].adapter = NULL;", "        ;", "test_emu_lora", "test_graphs"),  # adapters: groups of no rows
    (CUDA % "step.c", "g->has_lora == key.has_lora &&", "true &&", "test_emu_lora", "test_graphs"),  # adapters: graphs without take steps with
    (CUDA % "multiply.c", "dev->limits.max_adapters == 0; // adapters", "true; // adapters", "test_emu_lora", "test_company"),  # adapters: f32 added to bf16
    (CUDA % "multiply.c", "finished = dev->limits.max_adapters > 0;", "finished = lora;", "test_emu_lora", "test_company"),  # adapters: gates of other bits beside a row that has one
    (CUDA % "memory.c", ".sparse || dev->limits.max_adapters > 0;", ".sparse;", "test_emu_lora", "test_company"),  # adapters: gates and ups behind their memory
    (CUDA % "phases.c", "        add_lora(dev, &p, dev->resid);\n", "", "test_emu_lora", "test_types"),  # adapters: none of what is added at once
    (CUDA % "phases.c", "    add_lora(dev, p, y);\n", "", "test_emu_lora", "test_kinds"),  # adapters: none of what is changed before it is added
    (CUDA % "phases.c", "    add_lora(dev, p, y);\n", "    if (dev->peers.rank == 0)\n        add_lora(dev, p, y);\n", "test_emu_adapters"),  # adapters: rank 0's part alone
]
