"""Clusters whose nodes speak to each other over TLS."""

import shutil
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path

from certificates import Authority
from cluster import Cluster, member_of
from harness import equal, eventually
from joins import refused
from world import CONFIG, must_init, suite


@contextmanager
def place():
    """A directory for certificates."""
    path = Path(tempfile.mkdtemp(prefix="settee-certificates-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def flags_of(authority, name, ca=None, host="IP:127.0.0.1"):
    """What a node with a certificate of an authority is started with."""
    certificate, key = authority.sign(name, extension=f"subjectAltName={host}")
    return (
        "--kv-tls-port", "0", "--tls-cert", certificate, "--tls-key", key, "--peer-ca", str(ca or authority.certificate),
    )  # fmt: skip


def authority_in(path):
    path.mkdir()
    return Authority.made(path)


@suite.test
def nodes_speak_to_each_other_over_tls(world):
    with place() as path:
        ours = authority_in(path / "ours")
        # Each asks the others for a certificate, which is that of a user; as nodes they log in all the same.
        shown, key = ours.sign("Administrator", extension="extendedKeyUsage=clientAuth")
        mutual = ("--client-cert", "mandatory", "--client-ca", str(ours.certificate), "--peer-cert", shown, "--peer-key", key)
        flags = [(*flags_of(ours, name), *mutual) for name in "abc"]
        with Cluster(world.etcd, "sealed", flags=flags, init=("--tls",)) as cluster:
            cluster.make_bucket()
            client = cluster.client()
            for number in range(20):
                client.set(b"key-%d" % number, b"1", durable=True)
            cluster.nodes[2].kill()
            cluster.order("failover", "c")
            client = cluster.client()
            eventually("all keys are served again", client.everywhere, seconds=30)
            equal([client.get(b"key-%d" % number) for number in range(20)], [b"1"] * 20, "what was written")


@suite.test
def messages_of_nodes_cannot_be_read_by_others(world):
    with place() as path:
        ours = authority_in(path / "ours")
        flags = [flags_of(ours, name) for name in "ab"]
        with Cluster(world.etcd, "unread", nodes=2, wires=True, flags=flags, init=("--tls",)) as cluster:
            cluster.make_bucket()
            client = cluster.client()
            for number in range(50):
                client.set(b"key-%d" % number, b'"a value that others must not read"', durable=True)
            seen = [wire.seen for wire in cluster.sealed]
            assert all(seen), "nodes reach each other past their proxies"
            assert not any(b"others must not read" in one or b"cluster.message" in one for one in seen)


@suite.test
def a_node_without_the_clusters_tls_is_refused(world):
    with place() as path:
        ours, others = authority_in(path / "ours"), authority_in(path / "others")
        flags = [flags_of(ours, name) for name in "ab"]
        with Cluster(world.etcd, "strict", nodes=2, flags=flags, init=("--tls",)) as cluster:
            cluster.make_bucket()

            def late(*flags):
                return member_of(world.etcd, "strict", "c", *flags)

            refused(late(), CONFIG, "cluster strict", "over TLS", "--kv-tls-port")
            refused(late(*flags_of(ours, "c", ca=others.certificate)), CONFIG, "127.0.0.1", "invalid peer certificate", "--peer-ca")
            refused(late(*flags_of(ours, "c", host="DNS:other")), CONFIG, "127.0.0.1", "not valid for name")
            # Its certificate is what it trusts; that of the others is not.
            refused(late(*flags_of(others, "c")), CONFIG, "is no peer over TLS", "invalid peer certificate")
            assert cluster.states() == ["active"] * 2, "a node that is refused is not known"

            # Certificates are read again, also those of other nodes; a link that breaks then is told once.
            first, second = cluster.nodes
            trusted = path / "ours" / "authority.pem"
            kept = trusted.read_bytes()
            trusted.write_bytes(others.certificate.read_bytes())
            first.process.send_signal(signal.SIGHUP)
            eventually("the files are read", lambda: "reloaded" in first.log.read_text())
            second.kill()
            second.flags[second.flags.index("--peer-ca") + 1] = str(path / "both.pem")
            (path / "both.pem").write_bytes(kept)
            second.start()
            told = "a node is no peer over TLS"
            eventually("the node tells it", lambda: told in first.log.read_text(), seconds=30)
            lines = [line for line in first.log.read_text().splitlines() if told in line]
            assert len(lines) == 1 and "node=\"b\"" in lines[0], lines
            trusted.write_bytes(kept)
            first.process.send_signal(signal.SIGHUP)
            eventually("all keys are served again", lambda: cluster.client().everywhere(), seconds=30)
        must_init(world.etcd.addresses, "open")
        refused(member_of(world.etcd, "open", "a", *flags_of(ours, "a")), CONFIG, "cluster open", "without TLS", "--tls")
