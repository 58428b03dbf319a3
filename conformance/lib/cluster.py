"""A cluster of nodes on loopback, with an etcd beside it."""

import json

from harness import Node, binary, equal, eventually, finished
from manage import must
from mcbp import (
    ADD, EXISTS, FEATURE_ALT_REQUEST, FEATURE_COLLECTIONS, FEATURE_MUTATION_SEQNO, FEATURE_SELECT_BUCKET,
    FEATURE_SYNC_REPLICATION, FEATURE_XERROR, GET, SET, SUCCESS, Closed, Connection, vbucket_of,
)  # fmt: skip
from wire import Wire

MAJORITY = bytes([0x11, 0x01])


OUTSIDE = "127.0.0.2"


class Cluster:
    """Nodes a, b, c ..., started.

    With `wires`, other nodes reach each of them through its wire in `inside` alone, and clients of another network through
    the one in `outside`, at another address. `flags` are each node's own, `init` those of `settee cluster init`.
    """

    def __init__(self, etcd, name, nodes=3, lease=2, wires=False, flags=(), init=()):
        self.etcd, self.name = etcd, name
        command = [binary(), "cluster", "init", "--etcd", etcd.addresses, "--lease", str(lease), *init, "--json", name]
        made = finished(command)
        equal((made.returncode, made.stderr), (0, ""), "cluster init")
        self.uuid = json.loads(made.stdout)["uuid"]
        self.inside = [Wire(0) for _ in range(nodes if wires else 0)]
        self.outside = [Wire(0, OUTSIDE) for _ in self.inside]
        # Over TLS; nobody asks for HTTP there.
        self.sealed = [Wire(0) for _ in self.inside if "--tls" in init]
        over_tls = [f":1:{wire.port}" for wire in self.sealed] or [""] * nodes
        told = [
            ("--advertise", f"127.0.0.1:{inside.port}{more}", "--advertise-outside", f"{OUTSIDE}:{outside.port}")
            for inside, outside, more in zip(self.inside, self.outside, over_tls, strict=False)
        ]
        told = told or [()] * nodes
        flags = flags or [()] * nodes
        self.nodes = [member_of(etcd, name, chr(ord("a") + at), *told[at], *flags[at]) for at in range(nodes)]

    def __enter__(self):
        for node in self.nodes:
            node.start()
        for wires, port in ((self.inside, "kv"), (self.outside, "kv"), (self.sealed, "kv_tls")):
            for wire, node in zip(wires, self.nodes, strict=False):
                wire.to = node.ports[port]
        eventually("all nodes are counted on", lambda: self.states() == ["active"] * len(self.nodes), seconds=30)
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            if node.alive():
                node.kill()
            node.process = None
            node.close()
        for wire in (*self.inside, *self.outside, *self.sealed):
            wire.close()

    def key(self, tail):
        return f"/settee/{self.uuid}/{tail}"

    def look(self, tail):
        """Values of keys of the cluster in etcd."""
        return {key: json.loads(value) for key, value in self.etcd.get(self.key(tail), self.asked()).items()}

    def asked(self):
        """A member of etcd that runs."""
        return next(at for at, process in enumerate(self.etcd.processes) if process is not None)

    def states(self):
        """What each node is for the cluster, in the order of their numbers."""
        return [node["state"] for _, node in sorted(self.look("nodes/").items())]

    def make_bucket(self, name="default", replicas=1, vbuckets=128, quota=100, **more):
        """Makes a bucket at the first node, and waits until each of its vBuckets is served."""
        must(
            self.nodes[0], "POST", "/pools/default/buckets",
            name=name, ramQuotaMB=str(quota), replicaNumber=str(replicas), numVBuckets=str(vbuckets), **more,
        )  # fmt: skip
        eventually("the bucket is served", lambda: self.client(name).everywhere(), seconds=30)

    def order(self, *words):
        """An order of an operator, given at the first node."""
        code, told, error = self.tried(*words)
        equal(code, 0, f"{' '.join(words)} ({error.strip()})")
        return told

    def tried(self, *words):
        """Exit code, standard output and standard error of an order."""
        return tried(self.nodes[0].address, *words)

    def status(self):
        return status(self.nodes[0].address)

    def client(self, bucket="default"):
        """A client that knows the nodes that run."""
        return Client([node for node in self.nodes if node.alive()], bucket)


