"""`settee cluster demo`."""

import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

from cluster import Client
from harness import begun, binary, clean_environment, equal, eventually
from world import UNAVAILABLE, holds, suite


@contextmanager
def place():
    path = Path(tempfile.mkdtemp(prefix="settee-conformance-demo-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Demo:
    """A demo that runs, on free ports."""

    def __init__(self, directory):
        command = [binary(), "cluster", "demo", "--data-dir", str(directory), "--port", "0"]
        self.process = begun(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.told = ""
        while "Ctrl-C" not in self.told:
            line = self.process.stdout.readline()
            assert line, f"the demo ended: {self.told}"
            self.told += line
        self.ports = [
            {"kv": int(kv), "http": int(http)} for kv, http in re.findall(r"KV 127.0.0.1:(\d+) .*?127.0.0.1:(\d+)", self.told)
        ]
        self.ids = [int(number) for number in re.findall(r"process (\d+)", self.told)]

    def client(self):
        return Client([At(ports) for ports in self.ports], "default")

    def end(self):
        """Ctrl-C, after which none of its processes is left."""
        self.process.send_signal(signal.SIGINT)
        equal(self.process.wait(60), 0, "exit code")
        equal([Path(f"/proc/{number}").exists() for number in self.ids], [False] * 3, "nodes")


class At:
    """A node as it is asked."""

    def __init__(self, ports):
        self.ports = ports


@suite.test
def the_demo_survives_a_kill_ends_and_goes_on(_):
    with place() as path:
        demo = Demo(path)
        equal((len(demo.ports), len(demo.ids)), (3, 3), "nodes")
        eventually("all keys are served", demo.client().everywhere, seconds=30)
        demo.client().set(b"key", b'"value"', durable=True)
        subprocess.run(["kill", "-9", str(demo.ids[2])], check=True)
        holds(demo.process.stdout.readline(), "c ended", "SIGKILL")
        demo.end()
        demo = Demo(path)
        eventually("all keys are served again", demo.client().everywhere, seconds=30)
        equal(demo.client().get(b"key"), b'"value"', "what was written")
        demo.end()


@suite.test
def the_demo_says_that_etcd_is_missing(_):
    with place() as path:
        ran = subprocess.run(
            [binary(), "cluster", "demo", "--data-dir", str(path), "--port", "0"],
            env={**clean_environment(), "PATH": str(path)}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        equal((ran.returncode, ran.stdout), (UNAVAILABLE, ""), "the demo")
        holds(ran.stderr, "no etcd on PATH", "etcd-server", "--etcd")
