"""What a cluster does when nodes and members of etcd die: failure cases by their numbers."""

import json
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from certificates import Authority
from cluster import MAJORITY, Client, Cluster, member_of
from etcd import Etcd, Refused, encode
from harness import binary, equal, eventually, finished
from links import LinkedCluster
from manage import call, must
from mcbp import SET
from world import holds, suite

# A lease, and what of it a node trusts no more.
LEASE_SECONDS = 2
# From a kill to writes at every vBucket, on a machine that does much else.
FAILOVER_SECONDS = 20
KEYS = [f"key-{number}".encode() for number in range(200)]
SCOPES = "/pools/default/buckets/default/scopes"


def three_nodes(etcd, name="three"):
    return Cluster(etcd, name, lease=LEASE_SECONDS)


def fill(client, value=None, keys=KEYS, durable=True, **how):
    """Writes keys: each its own name, unless there is a value for all."""
    for key in keys:
        client.set(key, value or key, durable=durable, **how)


def has_all(client, value=None, keys=KEYS, **how):
    """The keys have what `fill` wrote."""
    equal([client.get(key, **how) for key in keys], [value or key for key in keys], "values")


def is_served(client):
    """Waits until all vBuckets are served after a failover."""
    eventually("all vBuckets are served", client.everywhere, seconds=FAILOVER_SECONDS)


def go_on(client, seconds):
    """Durable writes one after the other for some seconds, none of which may be refused for longer than a moment."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        client.set(KEYS[number % len(KEYS)], f"{number}".encode(), durable=True, seconds=1.5)
        number += 1
    return number


def nothing_moved(cluster, before):
    """Every node is counted on, and the map is the one of before."""
    client = cluster.client()
    client.refresh()
    equal(cluster.states(), ["active"] * 3, "states")
    equal(client.rows(), before, "map")


@suite.test
def a_bucket_is_that_of_all_nodes(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        fill(client)
        for node in cluster.nodes:
            one = type(client)([node], "default")
            one.refresh()
            equal(one.rows(), client.rows(), "map")
            equal({port for row in one.rows() for port in row}, {node.kv for node in cluster.nodes}, "nodes")
        has_all(client)
        # All changes are told, whichever node is asked.
        for node in cluster.nodes:
            for flags in (["--from", "beginning", "--until-now"], ["--until-now"]):
                told = finished([binary(), "tail", "--connect", node.address, *flags])
                equal((told.returncode, told.stderr), (0, ""), "settee tail")
                keys = [json.loads(line)["key"].encode() for line in told.stdout.splitlines()]
                keys = [key for key in keys if key in KEYS]
                equal(sorted(keys), sorted(KEYS if len(flags) > 1 else []), "keys")
        # A command finds the node of a document, whichever it asks.
        for node in cluster.nodes:
            for key in map(bytes.decode, KEYS[:4]):
                told = finished([binary(), "get", key, "--connect", node.address])
                equal((told.returncode, told.stdout, told.stderr), (0, key, ""), "settee get")


@suite.test
def copies_move_to_a_node_that_comes_and_off_one_that_goes(world):
    with three_nodes(world.etcd, world.name()) as cluster, member_of(world.etcd, cluster.name, "d").watched() as late:
        cluster.make_bucket()
        late.start()
        eventually("it is known", lambda: cluster.states() == ["active"] * 3 + ["new"])
        cluster.order("rebalance")
        client = Client([*cluster.nodes, late], "default")

        def active_copies():
            # Some vBuckets have plain writes alone, others prepares.
            go_on(client, 0.5)
            return sum(row[0] == late.kv for row in client.rows())

        eventually("it has its share", lambda: active_copies() == len(client.rows()) // 4, seconds=40)
        cluster.order("drain", "d")
        eventually("it has none", lambda: active_copies() == 0 == len(client.copies(late.kv)), seconds=40)
        eventually("all is served", client.everywhere)
        cluster.order("remove", "d")
        eventually("it is gone", lambda: cluster.states() == ["active"] * 3)
        # Nothing else changes that brings new maps.
        for path in ("b/default", "nodeServices"):
            for node in (*cluster.nodes, late):
                eventually(f"{path} leaves it out", lambda node=node, path=path: leaves_out(node, path, late), seconds=10)


def leaves_out(node, path, gone):
    """Whether a node's map sends no client to one that is gone, and names the node that tells it."""
    listed = json.loads(must(node, "GET", f"/pools/default/{path}"))["nodesExt"]
    this = [one["services"]["mgmt"] for one in listed if one["thisNode"]]
    equal(this, [node.ports["http"]], "the node that tells it")
    return gone.kv not in [one["services"].get("kv") for one in listed]


