"""etcd on loopback: one member or three, started, stopped, paused and killed one by one, and looked into by its gateway."""

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from harness import end_with_parent, eventually, port_of, reserved_port

# How long a member may take to serve, and members to choose a leader.
START_SECONDS = 30


class Refused(Exception):
    """etcd's own refusal."""

    def __init__(self, error):
        self.status = error.code
        super().__init__(f"{error.code}: {error.read().decode(errors='replace')}")


class Etcd:
    """An etcd with a directory of its own."""

    def __init__(self, members=1, certificate=None, flags=()):
        """`certificate` holds the files of a certificate and of its key: clients come over TLS then."""
        self.home = Path(tempfile.mkdtemp(prefix="settee-conformance-etcd-"))
        self.scheme = "https" if certificate else "http"
        self.certificate, self.flags = certificate, flags
        self.reserving = [reserved_port() for _ in range(2 * members)]
        ports = [port_of(reserving) for reserving in self.reserving]
        self.clients, self.peers = ports[:members], ports[members:]
        self.processes = [None] * members
        self.token = None
        # Of the stories' own calls: the authority that they trust, and the files of a certificate with its key.
        self.trusted = self.shown = None

    @property
    def addresses(self):
        """What `--etcd` takes."""
        return ",".join(self.url(member) for member in range(len(self.clients)))

    def cluster(self, name):
        """What `--cluster` takes."""
        scheme = "etcds" if self.certificate else "etcd"
        return f"{scheme}://{','.join(f'127.0.0.1:{port}' for port in self.clients)}/{name}"

    def url(self, member):
        return f"{self.scheme}://127.0.0.1:{self.clients[member]}"

    def start(self):
        """Starts all members and waits until they agree."""
        for member in range(len(self.clients)):
            self.spawn(member)
        return self.ready()

    def ready(self):
        """Waits until every member that runs answers what most of them agree on."""
        for member, process in enumerate(self.processes):
            if process is not None:
                eventually(f"etcd {member} agrees", lambda at=member: self.agrees(at), seconds=START_SECONDS)
        return self

    def agrees(self, member):
        if self.processes[member].poll() is not None:
            raise AssertionError(f"etcd ended:\n{self.tail(member)}")
        return self.call("/v3/kv/range", {"key": encode("/")}, member)

    def spawn(self, member):
        """Starts a member, with what it had."""
        client, peer = self.url(member), [f"http://127.0.0.1:{port}" for port in self.peers]
        tls = ["--cert-file", self.certificate[0], "--key-file", self.certificate[1]] if self.certificate else []
        command = [
            "etcd", "--name", f"m{member}", "--data-dir", str(self.home / f"m{member}"),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer[member], "--initial-advertise-peer-urls", peer[member],
            "--initial-cluster", ",".join(f"m{one}={url}" for one, url in enumerate(peer)),
            *tls, *self.flags,
        ]  # fmt: skip
        # What a system's own etcd is set to is not for these.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ETCD_")}
        with self.log(member).open("ab") as log:
            self.processes[member] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                preexec_fn=end_with_parent,
            )  # fmt: skip

    def kill(self, member):
        """SIGKILL; `spawn` brings it back."""
        process, self.processes[member] = self.processes[member], None
        process.kill()
        process.wait()

    def pause(self, member):
        """SIGSTOP: connections stay, answers do not come."""
        self.processes[member].send_signal(signal.SIGSTOP)

    def resume(self, member):
        self.processes[member].send_signal(signal.SIGCONT)

    def leader(self):
        """The member that leads."""
        for member, process in enumerate(self.processes):
            if process is not None:
                status = self.call("/v3/maintenance/status", {}, member)
                if status.get("leader") == status["header"]["member_id"]:
                    return member
        raise AssertionError("etcd has no leader")

    def call(self, path, body, member=0, seconds=10):
        """A call of the gateway."""
        headers = {"Authorization": self.token} if self.token else {}
        request = urllib.request.Request(self.url(member) + path, json.dumps(body).encode(), headers)
        try:
            context = ssl.create_default_context(cafile=self.trusted) if self.trusted else None
            if self.shown:
                context.load_cert_chain(*self.shown)
            with urllib.request.urlopen(request, timeout=seconds, context=context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Refused(error) from None

    def get(self, prefix, member=0):
        """Values by their keys, of all keys with a prefix. An etcd that is too busy to answer (503) is asked again."""
        body = {"key": encode(prefix), "range_end": encode(prefix[:-1] + chr(ord(prefix[-1]) + 1))}
        for left in (3, 2, 1, 0):
            try:
                found = self.call("/v3/kv/range", body, member)
                return {decode(kv["key"]): decode(kv.get("value", "")) for kv in found.get("kvs", [])}
            except Refused as error:
                if error.status != 503 or not left:
                    raise

    def revision(self, member=0):
        """That of the newest change."""
        return int(self.call("/v3/maintenance/status", {}, member)["header"]["revision"])

    def put(self, key, value, member=0):
        """Writes a key, past all rules of a cluster."""
        self.call("/v3/kv/put", {"key": encode(key), "value": encode(value)}, member)

    def log(self, member):
        return self.home / f"m{member}.log"

    def tail(self, member, lines=20):
        """The end of what a member wrote."""
        return "\n".join(self.log(member).read_text(errors="replace").splitlines()[-lines:])

    def close(self):
        for member, process in enumerate(self.processes):
            if process is not None:
                self.kill(member)
        for reserving in self.reserving:
            reserving.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


def encode(text):
    """Bytes as the gateway takes them."""
    return base64.b64encode(text.encode()).decode()


def decode(text):
    return base64.b64decode(text).decode()
