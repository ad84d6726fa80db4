"""The Python half of `duel.ts`: says what is ready, then answers one line per round."""

import importlib.metadata
import json
import os
import platform
import sys
import time

# Libraries print, too; the lines of a duel keep standard output for themselves.
_out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say_ready(*packages):
    versions = {name: importlib.metadata.version(name) for name in packages}
    _say({"ready": {"python": platform.python_version(), **versions}})


def wait_for_round():
    """True when another round is wanted, False when the duel is over."""
    return sys.stdin.readline() != ""


class Stopwatch:
    def __init__(self):
        self.start, self.cpu_start = time.perf_counter(), time.process_time()

    def result(self, facts):
        seconds, cpu_seconds = time.perf_counter() - self.start, time.process_time() - self.cpu_start
        _say_result(seconds, cpu_seconds, facts)


def _say_result(seconds, cpu_seconds, facts):
    _say({"seconds": seconds, "cpuSeconds": cpu_seconds, "facts": facts})


def serve_rounds(packages, round_):
    say_ready(*packages)
    while wait_for_round():
        stopwatch = Stopwatch()
        stopwatch.result(round_())


def read_workload():
    with open(sys.argv[1]) as file:
        return json.load(file)


def _say(message):
    print(json.dumps(message), file=_out, flush=True)
