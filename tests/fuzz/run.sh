#!/bin/sh
# Builds the fuzzers with clang's sanitizers and runs each for a while. usage: run.sh [SECONDS each, default 60] [NAME...]
# Findings and the growing corpus stay under build/fuzz; a crash ends with its input's name and status 1.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1:-60}
[ $# -gt 0 ] && shift
out=$root/build/fuzz
data=${QUIRE_TEST_DATA:-$root/../shared/data}
mkdir -p "$out"
if ! command -v clang >/dev/null; then
    echo "fuzz: clang is missing (apt install clang libclang-rt-14-dev)" >&2
    exit 1
fi
[ $# -gt 0 ] || set -- gguf folder adapter tokenizer bpe pieces detok chat regex grammar schema kv_store
cd "$root"
for name in "$@"; do
    clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
        -Ibase -Iinclude -Ilib -Iengine -DQUIRE_HAVE_PCRE2 $(pkg-config --cflags libpcre2-8 libutf8proc) "tests/fuzz/fuzz_$name.c" \
        engine/kv_*.c engine/store/*.c engine/models/*.c engine/models/hf/*.c engine/text/*.c lib/*/*.c lib/grammar/*/*.c base/*.c -pthread -lm $(pkg-config --libs libpcre2-8 libutf8proc) \
        -o "$out/fuzz_$name"
    mkdir -p "$out/corpus_$name"
    if [ "$name" = gguf ]; then # small real files to begin with
        find "$data/models" -name '*.gguf' -size -8k -exec cp -f {} "$out/corpus_gguf/" \; 2>/dev/null || true
        # the keys of a real one, as a vocabulary: its number of tensors set to 0
        f=$data/models/stories260K/stories260K.gguf
        if [ -f "$f" ]; then
            head -c 11347 "$f" >"$out/corpus_gguf/vocabulary"
            printf '\0' | dd of="$out/corpus_gguf/vocabulary" bs=1 seek=8 conv=notrunc 2>/dev/null
        fi
        for kind in "" "--arch qwen2 --rope yarn" "--arch qwen3" "--bias --out-bias --window 4 --rope llama3-keys" \
            "--arch gpt-oss --window 4 --experts 2 --expert-ffn 4" "--arch llama4 --experts 2 --expert-ffn 4 --shared-ffn 4" \
            "--arch gemma4 --layers 2 --window 4 --window-pattern 1 --window-dim 4 --shared-kv 1 --layer-embed 4 --experts 2 --expert-ffn 4 --fused-experts" "--arch gemma3n --window 4 --layer-embed 4 --laurel 4 --sparse 1"; do
            python3 tests/tools/make_gguf.py "$out/corpus_gguf/model$(echo "$kind" | tr -d ' ')" $kind --hidden 4 --heads 1 \
                --kv-heads 1 --ffn 4 --layers 1 --vocab 289 --context 8 || true
        done
    fi
    if [ "$name" = folder ]; then # each file of small real folders, behind the number that fuzz_folder.c gives it
        n=0
        for kind in "" "--arch internlm2 --type bf16" "--arch gemma3 --window 4" "--arch gemma3n --window 4 --layer-embed 4 --laurel 4 --sparse 1" "--arch phi3 --rope longrope" \
            "--arch falcon-h1 --states 2,1,2,2" "--arch qwen35 --states 2,1,2,2 --attention 1" "--arch granitemoe --experts 2 --top-k 1" "--arch gptneox" \
            "--arch deepseek2 --rope-dim 2 --nope-dim 2 --v-dim 2 --kv-lora 4" "--arch llama4 --experts 2 --top-k 1 --expert-ffn 4 --shared-ffn 4" \
            "--arch qwen3next --states 2,1,2,2 --attention 2 --experts 2 --top-k 1 --expert-ffn 4 --shared-ffn 4"; do
            python3 tests/tools/make_folder.py "$out/folder" $kind --hidden 4 --heads 1 --kv-heads 1 --ffn 4 --layers 1 --vocab 291 \
                --context 8 --chatml || continue
            n=$((n + 1)) i=0
            for file in config.json tokenizer.json model.safetensors absent generation_config.json tokenizer_config.json; do
                [ ! -f "$out/folder/$file" ] || { printf "\\$i"; cat "$out/folder/$file"; } >"$out/corpus_folder/$n-$file"
                i=$((i + 1))
            done
        done
        for kind in 0:packed 0:packed-8 0:packed-zeros 0:packed-order 0:int8-zeros 0:nvfp4 0:modelopt 0:mxfp4 1:gptq 2:gptq-zeros \
            2:gptq-order 3:gptq-8 4:awq 5:fp8; do # weights alone, under the configuration of this number
            python3 tests/tools/make_folder.py "$out/folder" --method "${kind#*:}" --hidden 64 --heads 4 --kv-heads 2 --ffn 64 \
                --layers 1 --vocab 291 --context 8 || continue
            python3 tests/fuzz/first_tensors.py "$out/folder/model.safetensors" "layers.0.self_attn.k_proj" >"$out/tensors"
            { printf "\\$(printf %o $((${kind%%:*} * 16 + 2)))"; cat "$out/tensors"; } >"$out/corpus_folder/${kind#*:}"
        done
        for f in "$data"/models/*/tok*.model; do # SentencePiece's and tiktoken's
            [ ! -f "$f" ] || { printf '\6'; cat "$f"; } >"$out/corpus_folder/$(basename "$f")"
        done
        python3 -c 'import base64
for i, t in enumerate([bytes([i]) for i in range(256)] + [b"aa", b"aaa", b"aab"]): print(base64.b64encode(t).decode(), i)' >"$out/tensors"
        { printf '\7'; cat "$out/tensors"; } >"$out/corpus_folder/tiktoken"
        printf '\3{"weight_map": {"lm_head.weight": "model.safetensors"}}' >"$out/corpus_folder/index"
    fi
    if [ "$name" = adapter ]; then # small ones of each kind, behind the number that fuzz_adapter.c gives it
        python3 - "$out/corpus_adapter" <<'END'
import json, struct, sys
sys.path.insert(0, "tests/tools")
import gguf_file, make_folder

folder, D, KV, F = sys.argv[1], 8, 4, 6
ones = {"F32": struct.pack("<f", 1), "F16": struct.pack("<e", 1), "BF16": b"\x80\x3f"}
PAIRS = [("attn_q", "self_attn.q_proj", D, D), ("attn_v", "self_attn.v_proj", KV, D), ("ffn_up", "mlp.up_proj", F, D), ("ffn_down", "mlp.down_proj", D, F),
         ("attn_qkv", "self_attn.qkv_proj", D + 2 * KV, D), ("ffn_up", "mlp.gate_up_proj", 2 * F, D)]
for model, arch, pairs in ((0, "llama", PAIRS[:4]), (1, "phi3", PAIRS[3:]), (2, "starcoder2", PAIRS[:3]), (3, "qwen3moe", PAIRS[:2])):
    tensors, w = [], gguf_file.Writer()
    w.string("general.type", "adapter")
    w.string("general.architecture", arch)
    w.string("adapter.type", "lora")
    w.f32("adapter.lora.alpha", 4)
    for i, (ours, theirs, rows, cols) in enumerate(pairs):
        kind = list(ones)[i % 3]
        for end, part, shape in (("lora_a", "lora_A", [2, cols]), ("lora_b", "lora_B", [rows, 2])):
            data = ones[kind] * (shape[0] * shape[1])
            tensors.append((f"base_model.model.model.layers.{i % 2}.{theirs}.{part}.weight", kind, shape, data))
            w.tensor(f"blk.{i % 2}.{ours}.weight.{end}", getattr(gguf_file, kind), shape, lambda data=data: [data])
    w.write(f"{folder}/gguf")
    make_folder.write_safetensors(f"{folder}/weights", tensors)
    config = json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "use_rslora": True, "bias": "none", "alpha_pattern": {"q_proj": 3, "^model.layers.1.x": 1.5},
                         "rank_pattern": {"q_proj": 2}, "target_modules": ["q_proj"], "modules_to_save": None})
    for number, name in ((0, "gguf"), (2, "weights")):
        data = open(f"{folder}/{name}", "rb").read()
        open(f"{folder}/{arch}-{name}", "wb").write(bytes([number + 3 * model]) + data)
    open(f"{folder}/{arch}-config", "wb").write(bytes([1 + 3 * model]) + config.encode())
