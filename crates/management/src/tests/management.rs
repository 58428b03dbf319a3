//! What scripts and tools ask that set a cluster up or look at it.

use super::*;

/// A call with a form as its body; returns the status and the text of the answer.
async fn call(fixture: &Fixture, method: Method, path: &str, form: &'static str) -> (u16, String) {
    let mut request = request(method, path);
    *request.body_mut() = Body::from(form);
    let response = fixture.send(request).await;
    let status = response.status().as_u16();
    (status, text(response).await)
}

#[tokio::test]
async fn pools_say_in_brief_that_there_is_a_node() {
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
async fn setting_up_what_is_so_is_done_and_the_rest_is_refused() {
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
        (
            "/clusterInit",
            "services=kv&memoryQuota=256&username=Administrator&password=pass%3Aword&port=SAME",
            200,
            "newBaseUri",
        ),
        ("/clusterInit", kv, 400, "--password"),
        (
            "/node/controller/setupAlternateAddresses/external",
            "hostname=h",
            501,
            "not supported",
        ),
    ] {
        let (got, said) = call(&fixture, Method::POST, path, form).await;
        assert_eq!(got, status, "{path} {form}: {said}");
        assert!(said.contains(part), "{path} {form}: {said}");
    }
}

#[tokio::test]
async fn a_cluster_has_the_name_and_the_quota_that_were_given() {
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
async fn nobody_else_may_log_in_and_clients_are_told_so() {
    let fixture = Fixture::new();
    for path in [
        "/settings/rbac/users",
        "/settings/rbac/users/local",
        "/settings/rbac/users/external",
        "/settings/rbac/groups",
    ] {
        let answer = fixture.get_json(path).await;
        assert_eq!(answer, serde_json::json!([]), "{path}");
    }
    let roles = fixture.get_json("/settings/rbac/roles").await;
    assert_eq!(roles[0]["role"], "admin");
    assert_eq!(roles.as_array().unwrap().len(), 1);
    let one = "/settings/rbac/users/local/u";
    for (method, path, status, part) in [
        (Method::GET, one, 404, "Unknown user."),
        (Method::DELETE, one, 404, "Unknown user."),
        (Method::PUT, one, 400, "only user"),
        (Method::PATCH, one, 400, "only user"),
        (
            Method::GET,
            "/settings/rbac/groups/g",
            404,
            "Unknown group.",
        ),
        (Method::PUT, "/settings/rbac/groups/g", 400, "only user"),
        (Method::GET, "/settings/rbac/users/odd", 404, "domain"),
        (
            Method::POST,
            "/controller/changePassword",
            400,
            "--password",
        ),
    ] {
        let (got, said) = call(&fixture, method.clone(), path, "password=x").await;
        assert_eq!(got, status, "{method} {path}: {said}");
        assert!(said.contains(part), "{method} {path}: {said}");
    }
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
    let gone = fixture.get("/pools/default/buckets/nope/stats").await;
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    let node = fixture.get_json("/nodes/self").await;
    assert_is_a_node(&node);
    assert_eq!(node["memoryQuota"], 512);
    let tasks = fixture.get_json("/pools/default/tasks").await;
    assert_eq!(tasks[0]["status"], "notRunning");
}