@suite.test
def members_of_etcd_die_and_the_cluster_does_not_notice(_):
    with Etcd(3) as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        go_on(client, 1)
        before = client.rows()
        for hurt, heal in ((etcd.kill, etcd.spawn), (etcd.pause, etcd.resume)):
            leader = etcd.leader()
            hurt(leader)
            go_on(client, 3 * LEASE_SECONDS)
            heal(leader)
            etcd.ready()
            nothing_moved(cluster, before)


@suite.test
def f4_etcd_is_away_and_data_goes_on(_):
    with Etcd(3) as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        go_on(client, 1)
        before = client.rows()
        for member in range(3):
            etcd.kill(member)
        go_on(client, 3 * LEASE_SECONDS)
        for member in range(3):
            etcd.spawn(member)
        etcd.ready()
        go_on(client, 2 * LEASE_SECONDS)
        nothing_moved(cluster, before)
        # Definitions go on as well.
        cluster.make_bucket("another")


@suite.test
def f4_etcd_has_no_space_and_data_goes_on(_):
    with Etcd(flags=["--quota-backend-bytes", str(4 << 20)]) as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        go_on(client, 1)
        before = client.rows()
        take_all_space(etcd)
        go_on(client, 3 * LEASE_SECONDS)
        nothing_moved(cluster, before)
        status, _, why = call(
            cluster.nodes[0], "POST", "/pools/default/buckets", name="another", ramQuotaMB="100", replicaNumber="1"
        )
        equal(status, 503, "a change without space")
        holds(why, "database space exceeded")
        told = ("etcd does not carry out requests of a", "database space exceeded")
        # A status is as old as the last tick of its node.
        eventually("it is told", lambda: all(text in cluster.order("status") for text in told))
        give_back(etcd)
        go_on(client, LEASE_SECONDS)
        nothing_moved(cluster, before)
        cluster.make_bucket("another")


@suite.test
def the_login_of_etcd_changes_while_nodes_run(_):
    with Etcd() as etcd:
        etcd.call("/v3/auth/user/add", {"name": "root", "password": "first"})
        etcd.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        etcd.call("/v3/auth/enable", {})
        file = etcd.home / "password"
        file.write_text("first\n")
        log_in(etcd, "first")
        login = ("--etcd-username", "root", "--etcd-password-file", str(file))
        with Cluster(etcd, "guarded", lease=LEASE_SECONDS, flags=[login] * 3, init=login) as cluster:
            cluster.make_bucket()
            client = cluster.client()
            etcd.call("/v3/auth/user/changepw", {"name": "root", "password": "second"})
            status, _, why = call(cluster.nodes[0], "POST", SCOPES, name="early")
            equal(status, 503, "a change with the old password")
            holds(why, "authentication failed")
            file.write_text("second\n")
            for node in cluster.nodes:
                node.process.send_signal(signal.SIGHUP)
            log_in(etcd, "second")
            eventually("nodes log in again", lambda: must(cluster.nodes[0], "POST", SCOPES, name="shop"))
            go_on(client, 2 * LEASE_SECONDS)
            assert "need a restart" not in cluster.nodes[0].log.read_text(), "the password needs no restart"


@suite.test
def a_certificate_of_etcd_that_expired_is_told_once_and_data_goes_on(_):
    with tempfile.TemporaryDirectory(prefix="settee-certificates-") as path:
        authority, host = Authority.made(Path(path)), "subjectAltName=IP:127.0.0.1"
        trusts = ("--etcd-ca", str(authority.certificate))
        etcd = Etcd(certificate=authority.sign("etcd", extension=host))
        etcd.trusted = str(authority.certificate)
        with etcd, Cluster(etcd, "expired", nodes=2, lease=LEASE_SECONDS, flags=[trusts] * 2, init=trusts) as cluster:
            cluster.make_bucket()
            client = cluster.client()
            etcd.kill(0)
            authority.sign("etcd", serial=2, extension=host, days=0)
            etcd.spawn(0)
            told = "invalid peer certificate: it has expired"

            def lasts():
                status = cluster.status()
                return told in (status["etcd_problem"] or "") and status["etcd_silent_ms"] > 4000 * LEASE_SECONDS

            eventually("it is told", lasts, seconds=60)
            go_on(client, LEASE_SECONDS)
            for node in cluster.nodes:
                lines = [line for line in node.log.read_text().splitlines() if told in line]
                equal(len(lines), 1, f"lines of the log: {lines}")
            etcd.kill(0)
            authority.sign("etcd", serial=3, extension=host)
            etcd.spawn(0)
            etcd.ready()
            eventually("changes are made", lambda: must(cluster.nodes[0], "POST", SCOPES, name="shop"))


