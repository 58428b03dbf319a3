"""`settee cluster init`: what it makes, and what it refuses."""

import json
import socket
import tempfile
import threading
from pathlib import Path

from certificates import Authority
from etcd import Etcd, Refused
from harness import Node, equal
from world import DATA, NO_PERM, PROTOCOL, TEMP_FAIL, UNAVAILABLE, USAGE, holds, init, must_init, refused, suite


@suite.test
def init_makes_a_name_and_what_nodes_know_each_other_by(world):
    made = must_init(world.etcd.addresses, "made")
    equal(made["address"], world.etcd.cluster("made"), "address")
    uuid = made["uuid"]
    equal(json.loads(world.etcd.get("/settee/names/made")["/settee/names/made"]), {"uuid": uuid}, "name")
    keys = world.etcd.get(f"/settee/{uuid}/")
    equal(list(keys), [f"/settee/{uuid}/meta"], "keys")
    meta = json.loads(keys[f"/settee/{uuid}/meta"])
    equal((meta["name"], meta["feature_level"], meta["epoch"]), ("made", 1, 1), "meta")
    equal((len(bytes.fromhex(uuid)), len(bytes.fromhex(meta["secret"]))), (16, 32), "bytes")
    code, told, _ = init(world.etcd.addresses, "told")
    equal(code, 0, "exit code")
    holds(told, f"settee serve --cluster {world.etcd.cluster('told')}")


@suite.test
def a_name_is_made_once_and_clusters_share_an_etcd(world):
    first, second = (must_init(world.etcd.addresses, name) for name in ("one", "two"))
    before = world.etcd.get("/settee/")
    refused(world.etcd.addresses, "one", DATA, "one")
    equal(world.etcd.get("/settee/"), before, "keys")
    secrets = {json.loads(before[f"/settee/{made['uuid']}/meta"])["secret"] for made in (first, second)}
    equal(len(secrets), 2, "secrets")


@suite.test
def an_address_that_is_no_etcd_is_told(world):
    with Node().watched() as node:
        node.start()
        refused(f"http://127.0.0.1:{node.ports['http']}", "x", PROTOCOL, str(node.ports["http"]))
        refused(f"http://127.0.0.1:{node.kv}", "x", UNAVAILABLE, str(node.kv))
    refused(f"http://127.0.0.1:{world.etcd.peers[0]}", "x", PROTOCOL, "404")
    for answer, code in [
        (b"SSH-2.0-OpenSSH_9.2\r\n", PROTOCOL),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n<html>hi</html>", PROTOCOL),
        (b'HTTP/1.1 200 OK\r\ncontent-length: 24\r\n\r\n{"etcdserver":"3.3.27" }', PROTOCOL),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", UNAVAILABLE),
        (b"", UNAVAILABLE),
    ]:
        with Always(answer) as port:
            refused(f"http://127.0.0.1:{port}", "x", code, str(port))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        refused(f"http://127.0.0.1:{silent.getsockname()[1]}", "x", UNAVAILABLE, "no answer")
    refused("http://127.0.0.1:1", "x", UNAVAILABLE, "refused")
    refused("http://no-such-host.invalid:1", "x", UNAVAILABLE, "no-such-host")
    refused(world.etcd.addresses.replace("http:", "https:"), "x", UNAVAILABLE, "TLS", flags=["--etcd-insecure"])


@suite.test
def a_name_is_looked_at_before_etcd_is(world):
    for name in ("", "a/b", "a b", "x" * 65):
        refused("http://127.0.0.1:1", name, USAGE, "name")
    equal(init("ftp://127.0.0.1", "x")[0], USAGE, "exit code")
    refused(world.etcd.addresses, "x", USAGE, "--etcd-password-file", flags=["--etcd-username", "root"])


@suite.test
def members_of_two_etcds_are_not_one(world):
    with Etcd() as other:
        refused(f"{world.etcd.addresses},{other.addresses}", "mixed", PROTOCOL, "different")


@suite.test
def members_that_are_away_are_passed_over_while_most_are_there(_):
    with Etcd(3) as etcd:
        etcd.kill(0)
        etcd.ready()
        must_init(etcd.addresses, "two-of-three")
        etcd.pause(1)
        refused(etcd.addresses, "none", TEMP_FAIL, "most of its members")
        etcd.resume(1)
        etcd.ready()
        must_init(etcd.addresses, "again")
        etcd.kill(1)
        refused(etcd.addresses, "none", TEMP_FAIL, "most of its members")
        etcd.spawn(0)
        etcd.ready()
        must_init(etcd.addresses, "none")


