//! Tests of requests of scripts and tools that set up or monitor a cluster.

use super::*;

/// Sends a form; returns the status and the text of the answer.
async fn call(fixture: &Fixture, method: Method, path: &str, form: &'static str) -> (u16, String) {
    let mut request = request(method, path);
    *request.body_mut() = Body::from(form);
    let response = fixture.send(request).await;
    let status = response.status().as_u16();
    (status, text(response).await)
}

#[tokio::test]
async fn pools_answer_briefly_without_credentials() {
    let fixture = Fixture::new();
    let mut brief = request(Method::GET, "/pools");
    brief.headers_mut().remove(AUTHORIZATION);
    let response = fixture.send(brief).await;
    assert_eq!(response.status(), StatusCode::OK);
    let answer: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(answer["implementationVersion"], "7.6.0-1-community");
    assert_eq!(answer["isAdminCreds"], false);
    assert_eq!(answer["uuid"], Value::Null);
    let mut wrong = request(Method::GET, "/pools");
    let bad = credentials("Administrator:nope").parse().unwrap();
    wrong.headers_mut().insert(AUTHORIZATION, bad);
    assert_eq!(fixture.send(wrong).await.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn setup_of_the_current_state_succeeds_and_the_rest_is_refused() {
    let fixture = Fixture::new();
    let (admin, kv) = (
        "username=Administrator&password=pass%3Aword&port=8091",
        "services=kv",
    );
    for (path, form, status, part) in [
        ("/node/controller/rename", "hostname=couch.example", 200, ""),
        ("/node/controller/rename", "", 400, "hostname"),
        ("/node/controller/setupServices", kv, 200, ""),
        (
            "/node/controller/setupServices",
            "services=kv%2Cn1ql",
            400,
            "n1ql",
        ),
        ("/node/controller/setupServices", "", 400, "kv"),
        ("/pools/default", "memoryQuota=512", 200, ""),
        ("/pools/default", "memoryQuota=much", 400, "integer"),
        ("/pools/default", "ftsMemoryQuota=512", 400, "kv only"),
        (
            "/pools/default",
            "memoryQuota=255",
            400,
            r#"{"errors":{"memoryQuota":"#,
        ),
        (
            "/pools/default",
            "nonsense=1",
            400,
            r#"{"errors":{"nonsense":"#,
        ),
        (
            "/clusterInit",
            "nonsense=1",
            400,
            r#""nonsense":"Unsupported key""#,
        ),
        ("/settings/web", admin, 200, "http://couch.example:8091/"),
        (
            "/settings/web",
            "username=other&password=pass%3Aword&port=SAME",
            400,
            "--username",
        ),
        (
            "/settings/web",
            "username=Administrator&password=pass%3Aword&port=80",
            400,
            "--http-port",
        ),
        ("/settings/stats", "sendStats=false", 200, ""),
        ("/settings/stats", "sendStats=true", 400, "nothing"),
        ("/settings/stats", "sendStats=maybe", 400, "true, false"),
        (
            "/clusterInit",
            "services=kv&memoryQuota=256&username=Administrator&password=pass%3Aword&port=SAME",
            200,
            "newBaseUri",
        ),
        ("/clusterInit", kv, 400, "--password"),
    ] {
        let (got, said) = call(&fixture, Method::POST, path, form).await;
        assert_eq!(got, status, "{path} {form}: {said}");
        assert!(said.contains(part), "{path} {form}: {said}");
    }
}

#[tokio::test]
async fn a_cluster_has_the_requested_name_and_quota() {
    let fixture = Fixture::new();
    let form = "clusterName=my%20couch&memoryQuota=700";
    let (status, _) = call(&fixture, Method::POST, "/pools/default", form).await;
    assert_eq!(status, 200);
    let pool = fixture.get_json("/pools/default").await;
    assert_eq!(
        (&pool["clusterName"], &pool["memoryQuota"]),
        (&"my couch".into(), &700.into())
    );
    let ram = &pool["storageTotals"]["ram"];
    assert_eq!(
        (&ram["quotaTotal"], &ram["quotaUsed"]),
        (&(700 << 20).into(), &(512 << 20).into())
    );
    assert_eq!(
        fixture.get_json("/pools/nodes").await["clusterName"],
        "my couch"
    );
}

#[tokio::test]
async fn exporters_find_figures_of_a_bucket_and_of_the_node() {
    let fixture = Fixture::new();
    let stats = fixture
        .get_json("/pools/default/buckets/travel/stats")
        .await;
    let samples = &stats["op"]["samples"];
    assert_eq!(samples["curr_items"], serde_json::json!([3]));
    assert_eq!(samples["ops"], serde_json::json!([1.5]));
    for (name, values) in samples.as_object().unwrap() {
        assert_eq!(values.as_array().unwrap().len(), 1, "{name}");
    }
    let one = "/pools/default/buckets/travel/stats/curr_items";
    let told = fixture.get_json(one).await;
    let by_node = told["nodeStats"].as_object().unwrap();
    assert_eq!(
        by_node.values().collect::<Vec<_>>(),
        [&serde_json::json!([3])]
    );
    assert!(by_node.keys().all(|node| node.contains(':')), "{told}");
    for path in ["nope/stats", "nope/stats/curr_items", "travel/stats/nope"] {
        let gone = format!("/pools/default/buckets/{path}");
        assert_eq!(fixture.get(&gone).await.status(), StatusCode::NOT_FOUND);
    }
    let node = fixture.get_json("/nodes/self").await;
    assert_is_a_node(&node);
    assert_eq!(node["memoryQuota"], 512);
    let tasks = fixture.get_json("/pools/default/tasks").await;
    assert_eq!(tasks[0]["status"], "notRunning");
}

/// Checks the figures that Telegraf, the exporters and Datadog's check look for.
#[tokio::test]
async fn monitoring_finds_its_figures() {
    let fixture = Fixture::new();
    let pool = fixture.get_json("/pools/default").await;
    let node = &pool["nodes"][0];
    assert_eq!(
        (&node["memoryTotal"], &node["memoryFree"]),
        (&1000.into(), &400.into())
    );
    assert_eq!(node["systemStats"]["swap_used"], 4);
    let figures = &node["interestingStats"];
    let shown = [
        "curr_items",
        "curr_items_tot",
        "ops",
        "cmd_get",
        "couch_docs_data_size",
    ];
    // Some readers parse whole numbers only.
    assert_eq!(
        shown.map(|name| figures[name].to_string()),
        ["3", "5", "2", "8", "10"]
    );
    assert_eq!(node["systemStats"]["cpu_utilization_rate"], 16);
    assert_eq!(pool["storageTotals"]["hdd"]["free"], 1500);
    for path in ["/pools/nodes", "/pools/nodes/"] {
        assert_eq!(fixture.get_json(path).await["nodes"][0], *node, "{path}");
    }
    let own = fixture.get_json("/nodes/self").await;
    assert_eq!(own["interestingStats"], *figures);
    assert_eq!(node["serverGroup"], "Group 1");

    let bucket = fixture.get_json("/pools/default/buckets/travel").await;
    let stats = fixture
        .get_json(bucket["stats"]["uri"].as_str().unwrap())
        .await;
    let samples = &stats["op"]["samples"];
    assert_eq!(samples["vb_active_num"][0], 1024);
    assert_eq!(samples["cpu_user_rate"][0], 12.5);
    assert_eq!(samples["hibernated_requests"][0], 0);
    assert_eq!(samples["curr_items"][0], 3);
    let list = bucket["stats"]["nodeStatsListURI"].as_str().unwrap();
    let nodes = fixture.get_json(list).await;
    let uri = nodes["servers"][0]["stats"]["uri"].as_str().unwrap();
    assert_eq!(fixture.get_json(uri).await["op"], stats["op"]);
}

#[tokio::test]
async fn settings_of_the_node_with_a_fixed_value() {
    let fixture = Fixture::new();
    let compaction = fixture.get_json("/settings/autoCompaction").await;
    assert_eq!(compaction["purgeInterval"], 3.0);
    let form = "parallelDBAndViewCompaction=true&purgeInterval=0.5";
    let path = "/controller/setAutoCompaction";
    assert_eq!(call(&fixture, Method::POST, path, form).await.0, 200);
    let compaction = fixture.get_json("/settings/autoCompaction").await;
    assert_eq!(compaction["purgeInterval"], 0.5);
    let parallel = &compaction["autoCompactionSettings"]["parallelDBAndViewCompaction"];
    assert_eq!(*parallel, true);
    assert_eq!(
        fixture.get_json("/settings/autoFailover").await["enabled"],
        false
    );
    let progress = fixture.get_json("/pools/default/rebalanceProgress").await;
    assert_eq!(progress["status"], "none");
    for (path, form, status) in [
        (
            "/settings/autoCompaction",
            "parallelDBAndViewCompaction=false",
            200,
        ),
        (
            "/settings/autoCompaction",
            "parallelDBAndViewCompaction=maybe",
            400,
        ),
        ("/settings/autoCompaction", "purgeInterval=1", 400),
        ("/settings/autoFailover", "enabled=false", 200),
        ("/settings/autoFailover", "enabled=true&timeout=120", 400),
    ] {
        let answer = call(&fixture, Method::POST, path, form).await;
        assert_eq!(answer.0, status, "{path} {form}");
    }
}

#[tokio::test]
async fn an_alternate_address_is_set_and_removed() {
    let fixture = Fixture::new();
    let path = "/node/controller/setupAlternateAddresses/external";
    let external = || fixture.node.cluster.lock().external.clone();
    for (form, wrong) in [
        ("hostname=a%20b&kv=1", "hostname"),
        ("kv=1", "hostname"),
        ("hostname=h&kv=0", "kv"),
        ("hostname=h&mgmt=70000", "mgmt"),
        ("hostname=h&n1ql=8093", "n1ql"),
    ] {
        let (status, said) = call(&fixture, Method::PUT, path, form).await;
        assert_eq!(status, 400, "{form}");
        let said: Value = serde_json::from_str(&said).unwrap();
        assert!(said["errors"][wrong].is_string(), "{form}: {said}");
        assert_eq!(external(), None);
    }
    let form = "hostname=outside&kv=31210&mgmt=31091&capi=31092";
    assert_eq!(call(&fixture, Method::PUT, path, form).await.0, 200);
    let expected = AlternateAddress {
        hostname: "outside".into(),
        ports: [("kv".to_owned(), 31_210), ("mgmt".to_owned(), 31_091)].into(),
    };
    assert_eq!(external(), Some(expected));
    assert_eq!(call(&fixture, Method::DELETE, path, "").await.0, 200);
    assert_eq!(external(), None);
}

#[tokio::test]
async fn settings_that_cannot_be_written_are_the_nodes_failure() {
    let fixture = Fixture::new();
    *fixture.node.stands_in.lock() = true;
    *fixture.node.disk_error.lock() = Some("the disk is full".into());
    let external = "/node/controller/setupAlternateAddresses/external";
    for (method, path, form) in [
        (Method::POST, "/pools/default", "clusterName=x"),
        (
            Method::POST,
            "/settings/autoCompaction",
            "parallelDBAndViewCompaction=true",
        ),
        (
            Method::POST,
            "/settings/clientCertAuth",
            r#"{"state":"disable"}"#,
        ),
        (Method::PUT, external, "hostname=outside"),
        (Method::DELETE, external, ""),
        (
            Method::POST,
            "/node/controller/setupServices",
            "services=kv,index",
        ),
        (
            Method::POST,
            "/clusterInit",
            "clusterName=x&username=ada&password=secret1&port=SAME",
        ),
    ] {
        let (status, said) = call(&fixture, method.clone(), path, form).await;
        assert_eq!(status, 500, "{method} {path}: {said}");
        assert!(said.contains("the disk is full"), "{path}: {said}");
    }
    assert_eq!(*fixture.node.cluster.lock(), ClusterSettings::default());
}

/// A setting with the current value is accepted; others are refused with a reason.
#[tokio::test]
async fn tools_set_current_values_and_get_reasons_for_refusals() {
    let fixture = Fixture::new();
    let cases = [
        ("/settings/alerts", "enabled=false", 200, ""),
        ("/settings/alerts", "enabled=true", 400, "no mails"),
        ("/settings/passwordPolicy", "minLength=6", 200, ""),
        (
            "/settings/passwordPolicy",
            "minLength=9",
            400,
            "six characters",
        ),
        ("/settings/security", "disableUIOverHttp=true", 200, ""),
        ("/settings/security", "tlsMinVersion=tlsv1.3", 400, "TLS"),
        (
            "/controller/setAutoCompaction",
            "parallelDBAndViewCompaction=false",
            200,
            "",
        ),
        (
            "/controller/setAutoCompaction",
            "databaseFragmentationThreshold%5Bpercentage%5D=30",
            400,
            "is missing",
        ),
        (
            "/nodes/self/controller/settings",
            "path=%2Fdata&index_path=%2Fdata",
            200,
            "",
        ),
        (
            "/nodes/self/controller/settings",
            "path=%2Felsewhere",
            400,
            "--data-dir",
        ),
        (
            "/node/controller/setupNetConfig",
            "afamily=ipv4&nodeEncryption=off",
            200,
            "",
        ),
        (
            "/node/controller/setupNetConfig",
            "nodeEncryption=on",
            400,
            "listens where",
        ),
        ("/settings/ldap", "hosts=x", 400, "LDAP"),
        ("/settings/replications", "", 400, "settee replicate"),
        (
            "/pools/default/remoteClusters",
            "name=x",
            400,
            "settee replicate",
        ),
        ("/controller/rebalance", "", 400, "settee promote"),
        ("/settings/querySettings", "", 400, "no such service"),
    ];
    for (path, form, status, part) in cases {
        let (got, said) = call(&fixture, Method::POST, path, form).await;
        assert_eq!(got, status, "{path} {form}: {said}");
        assert!(said.contains(part), "{path} {form}: {said}");
    }
}

#[tokio::test]
async fn tools_read_the_state_of_a_node() {
    let fixture = Fixture::new();
    let group = &fixture.get_json("/pools/default/serverGroups").await["groups"][0];
    assert_eq!(group["name"], "Group 1");
    assert_is_a_node(&group["nodes"][0]);
    let brief = fixture.get_json("/pools/default/terseClusterInfo").await;
    assert_eq!(
        (&brief["clusterUUID"], &brief["isBalanced"]),
        (&UUID.into(), &true.into())
    );
    let own = fixture.get_json("/nodes/self").await;
    assert_eq!(own["storage"]["hdd"][0]["path"], "/data");
    for path in [
        "/settings/alerts",
        "/settings/autoReprovision",
        "/settings/rebalance",
        "/versions",
    ] {
        assert!(fixture.get_json(path).await.is_object(), "{path}");
    }
}
