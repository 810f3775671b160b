"""Mutants: CPU kernels, architectures, chat templates. tests/mutate.py says what a row is."""

SAMPLER = "kernels/cpu/sampler.c"
PHILOX = "kernels/philox.h"
BODY = "kernels/cpu/body.h"
BODY_ATTENTION = "kernels/cpu/body_attention.h"
BODY_SOFTMAX = "kernels/cpu/body_softmax.h"
GEMM = "kernels/cpu/gemm.c"
POOL = "kernels/cpu/pool.c"
CPU = "kernels/cpu/cpu.c"
CPU_DEVICE = "kernels/cpu/device.h"
MODEL_H = "include/model.h"
TABLE = "include/weights.def"
ATTENTION = "kernels/cpu/attention.c"
ROPE = "kernels/rope.c"
REF_ATTENTION = "kernels/ref/ref_attention.c"
TILES = "kernels/cpu/body_gemm.h"
AVX2 = "kernels/cpu/vec_avx2.h"
AVX512 = "kernels/cpu/vec_avx512.h"
AMX = "kernels/cpu/amx.c"
AMX_ATTENTION = "kernels/cpu/amx_attention.h"
FMA = "kernels/cpu/avx512fma.c"
PACK = "kernels/cpu/pack.c"
QUANTS_H = "base/quants.h"
DECODE = "base/quants.c"
REF_OPS = "kernels/ref/ref_ops.c"
WEIGHTS = "engine/models/weights.c"
CONFIG = "engine/models/model_config.c"
ARCHS = "engine/models/architectures.c"
KV_LAYERS = "engine/models/kv_layers.c"
JINJA = "lib/jinja/%s.c"
SHARD = "engine/models/shard.c"
HEAD = "kernels/cpu/head.c"
EXPERTS = "kernels/cpu/experts.c"
LATENT = "kernels/cpu/latent.c"
CONFIG_EXPERTS = "engine/models/config_experts.c"
CONFIG_ATTN = "engine/models/config_attn.c"
CONFIG_STREAMS = "engine/models/config_streams.c"
STREAMS = "kernels/cpu/streams.c"
REF_STREAMS = "kernels/ref/ref_streams.c"
CPU_KV = "kernels/cpu/kv.c"
CPU_KV_H = "kernels/cpu/kv.h"
ROPE_TABLE = "kernels/cpu/rope_table.c"
CUDA = "kernels/cuda/%s"
LORA = "kernels/cpu/lora.c"
ADAPTER = "engine/models/adapter.c"
PEFT = "engine/models/hf/peft.c"

