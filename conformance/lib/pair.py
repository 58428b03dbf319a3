"""Two nodes of which one follows the other, and how far it is."""

import signal

from harness import Node, address, binary, equal, eventually, finished
from mcbp import FEATURE_MUTATION_SEQNO, FEATURE_SELECT_BUCKET, FEATURE_XERROR, VBUCKETS, Connection
from wire import Wire

CATCH_UP_SECONDS = 60


def log_in(node):
    connection = Connection(node.kv, seconds=30)
    connection.hello(FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET)
    return connection.login()


def follower_of(node, *more, port=None):
    """A node that follows `node`, at its own port or at one that leads there, started."""
    return Node("--replica-of", address(port or node.kv), *more).start()


def stats(node, group):
    """The rows of a group."""
    connection = log_in(node)
    rows = connection.stats(group)
    connection.close()
    return rows


def high_seqnos(node):
    """The newest change of every vBucket."""
    rows = stats(node, "vbucket-seqno")
    return {int(key[3:].split(":")[0]): int(value) for key, value in rows.items() if key.endswith(":high_seqno")}


def caught_up(active, replica):
    """Waits until the replica has every change that the active node has by now."""
    wanted = high_seqnos(active)

    def there():
        have = high_seqnos(replica)
        return all(have.get(vb, -1) >= seqno for vb, seqno in wanted.items())

    eventually("the replica has everything", there, CATCH_UP_SECONDS, pause=0.1)


def promote(node):
    done = finished([binary(), "promote", "--connect", node.address])
    equal((done.returncode, done.stdout), (0, "promoted\n"), f"settee promote: {done.stderr}")


class Pair:
    """Two nodes that are ended together."""

    def __init__(self, *flags):
        self.nodes = [Node(*flags).start().ready()]
        self.wire = self.between()
        self.nodes.append(follower_of(self.nodes[0], *flags, port=self.wire and self.wire.port))

    def between(self):
        """What lies between the two: nothing."""

    def streams(self):
        """Waits until the replica follows all of the active node."""
        all_open = lambda: stats(self.replica, "replication")["streams"] == str(VBUCKETS)
        eventually("all streams are open", all_open, CATCH_UP_SECONDS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.wire:
            self.wire.close()
        for node in self.nodes:
            if node.alive():
                node.process.send_signal(signal.SIGCONT)
                node.kill()
            node.close()

    @property
    def active(self):
        return self.nodes[0]

    @property
    def replica(self):
        return self.nodes[1]


class Apart(Pair):
    """Two nodes with a wire between them."""

    def between(self):
        return Wire(self.nodes[0].kv)
