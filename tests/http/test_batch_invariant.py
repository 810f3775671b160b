"""--no-batch-invariant: where it is told, and where it changes nothing."""

import re

import pytest
from launched import needs_emulated
from process import EMULATED, WITH_TSAN, run

FLAG = "--no-batch-invariant"


def told(server):
    """Of its device, as the log, the metrics and the model list say it."""
    device = re.search(r'^quire:device_info\{.*,device="(.*)"\} 1$', server.get("/metrics").body.decode(), re.M)[1]
    assert f'device="{device}"' in server.log()
    return device, server.get("/v1/models").json()["data"][0]["batch_invariant"]


def test_cpu(start):
    """The CPU always is."""
    server = start(FLAG)
    device, invariant = told(server)
    assert device.startswith("cpu ") and "batch" not in device and invariant is True
    assert f"{FLAG} changes nothing here" in server.log()


@needs_emulated
@pytest.mark.skipif(WITH_TSAN, reason="the emulator switches stacks, which ThreadSanitizer cannot follow")
def test_cuda(start):
    env = {"QUIRE_CUDA_MODULE": str(EMULATED), "QUIRE_CUDA_GRAPHS": "0"}
    words, prints = ("--device", "cuda", "--num-kv-blocks", "40"), set()
    for flags, without, want in (((), {}, True), ((FLAG,), {}, False), ((FLAG,), {"QUIRE_EMULATED_NO_LIBRARY": "1"}, True)):
        server = start(*words, *flags, env=env | without)
        assert told(server) == ("cuda emulated" + ("" if want else ", not batch-invariant"), want)
        assert ("changes nothing here" in server.log()) == (want and flags != ())
        prints.add((want, server.complete([5, 6, 7], max_tokens=1)["system_fingerprint"]))
    assert len(prints) == 2  # one of each


def test_contradiction():
    got = run("generate", "-p", "x", "--exact", FLAG)
    assert got.returncode == 2 and "--exact keeps a request's bits" in got.stderr and "leave one out" in got.stderr, got