@suite.test
def a_change_is_made_once_although_the_answer_of_etcd_is_lost(world):
    with LinkedCluster(world.etcd, world.name()) as cluster, ThreadPoolExecutor() as pool:
        cluster.make_bucket()
        buckets = "/pools/default/buckets"

        def agreed(name):
            return any(name in value for value in world.etcd.get("/settee/").values())

        for method, path, name, form in (
            ("POST", SCOPES, "once-made", {"name": "once-made"}),
            ("DELETE", f"{SCOPES}/once-made", "once-made", {}),
            ("POST", buckets, "made-once", {"name": "made-once", "ramQuotaMB": "100", "replicaNumber": "1"}),
            ("DELETE", f"{buckets}/made-once", "made-once", {}),
        ):
            cluster.links.cut("etcd", "a")
            change = pool.submit(must, cluster.nodes[0], method, path, **form)
            eventually("etcd has the change", lambda: agreed(name) == (method == "POST"))
            cluster.links.lose("etcd", "a")
            change.result(30)


def log_in(etcd, password):
    """The stories' own calls of etcd are those of root."""
    etcd.token = None
    etcd.token = etcd.call("/v3/auth/authenticate", {"name": "root", "password": password})["token"]


def take_all_space(etcd):
    """Takes all the space of an etcd."""
    for number in range(16):
        try:
            etcd.put(f"/other/{number}", "x" * (1 << 20))
        except Refused:
            return
    raise AssertionError("etcd has more space than it should")


