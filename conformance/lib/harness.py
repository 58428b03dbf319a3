"""What every Python suite shares: a node of its own, a list of tests, waiting for a condition.

A suite registers functions with `@suite.test`, then calls `suite.main()`. Tests run in the order in
which they are written, each under a deadline, and the last line is `N passed, N failed`.
"""

import ctypes
import faulthandler
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 20
STOP_SECONDS = 30
TEST_SECONDS = 180
# Whether SDKs connect with couchbases://.
OVER_TLS = os.environ.get("SETTEE_OVER_TLS") == "1"
# Whether the default bucket has 128 vBuckets.
FEW_VBUCKETS = os.environ.get("SETTEE_FEW_VBUCKETS") == "1"


class Suite:
    """Tests of one program, run one after the other."""

    def __init__(self, name):
        self.name = name
        self.tests = []

    def test(self, function):
        """Registers `function`; its name is what is printed."""
        self.tests.append(function)
        return function

    def main(self, *context):
        """Runs the tests whose name holds the first argument, and ends the process."""
        self._end(self._run(self._wanted(), *context))

    def main_in_lanes(self, lanes, make):
        """Like `main`, in as many processes, each with the context that `make` returns.

        Each takes the next test that none has begun: tests may wait, or need no more than a part of the processors.
        """
        wanted = self._wanted()
        begun = multiprocessing.Value("i", 0)
        counts = multiprocessing.Array("i", [0, 0])

        def lane():
            end_with_parent()
            result = self._run(taken_from(wanted, begun), make())
            with counts.get_lock():
                counts[:] = [sum(pair) for pair in zip(counts, result, strict=True)]
            sys.stdout.flush()
            os._exit(0)

        # No thread runs yet, so the process can be forked.
        processes = [multiprocessing.get_context("fork").Process(target=lane) for _ in range(lanes)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        passed, failed = counts
        # A lane that broke off says why itself.
        self._end((passed, failed + sum(process.exitcode != 0 for process in processes)))

    def _wanted(self):
        word = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
        wanted = [function for function in self.tests if word in function.__name__]
        if not wanted:
            print(f"FAIL {self.name}: no test matches `{word}`")
            self._end((0, 1))
        return wanted

    def _run(self, tests, *context):
        """Runs tests one after the other; returns how many passed and failed."""
        passed = failed = 0
        for function in tests:
            started = time.monotonic()
            # A test that hangs ends the suite with the stack of every thread.
            faulthandler.dump_traceback_later(TEST_SECONDS, exit=True)
            try:
                function(*context)
            except Exception as error:  # noqa: BLE001 - one failing test does not stop the others
                failed += 1
                trace = "".join(traceback.format_tb(error.__traceback__)[-3:]).rstrip()
                print(f"FAIL {self.name}: {function.__name__}: {type(error).__name__}: {error}\n{trace}", flush=True)
                for value in context:
                    getattr(value, "start_anew", lambda: None)()
            else:
                passed += 1
                took = (time.monotonic() - started) * 1000
                print(f"ok   {self.name}: {function.__name__} ({took:.0f} ms)", flush=True)
            finally:
                faulthandler.cancel_dump_traceback_later()
        for value in context:
            close = getattr(value, "close", lambda: None)
            try:
                close()
            except Exception as error:  # noqa: BLE001 - the closing line must come
                failed += 1
                print(f"FAIL {self.name}: at the end: {type(error).__name__}: {error}")
        return passed, failed

    @staticmethod
    def _end(counts):
        passed, failed = counts
        print(f"{passed} passed, {failed} failed", flush=True)
        # Clients keep threads of their own; the verdict stands, so do not wait for them.
        os._exit(1 if failed else 0)


def taken_from(tests, begun):
    """Tests that no other process has taken: `begun` of them, shared by all, are."""
    while True:
        with begun.get_lock():
            at = begun.value
            begun.value += 1
        if at >= len(tests):
            return
        yield tests[at]


def eventually(what, probe, seconds=15.0, pause=0.02):
    """Calls `probe` until it returns something true; an exception counts as not yet."""
    deadline = time.monotonic() + seconds
    last = None
    while time.monotonic() < deadline:
        try:
            value = probe()
            if value:
                return value
            last = value
        except Exception as error:  # noqa: BLE001 - told at the deadline
            last = error
        time.sleep(pause)
    raise AssertionError(f"{what}: not within {seconds} s; last seen: {last!r}")


def raises(kind, call):
    """Runs `call` and returns the exception it must raise."""
    try:
        value = call()
    except kind as error:
        return error
    names = kind.__name__ if isinstance(kind, type) else "/".join(k.__name__ for k in kind)
    raise AssertionError(f"expected {names}, got {value!r}")


def equal(got, expected, what="value"):
    """Fails unless both are equal; long values are cut in the message."""
    if got != expected:
        raise AssertionError(f"{what}: expected {_cut(expected)}, got {_cut(got)}")


def _cut(value):
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def binary():
    """The program under test."""
    path = os.environ.get("SETTEE_BIN")
    if not path or not os.path.exists(path):
        raise SystemExit("SETTEE_BIN must name the settee program; `cargo xtask suite` sets it")
    return path


def clean_environment():
    """Our environment without settings that would reach the node."""
    own = {"SETTEE_BIN"}
    return {k: v for k, v in os.environ.items() if not k.startswith("SETTEE_") or k in own}


def end_with_parent():
    """Runs in the child before the program: it is killed when we die, however that happens."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def finished(command, seconds=60, **environment):
    """A command that was run to its end: its exit code, and what it wrote as text."""
    return subprocess.run(
        command, env={**clean_environment(), **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=seconds,
    )  # fmt: skip


def begun(command, **pipes):
    """A command in the background."""
    return subprocess.Popen(command, env=clean_environment(), stdin=subprocess.DEVNULL, preexec_fn=end_with_parent, **pipes)


def address(port, bucket="default"):
    """A bucket, as `--connect` takes it, at a port of loopback."""
    return f"couchbase://Administrator:password@127.0.0.1:{port}/{bucket}"


def reserved_port():
    """A socket that keeps its port from all but a program that asks for this port: it can be started there again."""
    reserving = socket.socket()
    reserving.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserving.bind(("127.0.0.1", 0))
    return reserving


def port_of(reserving):
    return reserving.getsockname()[1]


class Node:
    """One `settee serve` with a data directory of its own, on free ports."""

    def __init__(self, *flags):
        self.flags = list(flags)
        self.home = Path(tempfile.mkdtemp(prefix="settee-conformance-"))
        self.data = self.home / "data"
        self.ports_file = self.home / "ports.json"
        self.log = self.home / "log"
        self.process = None
        self.environment = {}
        self.ports = {}
        self.reserving = []

    def command(self):
        """How the node is started."""
        return [
            binary(), "serve", "--data-dir", str(self.data),
            "--kv-port", self.port("kv"), "--http-port", self.port("http"),
            "--ports-file", str(self.ports_file), *self.tls_flags(), *self.bucket_flags(), *self.flags,
        ]  # fmt: skip

    def port(self, name):
        """The port of a service, the same one at each start."""
        if name not in self.ports:
            self.reserving.append(reserved_port())
            self.ports[name] = port_of(self.reserving[-1])
        return str(self.ports[name])

    def bucket_flags(self):
        """The bucket, where it has few vBuckets."""
        few = FEW_VBUCKETS and "--bucket" not in self.flags
        return ["--bucket", "default:256:couchbase:value:none:128"] if few else []

    def tls_flags(self):
        """The ports with TLS, where SDKs are to use them."""
        if not OVER_TLS:
            return []
        ports = {"--kv-tls-port": "kv_tls", "--https-port": "https"}
        return [word for flag, name in ports.items() for word in (flag, self.port(name))]

    def start(self, seconds=START_SECONDS):
        """Starts the node and waits until it serves."""
        self.ports_file.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**clean_environment(), **self.environment},
                preexec_fn=end_with_parent,
            )
        deadline = time.monotonic() + seconds
        while not self.ports_file.exists():
            if self.process.poll() is not None:
                raise AssertionError(f"the node ended with {self.process.returncode}:\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the node does not serve after {seconds} s:\n{self.tail()}")
            time.sleep(0.005)
        self.ports = json.loads(self.ports_file.read_text())
        return self

    def ready(self):
        """Waits until documents are served; until then SDKs are told to try again."""
        url = f"http://127.0.0.1:{self.ports['http']}/readyz"
        eventually("the node is ready", lambda: urllib.request.urlopen(url).status == 200)
        return self

    @property
    def kv(self):
        """Port of the binary protocol."""
        return self.ports["kv"]

    @property
    def address(self):
        """The default bucket, as `--connect` takes it."""
        return address(self.kv)

    @property
    def connection_string(self):
        """What an SDK is given."""
        if OVER_TLS:
            return f"couchbases://127.0.0.1:{self.ports['kv_tls']}"
        return f"couchbase://127.0.0.1:{self.kv}"

    @property
    def authority(self):
        """What an SDK is to trust; None without TLS."""
        return str(self.data / "tls" / "ca.pem") if OVER_TLS else None

    def stop(self):
        """SIGTERM; the node must drain, flush and end with 0."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the node ignores SIGTERM:\n{self.tail()}") from None
        equal(code, 0, "exit code after SIGTERM")

    def kill(self):
        """SIGKILL: nothing is drained."""
        self.process.kill()
        self.process.wait()

    def alive(self):
        """Whether the process is still there."""
        return self.process is not None and self.process.poll() is None

    def processor_ns(self):
        """What all of its threads took so far, those that have ended too."""
        # As clock_getcpuclockid makes it.
        clock = ~self.process.pid << 3 | 2
        return time.clock_gettime_ns(clock)

    def resident_bytes(self):
        """Resident memory of the process."""
        return self._status_bytes("VmRSS")

    def most_resident_bytes(self):
        """The most that it ever had."""
        return self._status_bytes("VmHWM")

    def _status_bytes(self, name):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+) kB", status).group(1)) * 1024

    @contextmanager
    def watched(self, what=""):
        """Kills the node at the end, if it still lives, and removes it; a failure shows what it wrote last."""
        try:
            yield self
        except Exception as error:
            raise AssertionError(f"{what} {type(error).__name__}: {error}\n{self.tail()}") from error
        finally:
            if self.alive():
                self.kill()
            self.process = None
            self.close()

    def tail(self, lines=30):
        """The end of what the node wrote."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def close(self):
        """Ends the node, which must still be able to end by itself, and removes what it wrote."""
        try:
            if self.alive():
                self.stop()
            elif self.process and self.process.returncode not in (0, -signal.SIGKILL):
                raise AssertionError(f"the node ended with {self.process.returncode}:\n{self.tail()}")
        finally:
            for reserving in self.reserving:
                reserving.close()
            shutil.rmtree(self.home, ignore_errors=True)
