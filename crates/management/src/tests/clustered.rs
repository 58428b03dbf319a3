//! Tests of a node of a cluster, over HTTP.

use std::sync::atomic::Ordering;

use cluster::agreed::{NodeState, Orders, Rebalance};
use cluster::{NodeId, Order};
use registry::cluster::MemberStatus;
use registry::fake_member::{FakeMember, row, written};

use serde_json::json;

use super::*;

/// Returns node 1 of three, with the bucket `travel` on the first two; node 3 is gone.
fn clustered() -> (Fixture, Arc<FakeMember>) {
    let fixture = Fixture::new();
    let member = FakeMember::new(1);
    for id in 1..=3 {
        member.put_node(id, NodeState::Active);
    }
    member.put_bucket(0xb0, "travel", 1024, &[row(&[1, 2]), row(&[2, 1])]);
    member.put_alive(&[1, 2]);
    *member.status.lock() = MemberStatus {
        controller: Some(NodeId(2)),
        ..MemberStatus::default()
    };
    *fixture.node.member.lock() = Some(Arc::clone(&member) as _);
    (fixture, member)
}

async fn post(fixture: &Fixture, path: &str, form: &str) -> (u16, String) {
    let mut request = request(Method::POST, path);
    *request.body_mut() = Body::from(form.to_owned());
    let response = fixture.send(request).await;
    (response.status().as_u16(), text(response).await)
}

#[tokio::test]
async fn a_node_of_a_cluster_keeps_the_host_that_it_advertises() {
    let (fixture, member) = clustered();
    let host = member.described().inside.host.clone();
    let path = "/node/controller/rename";
    let same = post(&fixture, path, &format!("hostname={host}")).await;
    assert_eq!(same, (200, String::new()));
    let (status, why) = post(&fixture, path, "hostname=couch.example").await;
    assert_eq!(status, 400);
    assert!(
        why.contains(&host) && why.contains("--advertise couch.example"),
        "{why}"
    );
}

