"""A disk that runs full under a node: writes go on to the memory limit, reads go on, and when space
returns everything is persisted without anybody's help.

The data directory lies on a small tmpfs in a mount namespace of its own; a filler file takes and
gives back its space. Where no namespace may be made, the suite says so and fails.
"""

import os
import struct
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from harness import Node, Suite, binary, equal, eventually
from manage import must
from mcbp import (
    FEATURE_MUTATION_SEQNO,
    FEATURE_SELECT_BUCKET,
    FEATURE_XERROR,
    GET,
    NOOP,
    OBSERVE_SEQNO,
    OUT_OF_MEMORY,
    SET,
    SUCCESS,
    TEMPORARY_FAILURE,
    Connection,
    key_call,
    vbucket_of,
)

suite = Suite("diskfull")
MIB = 1024 * 1024
DISK_MIB, FILLER_MIB, QUOTA_MIB = 224, 200, 32
VALUE_BYTES = 64 * 1024


class SmallDisk(Node):
    """A node whose data directory is on a tmpfs that only it can see."""

    def __init__(self, *flags):
        super().__init__(*flags)
        self.data.mkdir()
        mount = f"mount -t tmpfs -o size={DISK_MIB}m tmpfs '{self.data}' && echo mounted && exec cat"
        self.holder = subprocess.Popen(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", mount],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if self.holder.stdout.readline() != "mounted\n":
            raise AssertionError("no tmpfs can be mounted in a namespace of our own here")
        # The node is started inside; the ports file is outside of the mount, as before.
        self.enter = ["nsenter", "--target", str(self.holder.pid), "--user", "--mount",
                      "--preserve-credentials"]  # fmt: skip

    def command(self):
        return [*self.enter, *super().command()]

    def inside(self, *command):
        """Runs a command in the namespace; returns whether it succeeded."""
        return subprocess.run([*self.enter, *command], capture_output=True).returncode == 0

    def fill(self):
        """Takes the space away; where less than that is left, all of it."""
        filler = f"of={self.data}/.filler"
        self.inside("dd", "if=/dev/zero", filler, "bs=1M", f"count={FILLER_MIB}")

    def release(self):
        """Gives it back."""
        assert self.inside("rm", f"{self.data}/.filler"), "there is no filler to remove"

    def close(self):
        try:
            super().close()
        finally:
            self.holder.stdin.close()
            self.holder.wait(10)


class World:
    """A node on a small disk, and what was written to it."""

    def __init__(self):
        self.node = SmallDisk("--bucket", f"default:{QUOTA_MIB}").start().ready()
        must(self.node, "POST", "/settings/audit", auditdEnabled="true", disabled="")
        self.connection = self.connect()
        self.written = {}

    def connect(self):
        connection = Connection(self.node.kv, seconds=30)
        connection.hello(FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET)
        return connection.login()

    def write(self, number):
        """Writes one document that does not compress; returns the status."""
        key = b"full-%d" % number
        value = os.urandom(VALUE_BYTES)
        reply = key_call(self.connection, SET, key, bytes(8), value)
        if reply.status == SUCCESS:
            self.written[key] = (value, *struct.unpack(">QQ", reply.extras))
        return reply.status

    def persisted(self, key):
        """Whether the node says that the last write of the key is on disk."""
        _, uuid, seqno = self.written[key]
        reply = self.connection.call(
            OBSERVE_SEQNO, b"", b"", uuid.to_bytes(8, "big"), vbucket=vbucket_of(key)
        )
        equal(reply.status, SUCCESS)
        return struct.unpack_from(">BHQQQ", reply.value)[3] >= seqno

    def dropped(self):
        """Events that were not recorded."""
        return int(self.connection.stats("audit")["dropped_events"])

    def check_all(self):
        for key, (value, *_) in self.written.items():
            reply = key_call(self.connection, GET, key)
            equal(reply.status, SUCCESS, f"status of {key!r} {reply.value!r}")
            assert reply.value == value, f"{key!r} came back changed"

    def close(self):
        self.connection.close()
        self.node.close()


@suite.test
def persists_while_there_is_space(world):
    for number in range(20):
        equal(world.write(number), SUCCESS)
    eventually("all is persisted", lambda: all(map(world.persisted, world.written)))


@suite.test
def writes_on_to_the_memory_limit(world):
    world.node.fill()
    statuses = set()
    for number in range(20, 20 + 2 * QUOTA_MIB * MIB // VALUE_BYTES):
        status = world.write(number)
        statuses.add(status)
        if status != SUCCESS:
            break
    assert statuses <= {SUCCESS, TEMPORARY_FAILURE, OUT_OF_MEMORY}, statuses
    assert statuses != {SUCCESS}, "a full disk and a full memory refuse nothing"
    unsaved = [key for key in world.written if not world.persisted(key)]
    print(f"     {len(world.written)} documents taken, {len(unsaved)} of them in memory only")
    assert unsaved, "everything was persisted on a disk that is full"


@suite.test
def reads_go_on(world):
    world.check_all()
    equal(world.connection.call(NOOP).status, SUCCESS)


@suite.test
def events_of_audits_are_dropped_and_counted(world):
    """The log lies on the same disk. What is left of that is taken, too, and given back."""
    rest = f"{world.node.data}/.rest"
    world.node.inside("dd", "if=/dev/zero", f"of={rest}", "bs=4k")
    before = world.dropped()

    def some_are_dropped():
        world.check_all()
        return world.dropped() > before

    eventually("events are dropped", some_are_dropped, seconds=30)
    assert world.node.inside("rm", rest), "there is nothing to remove"

    def is_recorded():
        world.check_all()
        return world.node.inside("grep", "-q", "document read", f"{world.node.data}/audit/current-audit.log")

    eventually("events are recorded again", is_recorded, seconds=30)


@suite.test
def recovers_when_space_returns(world):
    world.node.release()
    eventually("all is persisted", lambda: all(map(world.persisted, world.written)), seconds=30)
    eventually("writes are taken again", lambda: world.write(0) == SUCCESS, seconds=30)
    world.check_all()


@suite.test
def loses_nothing_that_was_persisted(world):
    eventually("all is persisted", lambda: all(map(world.persisted, world.written)), seconds=30)
    world.connection.close()
    world.node.kill()
    world.node.start().ready()
    world.connection = world.connect()
    world.check_all()


if __name__ == "__main__":
    binary()
    suite.main(World())