END
    fi
    if [ "$name" = grammar ]; then # real ones
        for f in "$data"/structured/grammars/*.gbnf; do
            [ ! -f "$f" ] || { printf '\0'; cat "$f"; } >"$out/corpus_grammar/$(basename "$f")"
        done
        printf '\1start: A b [c]\nA.1: "a".."z"+ | /x(y|z)/i\nb: "q"i~1..2 | ("w")* -> d\nc[lazy]: /.*;/\n%%ignore WS\n%%import common.WS\n' \
            >"$out/corpus_grammar/lark"
    fi
    if [ "$name" = schema ]; then # those of the suite
        python3 - "$data" "$out/corpus_schema" <<'END'
import glob, json, sys
for i, path in enumerate(glob.glob(sys.argv[1] + "/structured/JSON-Schema-Test-Suite/tests/draft*/*.json")):
    for j, group in enumerate(json.load(open(path))):
        json.dump(group["schema"], open(f"{sys.argv[2]}/{i}-{j}", "w"))
END
    fi
    dict=
    if [ "$name" = chat ]; then # real templates, and the words of the language
        find "$data/templates" -name '*.jinja' -size -16k -exec cp -f {} "$out/corpus_chat/" \; 2>/dev/null || true
        chmod -R u+w "$out/corpus_chat"
        dict=-dict=tests/fuzz/chat.dict
    fi
    "$out/fuzz_$name" $dict -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=16384 -print_final_stats=0 \
        -verbosity=0 -artifact_prefix="$out/crash_${name}_" "$out/corpus_$name"
    echo "fuzz_$name: $seconds s, $(find "$out/corpus_$name" -type f | wc -l) inputs kept, nothing found"
done
