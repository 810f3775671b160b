#!/usr/bin/env python3
"""Checks a server whose GPU fails, or has too little memory. Part of gpu_slot.sh; standard library only.

    gpu_faults.py fault MODEL.gguf   a device that fails in a step: the stream ends with an error, /health and requests get
                                     503, the process ends with 70
    gpu_faults.py memory MODEL.gguf  no room for the weights: refused in a sentence; and beside a server that has taken what
                                     there was: refused or served, never a crash

bin/quire and lib/quire are those of the bundle, which is the folder it is started in.
"""
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time

BODY = json.dumps({"prompt": [5, 6, 7], "max_tokens": 200, "stream": True, "ignore_eos": True})


class Server:
    def __init__(self, model, *flags, env=None):
        self.log = tempfile.NamedTemporaryFile("w+")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_") or k.startswith("QUIRE_EMULATED")}
        self.process = subprocess.Popen(["bin/quire", "serve", model, "--device", "cuda", "--port", "0", "--max-num-seqs", "4", *flags],
                                        stdout=self.log, stderr=self.log, env=clean | (env or {}))

    def text(self):
        with open(self.log.name, errors="replace") as f:
            return f.read()

    def up(self):
        """Whether it listens and is well; False: it has ended."""
        while self.process.poll() is None:
            line = next((x for x in self.text().splitlines() if x.startswith("listening on ")), None)
            if line:
                self.port = int(line.rsplit(":", 1)[1].split("/")[0])
                if self.ask("GET", "/health")[0] == 200:
                    return True
            time.sleep(0.05)
        return False

    def ask(self, method, path, body=None):
        """(status, text); 0 where the connection breaks before an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as e:
            return 0, str(e)
        finally:
            connection.close()

    def end(self):
        self.process.terminate()
        return self.process.wait(30)


def expect(condition, what, server):
    if not condition:
        server.process.kill()
        print(server.text())
        sys.exit(f"expected {what}")


def fault(model):
    module = os.path.abspath("lib/quire/quire-cuda.so")
    s = Server(model, env={"QUIRE_CUDA_MODULE": os.path.abspath("lib/quire/fault-backend.so"), "FAULT_MODULE": module,
                           "FAULT_STEP": "20", "FAULT_DELAY_US": "20000", "QUIRE_SPECULATIVE_METHOD": "none"})  # fmt: skip
    expect(s.up(), "a server", s)
    status, text = s.ask("POST", "/v1/completions", BODY)
    expect(status == 200 and "engine_unavailable" in text, f"a stream that ends with an error, found {status} {text[-300:]}", s)
    seen = []
    while s.process.poll() is None:  # until it ends it says so
        status, text = s.ask("GET", "/health")
        if status == 0:
            break
        seen.append(status)
        expect(status == 503 and "engine_unavailable" in text, f"503 from /health, found {status} {text}", s)
        time.sleep(0.02)
    code = s.process.wait(60)
    expect(code == 70 and seen, f"exit code 70 after 503 was seen, found {code}, {seen}", s)
    print(f"the stream ended with an error, /health gave 503 {len(seen)} times, exit code 70")


def memory(model):
    small = Server(model, "--gpu-memory-utilization", "0.01", env={"QUIRE_EMULATED_MEMORY": "1000000"})  # without a limit else
    expect(not small.up() and small.process.returncode in (1, 2), "a refusal with exit code 1 or 2", small)
    words = small.text().strip().splitlines()[-1]
    expect("memory" in words, f"a sentence about memory, found {words}", small)
    first = Server(model)
    expect(first.up(), "a server", first)
    second = Server(model)  # most is taken: there may be room for a small one still
    there = second.up()
    if not there:
        expect(second.process.returncode in (1, 2) and "memory" in second.text(), f"a refusal, found {second.process.returncode}", second)
    status, _ = first.ask("POST", "/v1/completions", BODY.replace("200", "8"))
    expect(status == 200, f"an answer of the first server, found {status}", first)
    for s in [first] + [second] * there:
        code = s.end()
        expect(code == 0, f"exit code 0, found {code}", s)
    print(f"refused: {words[:100]}; a second server {'fits beside the first' if there else 'is refused beside the first'}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("fault", "memory"):
        sys.exit(__doc__)
    {"fault": fault, "memory": memory}[sys.argv[1]](sys.argv[2])