def give_back(etcd):
    """Gives it back, as etcd's manual says."""
    gone = etcd.call("/v3/kv/deleterange", {"key": encode("/other/"), "range_end": encode("/other0")})
    etcd.call("/v3/kv/compaction", {"revision": gone["header"]["revision"]})
    etcd.call("/v3/maintenance/defragment", {})
    for alarm in etcd.call("/v3/maintenance/alarm", {}).get("alarms", []):
        etcd.call("/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})


@suite.test
def f1_the_active_dies_and_its_vbuckets_are_served_elsewhere(world):
    cluster = settled(world)
    client, safe = cluster.client(), cluster.client("safe")
    fill(safe)
    killed = cluster.nodes[1]
    killed.kill()
    client, safe = cluster.client(), cluster.client("safe")
    for one in (client, safe):
        is_served(one)
        assert all(row[0] != killed.kv for row in one.rows()), one.rows()
    has_all(safe)
    equal(sorted(cluster.states()), ["active", "active", "failed"], "states")
    go_on(safe, 1)
    killed.start()
    recovered(cluster, "b")
    for one in (cluster.client(), cluster.client("safe")):
        go_on(one, 1)


IMPOSSIBLE, DURABLE = 0xA1, {"framing": MAJORITY}
# A durable write that is neither made nor refused is answered by its timeout after 10 s.
AT_ONCE_SECONDS = 2


@suite.test
def f1_a_node_with_replicas_only_dies_and_durable_writes_wait_for_nothing(world):
    cluster = settled(world)
    node = cluster.nodes[2]
    node.kill()
    client, safe = cluster.client(), cluster.client("safe")
    for one in (client, safe):
        is_served(one)
    node.start()
    eventually("it came back", lambda: cluster.states()[2] == "new", seconds=30)
    cluster.order("recover", "c")
    client, safe = cluster.client(), cluster.client("safe")
    go_on(client, 1)
    failovers = json.loads(cluster.order("status", "--json"))["failovers"]
    its = [key for key in KEYS if node.kv in client.row(key)]
    assert its and all(row[0] != node.kv for row in client.rows()), client.rows()
    node.kill()
    eventually("it is marked", lambda: cluster.states()[2] == "failed", seconds=FAILOVER_SECONDS)
    client, safe = cluster.client(), cluster.client("safe")
    for key in its:
        client.until(IMPOSSIBLE, SET, key, bytes(8), key, seconds=AT_ONCE_SECONDS, **DURABLE)
        client.set(key, key, seconds=AT_ONCE_SECONDS)
    fill(safe, seconds=AT_ONCE_SECONDS)
    equal(json.loads(cluster.order("status", "--json"))["failovers"], failovers, "failovers")
    node.start()
    eventually("it came back", lambda: cluster.states()[2] == "new", seconds=30)
    cluster.order("recover", "c")
    client = cluster.client()
    for key in its:
        client.set(key, key, durable=True)


def recovered(cluster, name):
    """A node that came back is counted on again."""
    at = ord(name) - ord("a")
    eventually("it came back", lambda: cluster.states()[at] == "new", seconds=30)
    cluster.order("recover", name)
    eventually("it is counted on again", lambda: equal(cluster.states(), ["active"] * 3, "states") is None, seconds=30)


def settled(world):
    """Three nodes with the buckets `default` and `safe`; the same for each story that asks."""
    if world.three is None:
        world.three = three_nodes(world.etcd, world.name()).__enter__()
        world.three.make_bucket()
        # Two of three copies are a majority that a dead node leaves.
        world.three.make_bucket("safe", replicas=2)
    share_out(world.three)
    return world.three


def share_out(cluster):
    """Every node is active for vBuckets of each bucket, whatever the stories before did."""

    def shared():
        for client in (cluster.client(), cluster.client("safe")):
            client.refresh()
            if {row[0] for row in client.rows()} != {node.kv for node in cluster.nodes}:
                return False
        return json.loads(cluster.order("status", "--json"))["rebalance"] == "idle"

    if not shared():
        cluster.order("rebalance")
        eventually("each node has its share", shared, seconds=60)


@suite.test
def f5_etcd_lost_its_quorum_and_a_node_dies(_):
    with Etcd(3) as etcd, three_nodes(etcd) as cluster:
        cluster.make_bucket()
        client = cluster.client()
        fill(client)
        leader = etcd.leader()
        lost = [member for member in range(3) if member != leader]
        for member in lost:
            etcd.kill(member)
        killed = cluster.nodes[2]
        killed.kill()
        client = cluster.client()
        client.refresh()
        rows = client.rows()
        pairs = {cluster.nodes[0].kv, cluster.nodes[1].kv}
        served = [key for key in KEYS if set(client.row(key)) == pairs]
        waiting = [key for key in KEYS if client.row(key)[0] == killed.kv]
        assert served and waiting, rows
        end = time.monotonic() + 3 * LEASE_SECONDS
        while time.monotonic() < end:
            for key in served:
                client.set(key, key, durable=True, seconds=1.5)
        client.refresh()
        equal(client.rows(), rows, "map")
        for member in lost:
            etcd.spawn(member)
        etcd.ready()
        is_served(client)
        has_all(client)


def is_away(cluster, name):
    return not seen(cluster, name)["alive"]


def state_of(cluster, name):
    return seen(cluster, name)["state"]


def seen(cluster, name):
    """What the first node tells of a node."""
    nodes = json.loads(cluster.tried("nodes", "--json")[1])
    return next(node for node in nodes if node["name"] == name)


@suite.test
def f16_the_active_and_a_replica_die_and_an_operator_gives_them_up(world):
    with three_nodes(world.etcd, world.name()) as cluster:
        cluster.make_bucket(replicas=2)
        client = cluster.client()
        fill(client)
        epoch = client.refresh()["revEpoch"]
        # All that is left is on the first node, and the last writes of it are not there.
        killed = cluster.nodes[1:]
        for node in killed:
            node.kill()
        for name in ("b", "c"):
            eventually(f"{name} is away", lambda at=name: is_away(cluster, at), seconds=30)
        controlled = lambda: cluster.status()["controller"] == "a"  # noqa: E731
        eventually("there is a controller", controlled, seconds=30)
        waits = [vbucket for vbucket, row in enumerate(client.rows()) if row[0] != cluster.nodes[0].kv]
        code, told, error = cluster.tried("failover", "b")
        equal((code, told), (75, ""), "failover")
        holds(error, "failover b --unsafe", "lose durable writes", "bucket default", "lack 1 copies", "b, c")
        code, told, error = cluster.tried("failover", "a", "--unsafe")
        equal((code, told), (65, ""), "failover of a node that runs")
        holds(error, "renews its lease")
        promoted = {}
        for name in ("b", "c"):
            code, told, error = cluster.tried("failover", name, "--unsafe", "--json")
            equal(code, 0, f"failover --unsafe ({error})")
            holds(error, "lose durable writes", "b is given up: not heard for", "c is given up")
            told = json.loads(told)
            promoted |= {one["vbucket"]: one for one in told["promoted"]}
        equal(sorted(promoted), waits, "promoted")
        equal({one["node"] for one in promoted.values()}, {"a"}, "by")
        client = cluster.client()
        is_served(client)
        has_all(client)
        equal(client.refresh()["revEpoch"], epoch + 2, "epoch")
        fill(client, b"newer", durable=False)
        # An order is obeyed once.
        code, told, error = cluster.tried("failover", "b", "--unsafe")
        equal((code, told), (65, ""), "once more")
        for node in killed:
            node.start()
        for name in ("b", "c"):
            cluster.order("recover", name)
            eventually(f"{name} came back", lambda at=name: state_of(cluster, at) in ("new", "active"), seconds=30)
        client = cluster.client()
        for key in KEYS:
            equal(client.get(key), b"newer", "value")
            client.set(key, b"durable", durable=True)
