"""What the stories share: an etcd of one member, and how clusters are made and refused."""

import json
import subprocess

from etcd import Etcd
from harness import Suite, binary, clean_environment, equal

suite = Suite("cluster")

USAGE, DATA, UNAVAILABLE, TEMP_FAIL, PROTOCOL, NO_PERM, CONFIG = 64, 65, 69, 75, 76, 77, 78


class World:
    """One etcd of one member; tests make clusters of their own in it."""

    def __init__(self):
        self.etcd = Etcd().start()
        # The cluster that stories share, once one of them has made it.
        self.three, self.named = None, 0

    def name(self):
        """A name that no cluster has yet."""
        self.named += 1
        return f"cluster-{self.named}"

    def start_anew(self):
        """After a story that failed, the others get another cluster."""
        if self.three is not None:
            self.three.__exit__()
            self.three = None

    def close(self):
        self.start_anew()
        self.etcd.close()


def init(addresses, name, *flags, environment=None):
    """Makes a cluster; returns exit code, standard output and standard error."""
    ran = subprocess.run(
        [binary(), "cluster", "init", "--etcd", addresses, *flags, name],
        env={**clean_environment(), **(environment or {})}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return ran.returncode, ran.stdout, ran.stderr


def must_init(addresses, name, *flags, environment=None):
    """Makes a cluster; returns what is told of it."""
    code, told, error = init(addresses, name, "--json", *flags, environment=environment)
    equal((code, error), (0, ""), "init")
    return json.loads(told)


def refused(addresses, name, code, *words, flags=(), environment=None):
    """No cluster is made; one line says why."""
    got, told, error = init(addresses, name, *flags, environment=environment)
    equal((got, told, len(error.splitlines())), (code, "", 1), f"init ({error.strip()})")
    holds(error, *words)


def holds(text, *words):
    """Fails unless the text has each of the words."""
    for word in words:
        if word not in text:
            raise AssertionError(f"`{word}` is not in: {text}")