ROWS = [
    (CPU, "hidden_at = dev->model.mtp_hidden_first ? 0 : D;", "hidden_at = dev->model.mtp_hidden_first ? D : 0;", "test_json_mtp"),  # columns of the other half
    (WEIGHTS, "bias, layer + c->mtp_layer, name);", "bias, layer, name);", "test_json_mtp"),  # an MTP layer of the first layer's weights
    ("engine/models/quantize.c", "arch_may_have(job->arch, H_NEXTN)", "true", "test_mtp"),  # files that nobody opens
    (WEIGHTS, 'TRAIT_ONE_PART ? "ffn_norm" : NULL;', 'TRAIT_ONE_PART ? "attn_norm" : NULL;', "test_json_mtp"),  # Nemotron 3's feed-forward takes the other part's norm
    ("engine/models/quantize.c", 'set_own_key(job, arch, "nextn_predict_layers", (uint32_t)f->num_mtp);', "", "test_mtp"),  # its layer is one of the model's
    ("engine/models/quantize.c", "kv->elem == META_BOOL ? zero : last", "last", "test_mtp"),  # an MTP layer that is said to have a state
    ("engine/models/quantize.c", "add64(b, kv->count + more);", "add64(b, kv->count);", "test_mtp"),  # arrays of layers that end too early
    (ARCHS, ".may = LIST(H_TOP_K, H_NEXTN)},", ".may = LIST(H_TOP_K)},", "test_mtp"),  # quire-tiny with its MTP layer is refused
    ("engine/batch.c", "r->second_text > 0 && position >= r->second_text", "false", "test_batch"),  # pairs of texts as one
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
    (BODY, "mask[g / 2] >> g % 2 * LANES & 0xffff", "mask[g / 2] & 0xffff", "test_sampler"),  # half of the mask, twice
    (BODY, "            sums[g] = 0;\n", "", "test_sampler"),  # a group of which nothing is left has its last row's weight
    (SAMPLER, "        return k->group_mask(", "        return !k->group_mask(", "test_sampler"),  # a masked row is not finite
    (PHILOX, "k0 += 0x9E3779B9u",
            "k0 += 0x9E3779B8u", "test_sampler"),  # another random stream
    (BODY_SOFTMAX, "                s = v16_keep(s, begin[t] - i, end[t] - i, nothing);\n",
            "                s = s;\n", "test_ops"),  # attention reads what lies past the end
    (BODY_ATTENTION, "        values_half_pair(out, w, c, dtype, begin - 1, t, 2);\n", "",
            "test_canonical"),  # a window that begins within a pair loses a token
    (BODY_SOFTMAX, "s = v16_mul(s, v16_load(c->key_scale[i / ATTN_TILE]));", "s = v16_mul(s, scale);",
            "test_ops"),  # int8: keys without their scales
    (BODY_ATTENTION, "            part[2 * j + used / 2] = pair_part(tile, dtype, at0 + 2 * (i + j) + used / 2);",
            "            for (int k = 0; k < 2; k++)\n                part[2 * j + k] = pair_part(tile, dtype, at0 + 2 * (i + j) + k);",
            "test_ops"),  # a pair reads the token after the context
    (ATTENTION, "        first_partial += job->heads * (chunk1 - chunk0);\n", "",
            "test_ops"),  # long sequences beside each other share their slots
    (ATTENTION, "            if (partials + more > cpu_attn_partials(job->dev))\n                break;\n", "",
            "test_ops"),  # more of them than there is room for
    (BODY_ATTENTION, "        if (low > r.low || high < r.high)\n            rescale_out(&w, c);\n", "",
            "test_canonical"),  # queries of other ranges: what they had so far is not scaled to the new maximum
    (BODY_SOFTMAX, "    rescale = v16_if_less(top, v16_set1(-FLT_MAX), v16_set1(1), rescale); // nothing yet\n", "",
            "test_kernels"),  # a row whose window begins later is NaN
    (BODY_SOFTMAX, "x = v16_sub(v16_mul(v16_load(w->p + at), scale), best);",
            "x = v16_fma(v16_load(w->p + at), scale, v16_sub(zero, best));", "test_canonical"),  # a weight with one rounding less
    (BODY_SOFTMAX, "x = v16_max(v16_set1(-127), x);", "x = v16_max(v16_set1(-126), x);", "test_kernels"),  # weights never become 0
    (AVX512, "0xff, _mm512_setr_epi32(0, 4, 8, 12, 2, 6,", "0xff, _mm512_setr_epi32(0, 4, 8, 12, 6, 2,", "test_kernels"),  # sums of two queries change places
    (BODY_ATTENTION, "for (int h = size >= 16 ? 16 : 1; h < size; h *= 2)", "for (int h = size >= 16 ? 16 : 1; h < size / 2; h *= 2)",
            "test_kernels"),  # int8: the last stage of the keys' turn is missing
    (BODY_ATTENTION, "sign4 = {1, 1, 1, 1, -1,", "sign4 = {1, 1, 1, -1, -1,", "test_kernels"),  # int8: a sign of the keys' turn
    (CPU, "turn_heads(dev, q, a->heads, a->head_dim, 1.0f / (float)hadamard_size(a->head_dim));", "", "test_canonical"),  # int8: turned keys before queries that are not
    ("kernels/hadamard.h", "return d & -d;", "return d;", "test_ops"),  # int8: heads of no power of two
    (ATTENTION, "&c->key_scale[i]) = scale + head * B;", "&c->key_scale[i]) = scale + head * 0 * B;", "test_ops"),  # decode, int8: scales of the first head for all
    (BODY_SOFTMAX, "    if (c->step0 > 0)\n        return;\n", "", "test_ops"),  # each step of decode forgets those before it
    (ATTENTION, "c->step0 = step, c->step1 = step + 1;", "c->step0 = step, c->step1 = 4;", "test_ops"),  # steps of decode are done twice
    (ATTENTION, "from = u % m.per_head * ATTN_QUERIES;\n        float *q", "from = 0;\n        float *q",
                "test_ops"),  # decode, large groups: the first eight heads again
    (ATTENTION, "head + each < heads ? head + each : heads", "head + each < heads ? head + each : heads - 1",
                "test_ops"),  # decode: the last kv head of an item is left out
    (ATTENTION, "own == i && later < last", "own == i && later < last + ATTN_STEP", "test_prefetch"),  # what is not there is asked for
    (ATTENTION, "tile += which;", "tile += 1;", "test_prefetch"),  # decode: half of the next step is not asked for
    (TILES, "rows_add(rows_load(sum + i * SEGMENT_FLOATS), rows_load(sum + (i + 1) * SEGMENT_FLOATS))",
            "rows_add(rows_load(sum + i / 2 * SEGMENT_FLOATS), rows_load(sum + (i / 2 + 4) * SEGMENT_FLOATS))", "test_canonical"),  # another tree of segments
    (CPU, "    if (slot >= 0)\n", "    if (slot >= -1)\n", "test_ops"),  # padding is written
    (ATTENTION, "&step->groups[layer->kv_group]", "&step->groups[0]", "test_layers"),  # every layer reads the first group's pages
    (CPU, "job->step->groups[layer->kv_group].slots[t]", "job->step->groups[0].slots[t]", "test_layers"),  # and writes there
    (CPU, "finish_heads(dev, key, a->kv_heads, a,", "finish_heads(dev, key, a->kv_heads, &dev->model.attn[0],", "test_layers"),  # keys of every layer rotate alike
    (CPU_KV_H, "(size_t)layer->kv_layer * kv_vectors(dev) +", "(size_t)layer->kv_layer / 2 * kv_vectors(dev) +", "test_layers"),  # layers read each other's keys
    (CPU_KV_H, "(size_t)(which * attn_kv_places(&layer->attn))", "(size_t)which", "test_layers"),  # values lie on the keys of a layer with two places
    (CPU, "l->kv_layer + attn_kv_places(&m->attn[l->attn]) >", "l->kv_layer + 1 >", "test_layers"),  # pages without room for all places
    ("kernels/ref/ref_kv.c", "which * attn_kv_places(a));", "which);", "test_layers"),  # the same in the reference
    (HEAD, "if (r == 0 && step->masks", "if (step->masks", "test_layers"),  # masks are waited for more than once
    (HEAD, "            step->masks_wait(step->masks_arg);\n", "            (void)0;\n", "test_layers"),  # masks that are not computed yet
    (HEAD, "&x, out->hidden + (size_t)r * (size_t)dev->model.hidden", "&x, out->hidden", "test_layers"),  # hidden states of the first rows only
    (CPU_KV, "        if (dev->kv_dtype == DTYPE_I8)\n            memcpy", "        if (false)\n            memcpy", "test_layers"),  # int8 pages are copied without scales
    (ROPE_TABLE, "= {t, t->filled, end};", "= {t, t->filled + 1, end};", "test_layers"),  # a position between two fills is left out
    # ---- architectures ---------------------------------------------------------------------------------------
    (CPU_DEVICE, "float *a = x + (r->interleaved ? 2 * i : i), *b = r->interleaved ? a + 1 : a + r->pairs;",
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
    (WEIGHTS, "t.offset += (uint64_t)in.before * row_bytes;", "", "test_json_arch"),  # every part is the fused tensor's first
    (WEIGHTS, "there && (!at.bias", "true && (!at.bias", "test_model_config"),  # parts and the fused tensor side by side
    ("engine/engine.c", "> e->model.ropes[i].original_context)", "< e->model.ropes[i].original_context)", "test_json_arch"),  # the other factors of LongRoPE
    (BODY_SOFTMAX, "s = tanh_v16(v16_mul(s, v16_set1(c->inner)));", "s = v16_mul(s, v16_set1(c->inner));", "test_json_arch"),  # scores without their cap
    ("kernels/cpu/body.h", "v16_set1(0.0713548162726f), v16_mul(x, x)", "v16_set1(0.0713548162726f), x", "test_json_arch"),  # another GELU
    (HEAD, "dev->kernels->softcap(logits, n, dev->model.logit_softcap);", ";", "test_json_arch"),  # logits without their cap
    (CPU, "device_norm(dev, x, x, job->norm, 0, D);", ";", "test_json_arch"),  # no norm behind a sublayer
    (CPU, "device_norm(dev, x, x, norm, 0, num_heads * d);", "device_norm(dev, x, x, norm, 0, d);", "test_json_arch"),  # a norm of the first head
    ("engine/models/config_rope.c", "(latent ? 1 : 0.1f)", "1.0f", "test_json_arch"),  # Ministral's multiplier read as DeepSeek's
    (ROPE, "log(1 + (position", "log(1 + (double)(position", "test_json_arch"),  # the temperature rises with each token
    ("kernels/cpu/gemm.c", "floats[i] = x[i] * job->scales[t];", "floats[i] = x[i];", "test_experts"),  # Llama 4: experts are not weighted
    (EXPERTS, "            r->weights[i] = 1;\n", "", "test_experts"),  # but twice
    (EXPERTS, "        if (f->gating != GATING_SOFTMAX)\n", "", "test_experts"),  # groups of DeepSeek V2
    (CONFIG_EXPERTS, "        e->gating = GATING_SIGMOID;\n", "        ;\n", "test_json_arch"),  # old files of V3
    ("engine/models/arch_slots.c", "2, TURNS_OF_GROUPS}", "2, TURNS_NONE}", "test_json_arch"),  # not group by group
    (EXPERTS, "at > 0 && score[e] > score[best[at - 1]]", "at > 0 && score[e] >= score[best[at - 1]]", "test_experts"),  # of equal scores the higher id
    (EXPERTS, "    sort_ids(experts, k);\n", "", "test_experts"),  # experts are summed by their scores
    (EXPERTS, "choose(best, 2, score + g * size, size, NULL);", "choose(best, 1, score + g * size, size, NULL), best[1] = 0;",
        "test_experts"),  # a group's best and its first
    (EXPERTS, "mark_groups(may, key, f);", "mark_groups(may, logits, f);", "test_experts"),  # groups are chosen without the bias
    (EXPERTS, "weights[i] = logits[experts[i]];", "weights[i] = key[experts[i]];", "test_experts"),  # the bias counts in the weights
    (EXPERTS, "y[i] /= sum + 1e-20f;", "y[i] *= 1 / (sum + 1e-20f);", "test_experts"),  # rounded twice
    (EXPERTS, "weights[i] *= model_scale(f->scale);", ";", "test_experts"),  # weights without their scale
    (EXPERTS, "k, largest(weights, k));", "k, weights[0]);", "test_experts"),  # softmax by another number than the largest
    (EXPERTS, "logits[e] += layer->router->bias[0][e];", ";", "test_experts"),  # a router without its bias
    (EXPERTS, "scale *= 1 / (1 + gate);", "scale *= gate;", "test_experts"),  # the shared expert's gate is an exponential
    (EXPERTS, "y[c] += w * (bias ? x[c] + bias[c] : x[c]);", "y[c] += w * x[c];", "test_experts"),  # the bias of down is lost
    (EXPERTS, "(size_t)(r->experts[i] - first) * (size_t)D + c0", "(size_t)r->experts[i] * (size_t)D + c0", "test_ranks"),  # another expert's bias on all ranks but the first
    (EXPERTS, "sum[i][c] = sum[2 * i][c] + sum[2 * i + 1][c];", "sum[i][c] = sum[i][c] + sum[i + n / 2][c];", "test_experts"),  # another tree
    (EXPERTS, "each * dev->rank + segment + 1", "segment + 1", "test_ranks"),  # segments of the first rank
    (EXPERTS, "e >= first && ", "", "test_ranks"),  # experts of the ranks before
    (EXPERTS, "counts->rows += end - begin;", "counts->rows += (uint64_t)slots;", "test_ranks"),  # counts: what this rank multiplies
    (GEMM, "(size_t)g->expert * (size_t)p->rows : NULL", "0 : NULL", "test_experts"),  # all have the first expert's bias
    (GEMM, "(size_t)g->expert * (size_t)p->num_panels * p->panel_bytes", "0 * p->panel_bytes", "test_experts"),  # and its weights
    (EXPERTS, "if (left[e] && !((best", "if (!((best", "test_experts"),  # PhiMoE: the first choice counts beside the second
    (EXPERTS, "fmaxf(fabsf(logits[e]), best) > f->near", "best > f->near", "test_experts"),  # what is near 0 by its sign
    (EXPERTS, "cpu_gemm_input(dev, dev->before, num_tokens,", "cpu_gemm_input(dev, dev->resid, num_tokens,", "test_json_transformers"),  # SmallThinker: a router behind attention
    (EXPERTS, "scale = model_scale(layer->ffn.shared_scale);", "scale = 1;", "test_experts"),  # the shared expert is not halved
    (EXPERTS, "floats = dev->latent, ldx = (size_t)f->latent;", "(void)0;", "test_experts"),  # experts take the row
    (EXPERTS, "float *sums = job->layer->ffn.latent ? dev->latent : dev->partial;", "float *sums = dev->partial;", "test_experts"),  # the latents' sum lies elsewhere
    (CPU, "sum_of_ranks(dev, dev->latent, rows * (size_t)layer->ffn.latent);", ";", "test_json_transformers"),  # ranks bring their own parts of the latents back
    (LORA, "low > -0.5f ?", "low > -50 ?", "test_json_transformers"),  # xIELU: a series far from 0
    (LORA, "p->positive * v * v : p->negative * rest", "p->positive * v : p->negative * rest", "test_json_transformers"),  # xIELU without its square
    ("engine/models/config_xielu.c", "(float)(beta[i] + softplus(n[i]))", "(float)softplus(n[i])", "test_parts_config"),  # negative without beta
    (CONFIG_EXPERTS, "        e->shared_scale = 0.5f;\n", "", "test_parts_config"),  # Cohere 2: the shared expert as it is
    (CONFIG_EXPERTS, "while (a->by_tensors &&", "while (false &&", "test_parts_config"),  # Hunyuan 3: no layer is dense
    (CONFIG, "!(r->arch->dense_rope && !config_has_experts(r, layer))", "true", "test_parts_config"),  # Cohere 2: a dense layer does not rotate
    (CONFIG_ATTN, "if (i >= r->h.layers - r->h.nextn)", "if (false)", "test_parts_config"),  # Nemotron 3: a layer of speculation has both parts
    (CONFIG_EXPERTS, "e->gating == GATING_IN_TURN && e->top_k != 2", "false", "test_expert_config"),  # three of them
    (CONFIG_ATTN, "layer_norm ? H_LAYER_NORM_EPS : H_NORM_EPS", "H_NORM_EPS", "test_json_arch"),  # LayerNorm's own epsilon
    ("engine/models/hf/config_rope.c", "own ? \"short_mscale\"", "false ? \"short_mscale\"", "test_json_arch"),  # what cos and sin are multiplied by
    (EXPERTS, "weights[i] *= layer->expert_scale->vector[experts[i]];", ";", "test_experts"),  # Gemma 4: experts without a factor of their own
    (EXPERTS, "logits[e] *= model_scale(f->router_scale);", ";", "test_experts"),  # and a router with too sharp a choice
    (EXPERTS, "f->own_norms ? layer->router_norm : layer->ffn_norm", "layer->ffn_norm", "test_experts"),  # by the norm of the dense part
    (EXPERTS, "layer->router, layer->expert_norm);", "layer->router, layer->router_norm);", "test_experts"),  # whose rows are the experts'
    (CPU, "device_norm(dev, x, x, job->own->expert_post_norm, 0, D);", ";", "test_experts"),  # what experts give is not normalised
    (CONFIG_EXPERTS, "|| r->h.expert.own_norms)", ")", "test_expert_config"),  # a dense part of no size
    ("engine/models/hf/layout.c", "return c ? c : strcmp(end_of(x), end_of(y));", "return c;", "test_json_arch"),  # factors of experts are their matrices
    (BODY, "v16_max(v16_set1(-7), v16_min(v16_set1(7), up))", "v16_min(v16_set1(7), up)", "test_experts"),  # up has no lower end
    (BODY, "    g = v16_min(v16_set1(7), g);\n", "", "test_experts"),  # gate has no upper end
    (LATENT, "memcpy(q + C, heads + h * (n + r) + n,", "memcpy(q + C, heads + h * (n + r),", "test_latent"),  # rotates what does not rotate
    (LATENT, "layer->latent_norm->vector, C, dev", "layer->latent_norm->vector, C + r, dev", "test_latent"),  # the key is normalised, too
    (LATENT, "        rotate_head(vector + C, &turn);", "        ;", "test_latent"),  # keys do not rotate
    (LATENT, "(size_t)(head * p->num_panels) * p->panel_bytes", "(size_t)(0 * p->num_panels) * p->panel_bytes", "test_latent"),  # one matrix for all heads
    (LATENT, "layer->latent_q, layer->latent_qnorm", "layer->latent_q, NULL", "test_latent"),  # latents of queries without their norm
    (CONFIG_EXPERTS, "e->experts / e->groups < 2", "e->experts / e->groups < 1", "test_expert_config"),  # groups of one have no second best
    (CONFIG_EXPERTS, "e->experts % e->groups != 0 ||", "", "test_expert_config"),  # groups that do not divide
    (CONFIG_EXPERTS, "(int64_t)e->top_k * e->hidden + e->shared_hidden > 1 << 24", "false", "test_expert_config"),  # rows of any size
    (CONFIG_EXPERTS, "< r->h.layers - r->h.nextn)", "<= r->h.layers - r->h.nextn)", "test_expert_config"),  # experts that no layer has
    (CONFIG_EXPERTS, "if (needed && r->h.ffn.hidden == 0)", "if (false)", "test_expert_config"),  # no word of a size that is missing
    (CONFIG_EXPERTS, "if (r->h.nextn >= r->h.layers) {", "if (r->h.nextn > r->h.layers) {", "test_expert_config"),  # a model of no layers
    (CONFIG_ATTN, "if (apart && (a->head_dim != a->kv_lora + a->rope_dim || h->value_dim != a->kv_lora)) {", "if (false) {",
        "test_expert_config"),  # sizes of the cache that disagree
    (CONFIG_ATTN, "a->nope_dim < 1 || a->rope_dim % 2 != 0", "a->nope_dim < 0", "test_expert_config"),  # keys that rotate whole, and odd ones
    (TABLE, "VECTOR(WHOLE, ffn->select_bias ? ffn->experts : 0)", "VECTOR(WHOLE, ffn->experts)",
        "test_expert_config"),  # a bias that older files lack
    (CONFIG_ATTN, "r->recurrent[i] = v == 0 && !r->ffn_alone[i];", "r->recurrent[i] = v == 0;", "test_recurrent_config"),  # a feed-forward with a state
    (CONFIG, "c->ffn[i].hidden != ffn->hidden ||", "false ||", "test_recurrent_config"),  # all layers have a feed-forward, or none
    (CONFIG_EXPERTS, "(v > 0 && r->h.ffn.hidden > 0 && v != r->h.ffn.hidden)", "false", "test_recurrent_config"),  # the last size for all
    (CONFIG, "a->depth_scale / sqrtf((float)h->layers)", "a->depth_scale", "test_json_arch"),  # MiniCPM 3 of one layer
    ("engine/models/latent.c", "t->dtype == DTYPE_FP8 ? DTYPE_BF16 : ", "", "test_folder_quant"),  # keys of FP8 in F32
    ("engine/models/latent.c", "(size_t)a->nope_dim * row;", "0 * row;", "test_json_arch"),  # keys for values in old files
    (CPU, "if (a->qk_norm == QK_NORM_UNIT)", "if (false)", "test_json_arch"),  # no norm without weights
    (CONFIG, "a.rope >= 0 && r->arch->still_temp > 0", "false", "test_json_arch"),  # layers that rotate have a temperature, too
    (CPU, "q[i] *= temperature;", ";", "test_json_arch"),  # queries at one temperature
    (CPU, "a->qk_norm == QK_NORM_EACH ? h * d : 0", "0", "test_json_arch"),  # all heads by the first one's norm
    ("kernels/cpu/device.h", "block_is_parallel(d->model.block) ? d->before : d->resid", "d->resid", "test_json_arch"),  # parallel blocks one after the other
    (BODY, "v = n - i < LANES ? v16_keep(v, 0, n - i, zero) : v;", "", "test_kernels"),  # LayerNorm counts what is past the row
    (BODY, "v16_sub(v16_load_part(x + i, n - i), mean), scale)", "v16_load_part(x + i, n - i), scale)", "test_canonical"),  # the mean stays
    (BODY, "v16_if_less(x, zero, tail, v16_sub(one, tail))", "v16_sub(one, tail)", "test_canonical"),  # exact GELU of one side
    (GEMM, "+= bias[panel * LANES + i];", "+= bias[i];", "test_canonical"),  # biases of the first panel
    (GEMM, "const float *bias = job->bias[part];", "const float *bias = job->bias[0];", "test_canonical"),  # up gets the bias of gate
    (HEAD, "logits[v] += bias[v];", "logits[v] -= bias[v];", "test_json_arch"),  # the head's bias subtracted
    (ATTENTION, ".inner = cap > 0 ? scale / cap : 0,", ".inner = cap > 0 ? scale : 0,", "test_canonical"),  # a soft cap of 1
    (CPU, "layer->down, layer->ffn_post_norm, step);", "layer->down, layer->attn_post_norm, step);", "test_canonical"),  # the norm of another sublayer
    (ATTENTION, "job->sinks[h] * LOG2_E, 1, no_values", "job->sinks[h], 1, no_values", "test_canonical"),  # sinks are no powers of 2
    (ATTENTION, "finish_query(job, head, results(dev)", "finish_query(job, 0, results(dev)", "test_ops"),  # of split sequences all heads have the first sink
    (SHARD, "num = a->heads, r = heads(s, a->heads);", "num = a->heads, r = (struct range){0, num / s->world};",
            "test_ranks"),  # all ranks have the first one's heads, sinks and gate
    (ROPE, "r->fine_ramp ? high : ceil(high)", "ceil(high)", "test_json_arch"),  # gpt-oss: the ramp of YaRN ends at a whole pair
    (TABLE, "VECTOR(HEADS, attn->sinks ? heads : 0)", "VECTOR(WHOLE, attn->sinks ? heads : 0)", "test_shard"),  # every rank has all sinks
    ("kernels/weight_check.c", "t->shape[i] != want->size[i] &&", "false &&", "test_shard"),  # backends take weights of any size
    (TABLE, "HEAD_NORM(KV_HEADS, kv_heads)", "HEAD_NORM(HEADS, kv_heads)", "test_ranks"),  # norms of more heads than kv heads
    (WEIGHTS, "!strncmp(part_name(c, at.slot, at.part, at.bias, layer, own), name.data, name.len)", "true", "test_model_config"),  # a norm that nothing reads
    (CONFIG, "r->arch->one_norm == ALWAYS ||", "", "test_model_config"),  # Cohere with a norm of the feed-forward
    (CPU, "clip_heads(value, kv, a);", "", "test_canonical"),  # OLMo's values are not clipped
    (CUDA % "qkv.cu", "x < -most ? -most : x", "x", "test_emu_rows"),  # clipped on one side
    (MODEL_H, "x < -a->clip ? -a->clip : x", "x", "test_json_transformers"),  # so on the others
    (WEIGHTS, " || is_ones(c, at.slot)", "", "test_model_config"),  # OLMo 1 with norms that nothing reads
    (WEIGHTS, "&(float){1}", "&(float){2}", "test_json_transformers"),  # OLMo 1's norms
    (WEIGHTS, "two ? WEIGHT_FFN_NORM : WEIGHT_ATTN_NORM", "two && c->tied ? WEIGHT_FFN_NORM : WEIGHT_ATTN_NORM", "test_json_transformers"),  # the one norm of Falcon 7B has another name
    (CONFIG, "r->arch->window_rope && windowed;", "0;", "test_json_arch"),  # layers with a window rotate as the others
    (CONFIG, "c->ffn[i].hidden != ffn->hidden", "false", "test_json_arch"),  # feed-forward parts of one size
    (CONFIG_ATTN, "h->window_rope_dim % 2 == 0", "true", "test_model_config"),  # an odd number rotates
    (KV_LAYERS, "b->rope != a->rope ||", "", "test_kv_layers"),  # shared keys that rotate in another way
    (WEIGHTS, "model_attn(c, layer)->tied_values)\n        part = 1;", "false)\n        part = 1;", "test_json_arch"),  # values that no file has
    ("engine/models/hf/config_rope.c", "head_dim / 2) ? 1 : 1e30f", "head_dim / 2) ? 1 : 1", "test_json_arch"),  # all pairs of a head rotate
    ("engine/models/hf/config_layers.c", "twice ? 2 * ffn : ffn", "ffn", "test_json_arch"),  # shared layers as wide as others
    (SHARD, "if (stages > 1 && shares)", "if (false)", "test_shard"),  # stages without each other's keys
    (CPU, "a->v_norm && h < kv", "false && h < kv", "test_json_arch"),  # values as they come
    (CPU, "(x[i] + row[i] * own) * half", "x[i] * half", "test_json_arch"),  # tokens give layers nothing of their own
    (CPU, "job->layer->layer_scale->vector[0] : 1", "1 : 1", "test_json_arch"),  # layers of one scale
    (STREAMS, "c[n] += 1;", "c[n] += 0;", "test_json_arch"),  # streams are corrected by nothing more than their coefficients
    (STREAMS, "(((c[4] * x0 + c[5] * x1)", "(((c[1] * x0 + c[5] * x1)", "test_json_arch"),  # coefficients the other way round
    (STREAMS, "k->squares(x + begin, less, end - begin)", "k->squares(x + begin, 0, end - begin)", "test_json_arch"),  # deviations from 0, not from the mean
    (STREAMS, "if (pass != CUT && dev->world > 1)", "if (false)", "test_ranks"),  # ranks cut gates by their own alone
    (STREAMS, "sums[i] = sums[2 * i] + sums[2 * i + 1];", "sums[i] = sums[i] + sums[n / 2 + i];", "test_ranks"),  # another tree of segments
    (STREAMS, "for (int n = 1; n < N; n++)\n            match(dev, x[n] = merged_at(dev, n, r), first);",
              "for (int n = 1; n < N; n++)\n            x[n] = merged_at(dev, n, r);", "test_json_arch"),  # streams of other magnitudes
    (STREAMS, "scaled[i] = resid[i] * scale[i];", "scaled[i] = resid[i] + 0 * scale[i];", "test_json_arch"),  # layers take their part of an unscaled stream
    (LORA, "    if (layer->ffn.sparse)\n        cpu_sparse_gates(dev, layer, x->num_rows);\n", "", "test_json_arch"),  # gates are not cut
    (HEAD, "merged ? NULL : rows", "rows", "test_json_arch"),  # rows of the step, of merged ones
    (CPU, "id < dev->model.layer_vocab ? id : 0", "id < dev->model.layer_vocab ? id : 1", "test_json_arch"),  # tokens behind the table
    (REF_STREAMS, "others[n * s->hidden + i] += (float)(more * (1 + (double)c[n]));", "others[n * s->hidden + i] += (float)(more * (double)c[n]);", "test_json_arch"),  # the reference corrects by coefficients alone
    (CONFIG, "    h->logit_softcap = a->logit_softcap;\n", "", "test_json_arch"),  # Gemma 3n's cap is not in its files
    (CONFIG_STREAMS, "r->deviations[i] = r->sparse[i] ? v : 0;", "r->deviations[i] = 0;", "test_json_arch"),  # gates are cut at their mean
    (CONFIG_STREAMS, "|| fabsf(v) <= 100)", "|| v <= 1e6f)", "test_model_config"),  # a cut that no gate reaches
    (CONFIG_ATTN, "    if (r->h.shared_kv == v)\n", "    if (true)\n", "test_model_config"),  # half a layer shares keys
    (WEIGHTS, "        t.offset += t.bytes * (uint64_t)s->at;\n", "", "test_json_arch"),  # one matrix for all streams
    ("engine/models/hf/config_layers.c", "erfc(-middle / sqrt(2)) / 2 < p", "erfc(-middle) / 2 < p", "test_json_arch"),  # another normal distribution
    (BODY, "        v = n - i < LANES ? v16_keep(v, 0, n - i, zero) : v;\n        squares", "        squares", "test_kernels"),  # a mean beyond the row
    (REF_ATTENTION, "if (slots[t] < 0 || a->shares_kv)", "if (slots[t] < 0)", "test_json_arch"),  # keys that the layer has not
    (SHARD, "a->qk_norm == QK_NORM_WHOLE && world > 1", "false", "test_shard"),  # ranks normalise their own heads
    (CONFIG, "h->logit_scale = 1 / h->logit_scale;", "h->logit_scale = h->logit_scale;", "test_json_arch"),  # logits multiplied, not divided
    (CONFIG, "layer % every == every - 1", "layer % every == 0", "test_json_arch"),  # other layers go without rotation
    (CONFIG, "a->rope == b->rope && ", "", "test_json_arch"),  # layers with and without rotation share a spec
    (CUDA % "rows.cu", "kd_mul(table_element(a.table, a.dtype, id, a.hidden, i), a.factor)", "table_element(a.table, a.dtype, id, a.hidden, i)", "test_emu_rows"),  # the embedding is not scaled
    (CPU, "bias[1], layer->k_norm, &turn", "bias[1], layer->q_norm, &turn",
          "test_json_arch"),  # keys get the queries' norm
    (ATTENTION, "attn_seen(a, position, context, &c->begin[j], &c->end[j]);", "attn_seen(a, position - 1, context, &c->begin[j], &c->end[j]);",
                "test_json_arch"),  # the window is one token longer
    (ATTENTION, "    attn_seen(job->attn, positions[row0], context, &begin, &ignored);", "    begin = 0 * row0;", "test_ops"),  # blocks outside the window are read
    (REF_ATTENTION, "attn_seen(a, step->positions[t], context, &begin, &end);", "attn_seen(a, step->positions[t] + 1, context, &begin, &end);",
                    "test_json_arch"),  # the window is one token shorter
    (CPU, "if (job->norm && !of_sum)", "if (job->norm)", "test_canonical"),  # BERT normalises twice
    (CPU, "job->step->types ? job->step->types[t] : 0", "0", "test_canonical"),  # one type for both texts
    (MODEL_H, "context - position > half ? position + half + 1 : context", "context - position > half ? position + half : context", "test_canonical"),  # a token less to the right
    (MODEL_H, "(position > half ? position - half : 0)", "0", "test_canonical"),  # all to the left
    ("engine/models/pool_head.c", "vector[0] -= vector[1];", "vector[0] += vector[1];", "test_pooling"),  # yes and no are one
    ("engine/models/pool_head.c", "y[o] = s->bias ? s->bias[o] : 0;", "y[o] = 0;", "test_pooling"),  # a classifier without its bias
    ("engine/models/pool_head.c", "if (s->norm)", "if (false)", "test_pooling"),  # nor its norm
    (ROPE, "case ROPE_LINEAR: freq /= r->factor; break;", "case ROPE_LINEAR: break;", "test_json_arch"),  # no linear scaling
    (ROPE, "freq /= r->freq_factors[i];", "freq *= r->freq_factors[i];", "test_json_arch"),  # factors the wrong way
    (ROPE, "if (turns > r->high_freq)", "if (turns > r->low_freq)", "test_json_arch"),  # Llama 3: nothing between the bounds
    (ROPE, "floor(low)", "ceil(low)",
           "test_json_arch"),  # YaRN's ramp begins a pair later
    ("engine/models/config_rope.c", "rope->attn_factor *= whole / mscale;", "rope->attn_factor /= mscale;",
             "test_json_arch"),  # YaRN without its temperature
    (ARCHS, '{"qwen2", .qkv_bias', '{"qwen2", .rope_interleaved = true, .qkv_bias', "test_json_arch"),  # Qwen 2 with llama's pairs
    (ARCHS, '.act = ACT_GELU, .embed_sqrt = true},', '.act = ACT_GELU},', "test_json_arch"),  # Gemma's embedding as it is
    (ARCHS, ".window_pattern = 2,\n     .wide_scale_layers", ".window_pattern = 3,\n     .wide_scale_layers", "test_json_arch"),  # other layers of Gemma 2 have windows
    (ARCHS, ".window_pattern = 5, .window_rope", ".window_pattern = 6, .window_rope", "test_silent_files"),  # other layers of Gemma 3n have windows
    (ARCHS, ".embed_scale = 12", ".embed_scale = 11", "test_json_arch"),  # MiniCPM 3 has another scale
    (ARCHS, ".no_norm_experts = 128", ".no_norm_experts = 16", "test_json_arch"),  # Llama 4 Scout like Maverick
    (ARCHS, ".traits = TRAIT_NO_GATE, .act = ACT_GELU_ERF,", ".traits = TRAIT_NO_GATE, .act = ACT_GELU,", "test_json_arch"),  # Pythia's GELU by tanh
    (ARCHS, "plain = {.gating = GATING_SOFTMAX},", "plain = {.gating = GATING_SOFTMAX, .renormalise = true},", "test_json_arch"),  # OLMoE's weights add up to 1
    (ARCHS, ".near = 0.02f", ".near = 0.2f", "test_json_arch"),  # Phi 3.5 MoE weighs among more experts
    (ARCHS, ".bias_is_sigmoid = true", ".bias_is_sigmoid = false", "test_json_arch"),  # DeepSeek V3 routed as V2
    (ARCHS, "sigmoid = {.gating = GATING_SIGMOID, .select_bias = true},", "sigmoid = {.gating = GATING_SOFTMAX, .select_bias = true},", "test_silent_files"),  # GLM 4.5 and dots by softmax
    (ARCHS, "deepseek = {.gating = GATING_SOFTMAX,", "deepseek = {.gating = GATING_SIGMOID,", "test_silent_files"),  # DeepSeek V2 by sigmoid
    (ARCHS, ".wide_scale_layers = 46", ".wide_scale_layers = 4", "test_silent_files"),  # Gemma 2 27B scales as the others
    (ARCHS, ".wide_scale_layers = 62", ".wide_scale_layers = 61", "test_silent_files"),  # so does Gemma 3 27B
    (ARCHS, ".still_temp = 0.1f", ".still_temp = 0.2f", "test_silent_files"),  # Llama 4's temperature where files do not say it
    (CONFIG, "!config_attn_scale(&r) ||", "", "test_json_arch"),  # attention.scale ignored
    ("engine/models/config_attn.c", "if (r->arch->window_every_layer || *window == 0 || every)", "if (true)",
             "test_model_config"),  # a window for every layer of Qwen
    ("engine/models/config_keys.c", "return !is_suspect(name, len) ||", "return true ||",
             "test_model_config"),  # keys that nobody knows
    ("engine/models/config_attn.c", "windowed[i] = n == 0 || i % n != (r->arch->full_first ? 0 : n - 1);", "windowed[i] = n == 0 || i % n != 0;",
             "test_model_config"),  # the first of n layers is the one without a window
    (KV_LAYERS, "return a.full < b.full;", "return a.full > b.full;", "test_kv_layers"),  # pages of full attention half empty
    (KV_LAYERS, "== per_page) {", "> per_page) {", "test_kv_layers"),  # a group beyond its pages
    (KV_LAYERS, "(attn_kv_size(&c->attn[i]) + least - 1) / least", "attn_kv_size(&c->attn[i]) / least", "test_kv_layers"),  # places too small
    (KV_LAYERS, "num_layers++ * k.places[kind]);", "num_layers++);", "test_kv_layers"),  # layers of two places overlap
    (SHARD, "num_layers++ * places);", "num_layers++);", "test_shard"),  # in a stage, too
    (SHARD, "(own->groups[layer->kv_group].num_layers++ *", "(own->kv_layers *", "test_shard"),  # groups of a stage share places
    (TABLE, "LAYER_WEIGHT(QKV, qkv, MATRIX, ANY, attn->qkv_bias,", "LAYER_WEIGHT(QKV, qkv, MATRIX, ANY, false,", "test_model_config"),  # biases left in the file
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
    (PACK, "if (left < LANES || cols % dtype_sum_block(dtype))", "if (false)", "test_kernels"),  # rows past the matrix are not zero
    (POOL, "p->turn = (uint16_t)(p->turn + !p->alone);", "p->turn++;", "test_pool"),  # an old note of what is left looks new
    (POOL, "            pool_partition(p->num_items, thread, p->num_threads, begin, end);", "            *begin = *end;", "test_pool"),  # nothing is left
    (POOL, "            *begin = *end - piece;", "            *end = *begin + piece;", "test_pool"),  # a helper takes what its owner will
    (POOL, "i <= HELPED && i < p->num_threads", "i < 1", "test_pool"),  # nobody helps
    (GEMM, "at->num_panels == 2 ? first + p->panel_bytes : first", "first", "test_ops"),  # the second panel is the first
    (GEMM, "g++, y += LANES, rows_left", "g++, rows_left", "test_ops"),  # and lies where the first does
    (GEMM, "                 job->finish == FINISH_ADD);", "                 false);", "test_ops"),  # the residual is lost
    (GEMM, ".resume = at->piece > 0 &&", ".resume = at->piece > 1 &&", "test_layers"),  # a piece of K is lost
    (GEMM, "tree && second && i % 2 > 0; i /= 2", "tree && second && i % 4 == 1; i /= 2", "test_layers"),  # sums of pieces that are never added
    (AMX, "        if (job->resume)\n            sums_from_y(", "        if (false)\n            sums_from_y(", "test_layers"),  # of quantised weights
    (GEMM, "run_tile(job, &at, i == 1, sums[i]", "run_tile(job, &at, false, sums[i]", "test_ops"),  # SwiGLU of few tokens: the first factor twice
    (GEMM, "sums[i] + g * LANES, LD, LANES, false);", "sums[i], LD, LANES, false);", "test_ops"),  # all groups of it in one place
    (GEMM, "width = rows_left < width ? rows_left : width;", "(void)rows_left;", "test_ops"),  # what lies beside its last row is lost
    (TILES, "rows_add(two_segments(sum, 4), two_segments(sum, 6))",
            "rows_add(two_segments(sum, 0), two_segments(sum, 2))", "test_canonical"),  # half of K twice
    (TILES, "a.b1 = job->bounds[i + 1];", "a.b1 = job->bounds[job->num_segments];", "test_canonical"),  # segments overlap
    (BODY, "127 / bits_float(max)", "127.6f / bits_float(max)", "test_kernels"),  # the largest becomes 128, and is cut off
    (BODY, "y->d = bits_float(max) / 127;", "y->d = bits_float((max + 0x20000) >> 23 << 23) / 64;", "test_kernels"),  # a power of two as scale
    (BODY, "max >= 0x71800000", "max >= 0x7f800001", "test_kernels"),  # an infinity is a number
    (TILES, "0x30);", "0x10);", "test_kernels"),  # Q6_K of five bits
    (TILES, "case DTYPE_Q4_0: return dots_set1(x->minus8);",
            "case DTYPE_Q4_0: return dots_set1(0);", "test_kernels"),  # Q4_0 without its zero point
    (TILES, "return dots_set1(2 * x->minus8);",
            "return dots_set1(x->minus8);", "test_kernels"),  # Q5_0 with the zero point of Q4_0
    (TILES, "return dots_set1(x->minus32[half]);",
            "return dots_set1(x->minus32[0]);", "test_kernels"),  # both halves of Q6_K take off the first one's
    (TILES, "rows_load_u8(w->low.min[part] + row)",
            "rows_load_u8(w->low.min[0] + row)", "test_kernels"),  # one minimum for 256
    (TILES, "(float)act_sum(x, half) : x->s",
            "(float)act_sum(x, half) : x->d", "test_canonical"),  # a minimum times the scale, not the sum
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
    (AVX2, "enum { S8_PLUS_128 = 1 };", "enum { S8_PLUS_128 = 0 };", "test_kernels"),  # AVX-VNNI: bytes stored plus 128 as they are
    (AMX, "sum + (first - begin) * LANES", "sum", "test_kernels"),  # rows that two groups share come out a second time
    (AMX, "pair + PAIRS <= end", "pair + PAIRS < end + PAIRS", "test_kernels"),  # bf16 beyond the end of a segment
    (AMX, "TILE_DOT_BF16(3, 4, 5);\n        TILE_LOAD(5, w0, 64);", "TILE_DOT_BF16(3, 4, 5);", "test_kernels"),  # the second group takes the second panel for the first
    (AMX, "case DTYPE_Q3_K: return 4;", "case DTYPE_Q3_K: return 3;", "test_kernels"),  # unpacked weights one too large
    (AMX, "d[i][t] = at->d;", "d[i][t] = a->d;", "test_kernels"),  # the first block's scale for all
    (AMX, "for (; segment >> level & 1; level++)", "for (; level < segment && level < 3; level++)", "test_kernels"),  # segments are added in a row
    (AMX, "            STORE(2);\n            STORE(3);", "            STORE(3);", "test_kernels"),  # one product's sums from an earlier one's
    (AMX_ATTENTION, "if (token >= begin)", "if (token >= 0)", "test_kernels"),  # the other token of a pair, whatever it holds
    (AMX_ATTENTION, "ends = r->all_high / ATTN_TILE", "ends = (r->all_high + ATTN_TILE - 1) / ATTN_TILE", "test_kernels"),  # tokens that not all attend to
    (AMX_ATTENTION, "rows >= HALF_PAIRS && n >= LANES", "n >= LANES", "test_kernels"),  # dimensions that a tile of keys has not
    (AMX_ATTENTION, "            rescale_out(&b->w[i], b->chunk[i]);\n", "", "test_canonical"),  # sums by an old maximum
    (AMX_ATTENTION, "*past = ends < *past ? ends : *past;", "*past = ends;", "test_kernels"),  # tiles that only the second chunk's queries attend to as a whole
    (AMX_ATTENTION, "tile * ATTN_TILE % ATTN_STEP, ATTN_STEP * sizeof *w->pairs", "0, ATTN_STEP * sizeof *w->pairs", "test_canonical"),  # the first tile's probabilities for all
    (AMX_ATTENTION, "struct v16 sum[2] = {v16_set1(0), v16_set1(0)}", "struct v16 sum[2] = {v16_load(out + t * out_stride(c) + i), v16_set1(0)}", "test_canonical"),  # another order
    ("kernels/cpu/cpu.c", "kernels->tiles && takes_bf16_cache(config) ? DTYPE_BF16", "takes_bf16_cache(config) ? DTYPE_BF16", "test_ops"),  # a cache of bf16 on every machine
    (AMX, "act_sum(at, i % 2)", "act_sum(at, 0)", "test_kernels"),  # both halves' minima by the first one's sum
    (FMA, "s->acc[v][t], odd[v], x.odd[t][i]", "s->acc[v][t], odd[v], x.even[t][i]", "test_kernels"),  # one half of a pair times the other's
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
    # ---- adapters --------------------------------------------------------------------------------------------
    (LORA, "bounds[i] = min_int(w->segments[i] * w->part[0].block / a->block, a->num_blocks);", "bounds[i] = a->num_blocks * i / w->num_segments;", "test_adapters"),  # a sum cut elsewhere on ranks
    (LORA, "if (job->in->w && dev->world > 1) {", "if (false) {", "test_adapters"),  # ranks keep their parts of A x
    (LORA, "l->rows[l->next[step->adapters[s]]++] = t;", "l->rows[l->next[step->adapters[s]]++] = s;", "test_adapters"),  # rows of sequences that have many
    (LORA, "y[c] += m->scale * u[c];", "y[c] += u[c];", "test_adapters"),  # whatever the scale
    (CPU, "dev->world > 1 && !apart", "false", "test_adapters"),  # ranks forget what they summed
    (CPU, "floats_of(&x, device_ffn_input(dev), dev->model.hidden, layer->ffn_norm)", "floats_of(&x, dev->resid, dev->model.hidden, NULL)", "test_adapters"),  # not normalised
    (ADAPTER, "!(fabs(scale) <= FLT_MAX)", "false", "test_adapter_files"),  # a scale without end
    (ADAPTER, "target_columns(r->model, layer, t) % 16 != 0;", "false;", "test_adapter_files"),  # pairs of bf16 cut in two
    (ADAPTER, "i / 2 + (i % 2 ? half : 0)", "i", "test_adapter_files"),  # halves stay halves
    (ADAPTER, "        if (*at)\n", "        if (false)\n", "test_adapter_files"),  # the second of two wins
    (PEFT, "d->by_root ? sqrt((double)rank) : (double)rank", "(double)rank", "test_adapter_files"),  # rsLoRA is LoRA
    (PEFT, "return key.len == module.len || (!whole &&", "return key.len == module.len || (", "test_adapter_files"),  # ^ means nothing
    ("scheduler/request.c", "memcpy(r->salt, &id, sizeof id);", "memset(r->salt, 0, sizeof id);", "test_adapters"),  # adapters share prefixes
    ("engine/adapters.c", "*id = ++a->last_id;", "*id = (uint64_t)slot + 1;", "test_adapters"),  # and those in one slot theirs
    ("engine/adapters.c", "        give_back(a, slot);\n", "", "test_adapters"),  # a refused file takes a slot for good
]
