"""OpenVINO GenAI in the place of llama-bench and llama-batched-bench: takes their flags as models.py gives them, prints what they do.

    PYTHON openvino_bench.py -m MODEL.gguf -p PROMPT -n STEPS -t THREADS -r REPEATS -o json
    PYTHON openvino_bench.py -m MODEL.gguf -npp PROMPT -ntg STEPS -npl B,… -t THREADS

PYTHON has openvino-genai (PyPI, 2026.4.1.0 tried), which reads GGUF files of Llama and Qwen itself. Precisions are its defaults.
Prompts are random ids, so that no prefix is found; outputs are greedy, of the length asked for. Times are those of its forward
passes, without its sampling and scheduling.
"""
import argparse
import json
import random
import statistics

import numpy
import openvino
import openvino_genai as genai

MAX_STEP_TOKENS = 4096


def arguments():
    p = argparse.ArgumentParser()
    for flag in ("-m", "-o"):
        p.add_argument(flag)
    for flag in ("-t", "-tb", "-c", "-p", "-n", "-r", "-npp", "-ntg"):
        p.add_argument(flag, type=int)
    p.add_argument("-npl", type=lambda text: [int(word) for word in text.split(",")])
    return p.parse_args()


def open_pipeline(a, rows):
    scheduler = genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    scheduler.max_num_seqs = rows
    scheduler.max_num_batched_tokens = MAX_STEP_TOKENS
    scheduler.cache_size = 2  # GB
    return genai.LLMPipeline(a.m, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=a.t, PERFORMANCE_HINT="LATENCY")


def generate(pipe, rows, prompt, steps):
    """Seconds of the prefill of `rows` prompts in one pass, and of each of the passes after it, which decode all rows."""
    ids = numpy.array([[random.randrange(100, 20000) for _ in range(prompt)] for _ in range(rows)], dtype=numpy.int64)
    inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
    config = genai.GenerationConfig(max_new_tokens=1 + steps, min_new_tokens=1 + steps, ignore_eos=True, do_sample=False)
    raw = pipe.generate(inputs, config).perf_metrics.raw_metrics
    seconds = [us / 1e6 for us in raw.token_infer_durations]
    if list(raw.m_batch_sizes) != [rows] * (1 + steps) or len(seconds) != 1 + steps:
        raise SystemExit(f"openvino_bench.py: {rows} prompts of {prompt} tokens were not computed together: {list(raw.m_batch_sizes)}")
    return seconds[0], seconds[1:]


def decode_rate(pipe, rows, prompt, steps):
    return rows / statistics.median(generate(pipe, rows, prompt, steps)[1])


def main():
    a = arguments()
    random.seed(1)
    pipe = open_pipeline(a, max(a.npl or [1]))
    generate(pipe, 1, a.npp or a.p, 4)  # it compiles kernels for a shape when it first meets it
    if a.npl:
        for rows in a.npl:
            print(json.dumps({"pl": rows, "speed_tg": decode_rate(pipe, rows, a.npp, a.ntg)}))
        return
    row = {"build_commit": genai.__version__}
    prefill = [a.p / generate(pipe, 1, a.p, 0)[0] for _ in range(a.r)]
    decode = [decode_rate(pipe, 1, 32, a.n) for _ in range(a.r)]
    print(json.dumps([row | {"n_prompt": a.p, "n_gen": 0, "samples_ts": prefill}, row | {"n_prompt": 0, "n_gen": a.n, "samples_ts": decode}]))


if __name__ == "__main__":
    main()
