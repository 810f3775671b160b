"""How far quire-bench can be believed: it measures tools/fake_openai.c, which writes down when each token went out.

    python3 tests/bench/client_accuracy.py [BUILD] [--streams 1,10,…] [--seconds S] [--itl MS] [--realtime] [--stall]

For each number of streams at once (Poisson arrivals at the rate that keeps so many on their way): the differences of the client's TTFT, ITL, TPOT and end-to-end percentiles
from the server's own, and what the client said of itself. With --stall, instead: an open loop against a server that stands
still for two seconds; latencies from the intended times, which are computed here from the server's log and the schedule.
Exits with 1 where a value is off by more than 1 % and more than 0.5 ms. Both sides run on this machine and read the same clock.

--realtime runs both under SCHED_FIFO (chrt): between the arrival of bytes and the client's waking lies the kernel's scheduler,
and on a machine that does other work that is what is measured without it.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tools"))
import true_latencies  # noqa: E402

POINTS = ("mean", "p50", "p90", "p99", "p99.9")


def of(values, point):
    return sum(values) / len(values) if point == "mean" else true_latencies.percentile(values, float(point[1:]))


class Pair:
    """One server, one run of the client against it."""

    def __init__(self, args):
        self.build = pathlib.Path(args.build)
        self.first = ["chrt", "-f", "10"] if args.realtime else []
        self.second = ["chrt", "-f", "20"] if args.realtime else []

    def run(self, server_flags, client_flags):
        with tempfile.TemporaryDirectory() as d:
            log, out = f"{d}/log", f"{d}/result.json"
            server = subprocess.Popen(
                [*self.first, str(self.build / "tests/fake_openai"), "--log", log, *map(str, server_flags)],
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                url = server.stdout.readline().split()[-1]
                command = [*self.second, str(self.build / "quire-bench"), url, "--prompt-form", "words", "--quiet"]
                command += ["--random-input-len", 8, "--json", out, *client_flags]
                subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
            finally:
                server.terminate()
                server.wait()
            with open(log) as lines:
                rows = [list(map(int, line.split())) for line in lines]
            return rows, json.loads(pathlib.Path(out).read_text()), true_latencies.read_log(log)


def off(truth, told):
    return abs(told - truth) > 0.5 and abs(told - truth) > 0.01 * truth


def steady(args):
    pair, bad = Pair(args), 0
    print("| streams | at once, most | tokens/s | metric | p50, ms | mean | p50 | p90 | p99 | p99.9 | client: of one core | read late, p99 |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for streams in map(int, args.streams.split(",")):
        # Answers of two seconds. A closed loop would begin with all of them at once: the time until the server has accepted
        # so many is latency for the client and not in the server's log, which begins when it has read a request.
        tokens = max(2, round(2000 / args.itl) - 3)
        _, result, truth = pair.run(
            ["--ttft", 4 * args.itl, "--itl", args.itl, "--jitter", 0.5],
            ["--request-rate", streams / 2, "--duration", args.seconds, "--random-output-len", tokens],
        )
        assert result["failed"] == 0 and result["completed"] == len(truth["tpot"]), result["errors_by_kind"]
        for metric, values in truth.items():
            cells = []
            for point in POINTS:
                real, told = of(values, point), result[f"{point}_{metric}_ms"]
                bad += off(real, told)
                cells.append(f"{told - real:+.3f}{' OFF' if off(real, told) else ''}")
            print(
                f"| {streams} | {result['max_concurrent_requests']} | {result['output_throughput']:.0f} | {metric} | {of(values, 'p50'):.2f} | {' | '.join(cells)} |"
                f" {100 * result['client_cpu_share']:.0f} % | {result['p99_client_read_lag_ms']:.2f} ms |",
                flush=True,
            )
    return bad


def stall(args):
    rate, seconds = 100, args.seconds
    rows, result, _ = Pair(args).run(
        ["--ttft", 10, "--itl", 2, "--jitter", 0.2, "--stall-at", 3, "--stall", 2000],
        ["--request-rate", rate, "--arrivals", "constant", "--duration", seconds, "--random-output-len", 8],
    )
    rows.sort()  # by the time at which the server read them, which is their order of sending
    meant = [result["started_monotonic_ns"] + i * 1_000_000_000 // rate for i in range(len(rows))]
    truth = {
        "ttft": [(r[1] - m) / 1e6 for r, m in zip(rows, meant)],
        "e2el": [(r[-1] - m) / 1e6 for r, m in zip(rows, meant)],
    }
    bad = 0
    print("| from the intended time | " + " | ".join(POINTS) + " | max |\n|---|---|---|---|---|---|---|")
    for metric, values in truth.items():
        real = [of(values, p) for p in POINTS] + [max(values)]
        told = [result[f"{p}_{metric}_ms"] for p in (*POINTS, "max")]
        bad += sum(map(off, real, told))
        print(f"| {metric}, the server's log | " + " | ".join(f"{v:.2f}" for v in real) + " |")
        print(f"| {metric}, quire-bench | " + " | ".join(f"{v:.2f}" for v in told) + " |")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--streams", default="1,10,100,500,1000,2000")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--itl", type=float, default=50, help="ms between tokens")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--stall", action="store_true")
    args = parser.parse_args()
    bad = stall(args) if args.stall else steady(args)
    print(f"{bad} values off by more than 1 % and 0.5 ms", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