#[tokio::test]
async fn all_nodes_of_a_cluster_are_listed() {
    let (fixture, member) = clustered();
    let pool = fixture.get_json("/pools/default").await;
    assert_eq!(pool["clusterName"], "ours");
    let of = |at: usize, field: &str| pool["nodes"][at][field].clone();
    for at in 0..3 {
        assert_eq!(of(at, "hostname"), format!("10.0.0.{}:8091", at + 1));
        assert_eq!(of(at, "otpNode"), format!("n{0}@10.0.0.{0}", at + 1));
        assert_eq!(of(at, "thisNode"), at == 0);
        assert_eq!(of(at, "services"), json!(["kv"]));
        assert_eq!(of(at, "clusterMembership"), "active");
        assert!(
            of(at, "os").is_string(),
            "one client family ends without it"
        );
    }
    assert_eq!([of(1, "status"), of(2, "status")], ["healthy", "unhealthy"]);
    assert_eq!(
        (&pool["balanced"], &pool["rebalanceStatus"]),
        (&json!(true), &json!("none"))
    );
    let here = fixture.get_json("/nodes/self").await;
    assert_eq!(
        (&here["otpNode"], &here["thisNode"]),
        (&json!("n1@10.0.0.1"), &json!(true))
    );
    assert!(here["storage"]["hdd"][0]["path"].is_string());
    let list = fixture.get_json("/pools/nodes").await;
    assert_eq!(list["nodes"].as_array().map(Vec::len), Some(3));
    let bucket = fixture.get_json("/pools/default/buckets/travel").await;
    assert_eq!(bucket["nodes"].as_array().map(Vec::len), Some(2));
    let all = fixture.get_json("/pools/default/buckets").await;
    assert_eq!(all[0]["nodes"], bucket["nodes"]);
    let terse = fixture.get_json("/pools/default/terseClusterInfo").await;
    assert_eq!(terse["orchestrator"], "n2@10.0.0.2");
    let statuses = fixture.get_json("/pools/default/nodeStatuses").await;
    assert_eq!(statuses["10.0.0.3:8091"]["status"], "unhealthy");

    member.edit(|view, revision| {
        let mut node = view.nodes[&NodeId(2)].value.clone();
        (node.zone, node.state) = (1, NodeState::Failed);
        view.nodes.insert(NodeId(2), written(revision, node));
    });
    let groups = fixture.get_json("/pools/default/serverGroups").await;
    let names = [&groups["groups"][0]["name"], &groups["groups"][1]["name"]];
    assert_eq!(names, ["Zone 0", "Zone 1"]);
    let failed = &groups["groups"][1]["nodes"][0];
    assert_eq!(failed["clusterMembership"], "inactiveFailed");
    let listed = async |fixture: &Fixture| {
        let bucket = fixture.get_json("/pools/default/buckets/travel").await;
        bucket["nodes"].as_array().map(Vec::len)
    };
    assert_eq!(listed(&fixture).await, Some(2), "it is still active");
    member.put_bucket(0xb0, "travel", 1024, &[row(&[1, 2])]);
    assert_eq!(listed(&fixture).await, Some(1), "another one took over");
    let missing = fixture.get("/pools/default/buckets/none").await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_rebalance_is_shown_as_a_task() {
    let (fixture, member) = clustered();
    let task = fixture.get_json("/pools/default/tasks").await;
    assert_eq!(task[0]["status"], "notRunning");
    member.edit(|view, revision| {
        let orders = Orders {
            rebalance: Rebalance::Running,
            failovers: 2,
            ..Orders::default()
        };
        view.orders = Some(written(revision, orders));
    });
    member.status.lock().progress = Some(cluster::coordinator::Progress {
        moves_left: 256,
        ..Default::default()
    });
    let task = fixture.get_json("/pools/default/tasks").await;
    assert_eq!(
        (&task[0]["status"], &task[0]["progress"]),
        (&json!("running"), &json!(75.0))
    );
    let progress = fixture.get_json("/pools/default/rebalanceProgress").await;
    assert_eq!(progress["n3@10.0.0.3"]["progress"], 0.75);
    let failover = fixture.get_json("/settings/autoFailover").await;
    assert_eq!(
        (&failover["enabled"], &failover["count"]),
        (&json!(true), &json!(2))
    );
    let path = "/settings/autoFailover";
    assert_eq!(post(&fixture, path, "enabled=true&timeout=5").await.0, 200);
    member.edit(|view, _| {
        let meta = view.meta.as_mut().expect("a cluster has properties");
        meta.value.lease_ms = Some(2000);
    });
    assert_eq!(fixture.get_json(path).await["timeout"], 2, "the lease");
    let (status, said) = post(&fixture, path, "enabled=false").await;
    assert_eq!(status, 400);
    assert!(said.contains("fixed"), "{said}");
}

#[tokio::test]
async fn the_number_of_moves_is_that_of_the_controller() {
    let (fixture, _) = clustered();
    let shown = fixture.get_json("/settings/rebalance").await;
    let moves = cluster::Settings::default().moves_per_node;
    assert_eq!(shown["rebalanceMovesPerNode"], moves);
}

/// Marks a node as failed over by an operator.
fn fail_over(member: &FakeMember, id: u16) {
    member.put_node(id, NodeState::Failed);
    member.edit(|view, _| {
        let node = view.nodes.get_mut(&NodeId(id));
        node.expect("a node").value.failed_over = true;
    });
}

#[tokio::test]
async fn a_node_that_is_failed_over_is_shown_so_and_added_again() {
    let (fixture, member) = clustered();
    let form = "otpNode=n3%4010.0.0.3";
    fail_over(&member, 3);
    let pool = fixture.get_json("/pools/default").await;
    let entry = &pool["nodes"][2];
    assert_eq!(entry["clusterMembership"], "inactiveFailed");
    assert_eq!(entry["status"], "unhealthy");
    let (status, said) = post(&fixture, "/controller/failOver", form).await;
    assert_eq!((status, &*said), (200, ""));
    assert_eq!(*member.orders.lock(), [Order::FailOver(NodeId(3))]);
    member.orders.lock().clear();
    // The order is sent again once the node has come back.
    let comes_back = async {
        while member.orders.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        member.put_node(3, NodeState::New);
        while member.orders.lock().len() < 2 {
            tokio::task::yield_now().await;
        }
        member.put_node(3, NodeState::Active);
    };
    let (answer, ()) = tokio::join!(post(&fixture, "/controller/reAddNode", form), comes_back);
    assert_eq!((answer.0, &*answer.1), (200, ""));
    let order = Order::Recover(NodeId(3));
    assert_eq!(*member.orders.lock(), [order.clone(), order]);
    member.put_node(3, NodeState::Failed);
    let (status, said) = post(&fixture, "/controller/reAddNode", form).await;
    assert_eq!(status, 400);
    assert!(said.contains("start it first"), "{said}");
}

#[tokio::test]
async fn a_graceful_failover_begins_if_other_copies_can_take_over() {
    let (fixture, member) = clustered();
    let path = "/controller/startGracefulFailover";
    let (status, said) = post(&fixture, path, "otpNode=n3%4010.0.0.3").await;
    assert_eq!(status, 400);
    assert!(said.contains("no member that runs"), "{said}");
    let statuses = fixture.get_json("/pools/default/nodeStatuses").await;
    let possible = |host: &str| statuses[host]["gracefulFailoverPossible"].clone();
    assert_eq!(
        (possible("10.0.0.2:8091"), possible("10.0.0.3:8091")),
        (json!(true), json!(false))
    );
    member.edit(|view, _| {
        let node = view.nodes.get_mut(&NodeId(2));
        node.expect("a node").value.hands_over = true;
    });
    let (status, said) = post(&fixture, path, "otpNode=n2%4010.0.0.2").await;
    assert_eq!((status, &*said), (200, ""));
    assert_eq!(
        *member.orders.lock(),
        [Order::FailOverGracefully(NodeId(2))]
    );
    let pool = fixture.get_json("/pools/default").await;
    assert_eq!(pool["nodes"][1]["clusterMembership"], "active");
}

#[tokio::test]
async fn an_unsafe_failover_gives_up_missing_copies() {
    let (fixture, member) = clustered();
    fail_over(&member, 3);
    member.orders.lock().clear();
    let (node, lost) = (NodeId(3), vec![NodeId(3)]);
    let form = "otpNode=n3%4010.0.0.3&allowUnsafe=true";
    let (status, said) = post(&fixture, "/controller/failOver", form).await;
    assert_eq!((status, &*said), (200, ""));
    let (epoch, revision) = (1, member.view.lock().revision);
    let order = Order::FailOverUnsafe {
        node,
        epoch,
        revision,
        lost,
    };
    assert_eq!(*member.orders.lock(), [order]);
}

#[tokio::test]
async fn orders_go_to_the_controller() {
    let (fixture, member) = clustered();
    let obey = |edit: fn(&mut cluster::agreed::View, u64)| {
        member.edit(edit);
        member.orders.lock().clear();
    };
    // The effect of the order is there before the order, so that the call does not wait.
    obey(|view, revision| {
        let running = Orders {
            rebalance: Rebalance::Running,
            ..Orders::default()
        };
        view.orders = Some(written(revision, running));
    });
    let all = "knownNodes=n1%4010.0.0.1%2Cn2%4010.0.0.2%2Cn3%4010.0.0.3&ejectedNodes=";
    let (status, said) = post(&fixture, "/controller/rebalance", all).await;
    assert_eq!((status, &*said), (200, ""));
    assert_eq!(*member.orders.lock(), [Order::Rebalance]);
    let some = "knownNodes=n1%4010.0.0.1&ejectedNodes=";
    let (status, said) = post(&fixture, "/controller/rebalance", some).await;
    assert_eq!((status, &*said), (400, r#"{"mismatch":1}"#));
    for (path, state, order) in [("reAddNode", NodeState::Active, Order::Recover(NodeId(3)))] {
        member.put_node(3, state);
        member.orders.lock().clear();
        let path = format!("/controller/{path}");
        let (status, said) = post(&fixture, &path, "otpNode=n3%4010.0.0.3").await;
        assert_eq!((status, &*said), (200, ""), "{path}");
        assert_eq!(*member.orders.lock(), [order]);
    }
    member.orders.lock().clear();
    for (path, form, part) in [
        ("failOver", "otpNode=n9", "n9 is no node"),
        ("failOver", "", "otpNode must be supplied"),
        ("failOver", "otpNode=n2&allowUnsafe=maybe", "true, false"),
        ("ejectNode", "otpNode=n2", "has copies"),
        ("addNode", "hostname=x", "settee serve --cluster"),
        ("setRecoveryType", "otpNode=n2&recoveryType=full", "delta"),
        ("rebalance", &format!("{all}n1,n2"), "must stay"),
    ] {
        let (status, said) = post(&fixture, &format!("/controller/{path}"), form).await;
        assert_eq!(status, 400, "{path} {form}: {said}");
        assert!(said.contains(part), "{path} {form}: {said}");
    }
    assert_eq!(*member.orders.lock(), []);
    let delta = "otpNode=n2&recoveryType=delta";
    assert_eq!(
        post(&fixture, "/controller/setRecoveryType", delta).await.0,
        200
    );
    member.status.lock().controller = None;
    let (status, said) = post(&fixture, "/controller/stopRebalance", "").await;
    assert_eq!(status, 503, "{said}");
    assert!(said.contains("no controller"), "{said}");
}

#[tokio::test]
async fn a_bucket_that_this_node_is_about_to_make_is_waited_for() {
    let (fixture, member) = clustered();
    for path in ["/pools/default/b/travel", "/pools/default/buckets/travel"] {
        *fixture.node.bucket_is_gone.lock() = true;
        let before = member.reads.load(Ordering::Relaxed);
        let made = async {
            while member.reads.load(Ordering::Relaxed) == before {
                tokio::task::yield_now().await;
            }
            *fixture.node.bucket_is_gone.lock() = false;
            fixture.node.rev.send_modify(|rev| *rev += 1);
        };
        let (answer, ()) = tokio::join!(fixture.get(path), made);
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
    }
    let none = fixture.get("/pools/default/b/other").await;
    assert_eq!(none.status(), StatusCode::NOT_FOUND, "no node has it");
    *fixture.node.bucket_is_gone.lock() = true;
    time::pause();
    let late = fixture.get("/pools/default/b/travel").await;
    assert_eq!(late.status(), StatusCode::NOT_FOUND, "not made in time");
}
