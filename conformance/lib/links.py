"""A network between the nodes of a cluster, etcd and clients, of which each way can be cut."""

import os
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

from cluster import Cluster
from harness import Node

CHUNK = 65536
# Of linux/netlink.h and linux/sock_diag.h.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1


class Links:
    """Carries bytes between nodes, etcd and clients. Ways go by two names: `a`, `b` ... for nodes, `etcd`, `client`.

    What is sent on a way that is cut waits, as with packets that are lost and sent again; also the end of a connection.
    """

    def __init__(self):
        self.turn = threading.Condition()
        self.cut_ways = set()
        self.losses = Counter()
        self.nodes = {}
        self.listeners = []
        self.inode_of = inode_of if kernel_tells() else listed_inode_of

    def listen(self, target, port_of, source=None):
        """A port that leads to `port_of()` of a target; from whom a connection comes is found out if it is not told."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.listeners.append(listener)
        threading.Thread(target=self._serve, args=(listener, target, port_of, source), daemon=True).start()
        return listener.getsockname()[1]

    def cut(self, source, target):
        """Nothing comes from one to the other any more."""
        with self.turn:
            self.cut_ways.add((source, target))

    def part(self, one, *others):
        """Nothing passes between one and the others."""
        for other in others:
            self.cut(one, other)
            self.cut(other, one)

    def heal(self):
        with self.turn:
            self.cut_ways.clear()
            self.turn.notify_all()

    def lose(self, source, target):
        """What waits on a way that is cut is lost, with its connections; the way is whole again."""
        with self.turn:
            self.losses[source, target] += 1
            self.cut_ways.discard((source, target))
            self.turn.notify_all()

    def close(self):
        self.heal()
        for listener in self.listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _serve(self, listener, target, port_of, source):
        while True:
            try:
                near, peer = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._open, args=(near, peer[1], port_of, source, target), daemon=True).start()

    def _open(self, near, from_port, port_of, source, target):
        try:
            # Not where connections are accepted: one that takes long delays no other.
            source = source or self._source(from_port, near.getsockname()[1])
            self._passes(source, target)
            far = socket.create_connection(("127.0.0.1", port_of()), timeout=5)
        except (OSError, KeyError):
            # Nothing listens: the node has not said its ports, or has ended.
            near.close()
            return
        far.settimeout(None)
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._carry, args=(far, near, target, source), daemon=True).start()
        self._carry(near, far, source, target)

    def _carry(self, near, far, source, target):
        with suppress(OSError):
            while data := near.recv(CHUNK):
                self._passes(source, target)
                far.sendall(data)
        self._passes(source, target)
        for end in (near, far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        far.close()

    def _passes(self, source, target):
        with self.turn:
            losses = self.losses[source, target]
            self.turn.wait_for(lambda: (source, target) not in self.cut_ways)
            if self.losses[source, target] != losses:
                raise ConnectionResetError("what waited is lost")

    def _source(self, port, to):
        """Whose socket is connected from a port of this machine to another one."""
        inode = self.inode_of(port, to)
        return self._owner(f"socket:[{inode}]") if inode else "client"

    def _owner(self, opened):
        for name, node in self.nodes.items():
            if node.alive() and opened in handles(node.process.pid):
                return name
        return "client"


def inode_of(port, to):
    """The inode of the socket that is connected from a port of this machine to another one; 0 if it is gone.

    The kernel looks it up; its list of all, tens of thousands after other suites, takes up to half a second.
    """
    here = socket.inet_aton("127.0.0.1")
    own = struct.pack("!HH4s12x4s12xIII", port, to, here, here, 0, 0xFFFFFFFF, 0xFFFFFFFF)
    asked = struct.pack("=BBxxI", socket.AF_INET, socket.IPPROTO_TCP, 0xFFFFFFFF) + own
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(asked), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0) + asked)
        answer = kernel.recv(CHUNK)
    (kind,) = struct.unpack_from("=H", answer, 4)
    # Behind the header are four bytes, 48 of the addresses, and four numbers.
    return struct.unpack_from("=I", answer, 16 + 4 + 48 + 16)[0] if kind == SOCK_DIAG_BY_FAMILY else 0


def kernel_tells():
    """Whether the kernel looks sockets up: not every container lets it."""
    with suppress(OSError), socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            return inode_of(client.getsockname()[1], server.getsockname()[1]) != 0
    return False


def listed_inode_of(port, to):
    """As `inode_of`, from the list of all sockets."""
    wanted = [f"0100007F:{port:04X}", f"0100007F:{to:04X}"]
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return next((int(words[9]) for words in lines if words[1:3] == wanted), 0)


def handles(process):
    """What a process has open; nothing if it ends meanwhile."""
    opened = set()
    with suppress(FileNotFoundError):
        for handle in os.scandir(f"/proc/{process}/fd"):
            with suppress(FileNotFoundError):
                opened.add(os.readlink(handle))
    return opened


class LinkedCluster(Cluster):
    """A cluster whose nodes reach each other and etcd, and are reached by clients, through links."""

    def __init__(self, etcd, name, nodes=3, **more):
        super().__init__(etcd, name, nodes=0, **more)
        self.links = Links()
        self.ports = []
        for at in range(nodes):
            own = chr(ord("a") + at)
            members = [self.links.listen("etcd", lambda port=port: port, own) for port in etcd.clients]
            self.ports.append(self.links.listen(own, lambda at=at: self.nodes[at].kv))
            at_etcd = ",".join(f"127.0.0.1:{port}" for port in members)
            flags = ["--cluster", f"etcd://{at_etcd}/{name}", "--node-name", own]
            self.nodes.append(Node(*flags, "--advertise", f"127.0.0.1:{self.ports[at]}"))
            self.links.nodes[own] = self.nodes[at]

    def __exit__(self, *error):
        super().__exit__(*error)
        self.links.close()
