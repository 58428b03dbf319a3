"""Clusters whose nodes speak to each other over TLS."""

import shutil
import signal
import ssl
import tempfile
from contextlib import contextmanager
from pathlib import Path

from certificates import Authority
from cluster import Cluster, member_of
from harness import equal, eventually
from joins import refused
from world import CONFIG, holds, must_init, suite


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
        must_init(world.etcd.addresses, "open")
        refused(member_of(world.etcd, "open", "a", *flags_of(ours, "a")), CONFIG, "cluster open", "without TLS", "--tls")


@suite.test
def certificates_are_renewed_while_nodes_run_and_none_is_taken_that_others_would_refuse(world):
    with place() as path:
        ours, others = authority_in(path / "ours"), authority_in(path / "others")
        trusted = [path / f"trusted-by-{name}.pem" for name in "ab"]
        trust(trusted[0], ours)
        trust(trusted[1], ours)
        flags = [flags_of(ours, name, ca=file) for name, file in zip("ab", trusted, strict=True)]
        with Cluster(world.etcd, "renewed", nodes=2, wires=True, flags=flags, init=("--tls",)) as cluster:
            cluster.make_bucket()
            client = cluster.client()
            first, second = cluster.nodes
            served = certificate_of(second)

            flags_of(ours, "b", host="DNS:other")
            holds(read_again(second), "certificate not reloaded", "not valid for name", "--tls-cert")
            flags_of(ours, "b")
            trust(trusted[1], others)
            holds(read_again(second), "certificate not reloaded", "would refuse the certificate of this one", "--peer-ca")
            whole = ours.certificate.read_bytes()
            trusted[1].write_bytes(whole[: len(whole) // 2])
            holds(read_again(second), "certificate not reloaded", f"{trusted[1]} is cut off")
            equal(certificate_of(second), served, "the certificate while files are refused")
            connect_anew(cluster)
            client.set(b"key", b"1", durable=True)

            trust(trusted[1], ours, others)
            flags_of(others, "b")
            for end in ("pem", "key"):
                shutil.copy(path / "others" / f"b.{end}", path / "ours" / f"b.{end}")
            read_again(second)
            assert certificate_of(second) != served, "the new certificate is served"
            # The other node does not trust it yet.
            connect_anew(cluster)
            told = "a node is no peer over TLS"
            eventually("the node tells it", lambda: told in first.log.read_text(), seconds=30)
            trust(trusted[0], ours, others)
            read_again(first)
            client.set(b"key", b"2", durable=True)
            lines = [line for line in first.log.read_text().splitlines() if told in line]
            assert len(lines) == 1 and "node=\"b\"" in lines[0], lines


def trust(file, *authorities):
    file.write_bytes(b"".join(authority.certificate.read_bytes() for authority in authorities))


def certificate_of(node):
    """What a node shows at its KV port with TLS."""
    return ssl.get_server_certificate(("127.0.0.1", node.ports["kv_tls"]))


def read_again(node):
    """What a node logs when it reads its files again."""
    before = len(node.log.read_text())
    node.process.send_signal(signal.SIGHUP)

    def told():
        lines = node.log.read_text()[before:]
        return lines if "configuration reloaded" in lines else None

    return eventually("the files are read", told)


def connect_anew(cluster):
    """Ends all connections between nodes."""
    for wire in cluster.sealed:
        wire.cut()
        wire.flow()
