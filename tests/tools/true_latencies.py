"""Percentiles of what fake_openai truly did, beside what quire-bench reported of it.

    python3 tests/tools/true_latencies.py LOG RESULT.json

Prints a line for each percentile: the server's, the client's, the difference in ms and in per cent. Exits with 1 where
one is off by more than 1 % and more than 0.5 ms. The first request in the log may be quire-bench's own question.
"""

import json
import sys


def percentile(values, p):
    """Linear between the closest ranks, as numpy's default."""
    values = sorted(values)
    rank = p / 100 * (len(values) - 1)
    below = int(rank)
    above = min(below + 1, len(values) - 1)
    return values[below] + (rank - below) * (values[above] - values[below])


def read_log(path):
    """ms: times to the first token, gaps between tokens, times to the last token, and those per token."""
    ttft, itl, e2el, tpot = [], [], [], []
    with open(path) as lines:
        for line in lines:
            read, *wrote = map(int, line.split())
            ttft.append((wrote[0] - read) / 1e6)
            e2el.append((wrote[-1] - read) / 1e6)
            itl += [(b - a) / 1e6 for a, b in zip(wrote, wrote[1:])]
            if len(wrote) > 1:
                tpot.append((wrote[-1] - wrote[0]) / 1e6 / (len(wrote) - 1))
    return {"ttft_from_send": ttft, "itl": itl, "e2el_from_send": e2el, "tpot": tpot}


def compare(log, result):
    """Rows of (metric, percentile, the server's, the client's)."""
    rows = []
    for metric, values in read_log(log).items():
        for p in ("50", "90", "99", "99.9"):
            rows.append((metric, p, percentile(values, float(p)), result[f"p{p}_{metric}_ms"]))
    return rows


def off(truth, told):
    return abs(told - truth) > 0.5 and abs(told - truth) > 0.01 * truth


def main():
    with open(sys.argv[2]) as f:
        result = json.load(f)
    bad = 0
    for metric, p, truth, told in compare(sys.argv[1], result):
        wrong = off(truth, told)
        bad += wrong
        print(
            f"{metric:15} p{p:5} server {truth:10.3f}  client {told:10.3f}  {told - truth:+8.3f} ms"
            f" {100 * (told - truth) / truth:+7.2f} %{'  OFF' if wrong else ''}"
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