def member_of(etcd, cluster, name, *flags):
    """A node that is to be in a cluster, not started."""
    return Node("--cluster", etcd.cluster(cluster), "--node-name", name, *flags)


def tried(at, *words):
    """Exit code, standard output and standard error of `settee cluster` at a node."""
    ran = finished([binary(), "cluster", *words, "--connect", at])
    return ran.returncode, ran.stdout, ran.stderr


def status(at):
    """The state of the cluster, as a node tells it."""
    return json.loads(tried(at, "status", "--json")[1])


class Client:
    """Reads and writes where the map says, taken anew for each operation that does not come through."""

    def __init__(self, nodes, bucket):
        self.nodes, self.bucket = nodes, bucket
        self.connections = {}
        self.map = None

    def refresh(self):
        """The newest map that any of the nodes tells."""
        maps = []
        for node in self.nodes:
            try:
                maps.append(json.loads(must(node, "GET", f"/pools/default/b/{self.bucket}")))
            except (AssertionError, OSError):
                continue
        self.map = max(maps, key=lambda one: (one["revEpoch"], one["rev"]))
        return self.map

    def rows(self):
        """Nodes of each vBucket by their KV ports, the active one first."""
        servers = [int(server.rsplit(":", 1)[1]) for server in self.map["vBucketServerMap"]["serverList"]]
        rows = self.map["vBucketServerMap"]["vBucketMap"]
        return [[servers[at] if at >= 0 else None for at in row] for row in rows]

    def row(self, key):
        """Where a key is."""
        rows = self.rows()
        return rows[vbucket_of(key, len(rows))]

    def copies(self, port):
        """vBuckets of which a node has a copy."""
        return [vbucket for vbucket, row in enumerate(self.rows()) if port in row]

    def connection(self, port):
        if port not in self.connections:
            connection = Connection(port, seconds=5)
            connection.hello(
                FEATURE_MUTATION_SEQNO, FEATURE_XERROR, FEATURE_SELECT_BUCKET, FEATURE_ALT_REQUEST,
                FEATURE_SYNC_REPLICATION, FEATURE_COLLECTIONS,
            )  # fmt: skip
            self.connections[port] = connection.login(bucket=self.bucket)
        return self.connections[port]

    def call(self, opcode, key, *rest, **more):
        """One try."""
        rows = self.rows()
        vbucket = vbucket_of(key, len(rows))
        port = rows[vbucket][0]
        try:
            return self.connection(port).call(opcode, b"\0" + key, *rest, vbucket=vbucket, **more)
        except (OSError, Closed):
            self.connections.pop(port, None)
            raise

    def until(self, status, opcode, key, *rest, seconds=30.0, **more):
        """Tries until it is answered so; other answers mean another map, or that it is too soon."""

        def once():
            self.refresh()
            answer = self.call(opcode, key, *rest, **more)
            if answer.status != status:
                raise AssertionError(f"{answer!r}")
            return answer

        return eventually(f"{key.decode()} is served", once, seconds=seconds)

    def set(self, key, value, durable=False, seconds=30.0):
        """Writes, if need be until the cluster is well again."""
        framing = {"framing": MAJORITY} if durable else {}
        return self.until(0, SET, key, bytes(8), value, seconds=seconds, **framing)

    def add_once(self, key, value, seconds=30.0):
        """A durable write of a new key that changes it once, however often it is tried: no other writer has the key."""

        def once():
            self.refresh()
            answer = self.call(ADD, key, bytes(8), value, framing=MAJORITY)
            assert answer.status in (SUCCESS, EXISTS), f"{answer!r}"
            return True

        eventually(f"{key.decode()} is written", once, seconds=seconds)

    def get(self, key, seconds=30.0):
        return self.until(0, GET, key, seconds=seconds).value

    def everywhere(self):
        """Whether a key of every vBucket can be written."""
        self.refresh()
        wanted, number = set(range(len(self.rows()))), 0
        while wanted:
            key = f"probe-{number}".encode()
            vbucket, number = vbucket_of(key, len(self.rows())), number + 1
            if vbucket in wanted:
                if self.call(SET, key, bytes(8), b"1").status != 0:
                    return False
                wanted.discard(vbucket)
        return True