@suite.test
def etcd_without_space_is_told(_):
    with Etcd(flags=["--quota-backend-bytes", str(4 << 20)]) as etcd:
        for number in range(16):
            try:
                etcd.put(f"/other/{number}", "x" * (1 << 20))
            except Refused:
                break
        refused(etcd.addresses, "x", UNAVAILABLE, "space exceeded")
        equal(etcd.get("/settee/"), {}, "keys")


@suite.test
def etcd_asks_for_a_login(_):
    with Etcd() as etcd:
        etcd.call("/v3/auth/user/add", {"name": "root", "password": "secret"})
        etcd.call("/v3/auth/user/add", {"name": "guest", "password": "guest"})
        etcd.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        etcd.call("/v3/auth/enable", {})
        refused(etcd.addresses, "x", NO_PERM, "user and a password")
        for user, password, words in (("root", "wrong", "authentication failed"), ("guest", "guest", "permission")):
            environment = {"SETTEE_ETCD_USERNAME": user, "SETTEE_ETCD_PASSWORD": password}
            refused(etcd.addresses, "x", NO_PERM, words, environment=environment)
        file = etcd.home / "password"
        file.write_text("secret\n")
        must_init(etcd.addresses, "x", "--etcd-username", "root", "--etcd-password-file", str(file))


@suite.test
def etcd_is_reached_over_tls(_):
    with tempfile.TemporaryDirectory(prefix="settee-conformance-cluster-") as home:
        ours, other = (Path(home) / name for name in ("ours", "other"))
        for folder in (ours, other):
            folder.mkdir()
        authority = Authority.made(ours)
        etcd = Etcd(certificate=authority.sign("etcd", extension="subjectAltName=IP:127.0.0.1"))
        etcd.trusted = str(authority.certificate)
        with etcd:
            must_init(etcd.addresses, "trusted", "--etcd-ca", etcd.trusted)
            must_init(etcd.addresses, "sealed", "--etcd-insecure")
            wrong = ["--etcd-ca", str(Authority.made(other).certificate)]
            refused(etcd.addresses, "x", UNAVAILABLE, "certificate", flags=wrong)
            refused(etcd.addresses.replace("https:", "http:"), "x", UNAVAILABLE, "TLS")


@suite.test
def etcd_asks_for_a_certificate(_):
    with tempfile.TemporaryDirectory(prefix="settee-conformance-cluster-") as home:
        ours, other = (Path(home) / name for name in ("ours", "other"))
        for folder in (ours, other):
            folder.mkdir()
        # Authorities of one name: etcd's own is told from the other one by its key.
        authority, stranger = Authority.made(ours), Authority.made(other)
        trusts = ("--etcd-ca", str(authority.certificate))
        asks = ("--client-cert-auth", "--trusted-ca-file", str(authority.certificate))
        server = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=clientAuth,serverAuth"
        etcd = Etcd(certificate=authority.sign("etcd", extension=server), flags=asks)
        etcd.trusted, etcd.shown = str(authority.certificate), authority.sign("node")
        with etcd:
            shown = ("--etcd-cert", etcd.shown[0], "--etcd-key", etcd.shown[1])
            must_init(etcd.addresses, "shown", *trusts, *shown)
            certificate, key = stranger.sign("node")
            strange = ("--etcd-cert", certificate, "--etcd-key", key)
            for flags in ((), strange):
                refused(etcd.addresses, "x", UNAVAILABLE, "needs a certificate", flags=[*trusts, *flags])
            wrong = ["--etcd-ca", str(stranger.certificate), *shown]
            refused(etcd.addresses, "x", UNAVAILABLE, "no trusted authority has signed it", flags=wrong)


class Always:
    """A server that gives every connection the same answer, and closes it."""

    def __init__(self, answer):
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self):
        threading.Thread(target=self.serve, daemon=True).start()
        return self.listener.getsockname()[1]

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(self.answer)

    def __exit__(self, *_):
        # What waits in accept wakes by shutdown, not by close.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
