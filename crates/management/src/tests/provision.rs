//! Tests of a node that waits for its administrator, and of stand-ins for services.

use super::users::{ADMIN, call, get};
use super::*;
use crate::stand_in;

const ADA: &str = "ada:secret1";
const NO_NODE: &str = "nobody:at-all";
const WEB: &str = "/settings/web";

/// Returns a node that was started without an administrator.
fn open_node() -> Fixture {
    let fixture = Fixture::new();
    *fixture.node.stands_in.lock() = true;
    fixture
}

async fn post(fixture: &Fixture, user: &str, path: &str, form: &str) -> (u16, Value) {
    call(fixture, user, (Method::POST, path), form).await
}

#[tokio::test]
async fn an_open_node_asks_for_no_credentials_until_it_has_its_administrator() {
    let fixture = open_node();
    let mut bare = request(Method::GET, "/pools/default");
    bare.headers_mut().remove(AUTHORIZATION);
    assert_eq!(fixture.send(bare).await.status(), StatusCode::OK);
    assert_eq!(get(&fixture, NO_NODE, "/pools/default").await.0, 200);
    for (form, field) in [
        ("", "username"),
        ("username=a+b&password=secret1", "username"),
        ("username=ada&password=short", "password"),
        ("username=ada&password=secret1&port=80", "port"),
        ("username=ada&password=secret1&role=x", "role"),
    ] {
        let (status, said) = post(&fixture, NO_NODE, WEB, form).await;
        assert_eq!(status, 400, "{form}: {said}");
        assert!(said["errors"][field].is_string(), "{form}: {said}");
    }
    *fixture.node.disk_error.lock() = Some("no space".into());
    let form = "username=ada&password=secret1&port=SAME";
    assert_eq!(post(&fixture, NO_NODE, WEB, form).await.0, 500);
    assert_eq!(get(&fixture, NO_NODE, "/pools/default").await.0, 200);

    *fixture.node.disk_error.lock() = None;
    let (status, said) = post(&fixture, NO_NODE, WEB, form).await;
    assert_eq!(status, 200);
    assert_eq!(said["newBaseUri"], "http://couch.example:8091/");
    for path in ["/pools/default", "/whoami", "/no/such/path"] {
        assert_eq!(get(&fixture, NO_NODE, path).await.0, 401, "{path}");
    }
    assert_eq!(get(&fixture, ADA, "/pools/default").await.0, 200);
    let other = "username=eve&password=secret1&port=SAME";
    assert_eq!(post(&fixture, NO_NODE, WEB, other).await.0, 401);
    let (status, said) = post(&fixture, ADA, WEB, other).await;
    assert_eq!(status, 400);
    assert!(said.to_string().contains("already"), "{said}");
    assert_eq!(post(&fixture, ADA, WEB, form).await.0, 200);
}

#[tokio::test]
async fn no_administrator_is_accepted_that_is_not_created() {
    let form = "username=ada&password=secret1&port=SAME";
    for path in [WEB, "/clusterInit"] {
        let mut closed_during_the_request = 0;
        for times in 0..6 {
            let fixture = open_node();
            *fixture.node.closes_after.lock() = Some(times);
            let (status, said) = post(&fixture, NO_NODE, path, form).await;
            let created = fixture.node.identity.look_up("ada").is_some();
            assert_eq!(status == 200, created, "{path}, {times} times: {said}");
            closed_during_the_request += usize::from(status == 400);
        }
        assert!(closed_during_the_request > 0, "{path}");
    }
}

#[tokio::test]
async fn services_get_stand_ins_if_requested_in_time() {
    let services = "/node/controller/setupServices";
    let fixture = open_node();
    let told = async || fixture.get_json("/nodes/self").await["services"].clone();
    let ask = async |form: &str| post(&fixture, ADA, services, form).await.0;
    let indexes = async || {
        post(&fixture, ADA, "/settings/indexes", "storageMode=plasma")
            .await
            .0
    };
    let quota = async |form: &str| post(&fixture, ADA, "/pools/default", form).await.0;
    assert_eq!(told().await, serde_json::json!(["kv"]));
    assert_eq!(
        (indexes().await, quota("indexMemoryQuota=256").await),
        (400, 400)
    );
    assert_eq!(ask("services=index,kv,n1ql").await, 200);
    assert_eq!(told().await, serde_json::json!(["kv", "n1ql", "index"]));
    assert_eq!(
        (indexes().await, quota("indexMemoryQuota=256").await),
        (200, 200)
    );
    assert_eq!(quota("indexMemoryQuota=x").await, 400);
    for wrong in [
        "services=kv,cbas",
        "services=n1ql",
        "services=",
        "services=kv&x=1",
    ] {
        assert_eq!(ask(wrong).await, 400, "{wrong}");
    }
    let form = "username=ada&password=secret1";
    assert_eq!(post(&fixture, ADA, WEB, form).await.0, 200);
    assert_eq!(ask("services=kv").await, 400, "too late");
    assert_eq!(ask("services=kv,n1ql,index").await, 200, "as it is");
    let plain = Fixture::new();
    let asked = post(&plain, ADMIN, services, "services=kv,n1ql").await;
    assert_eq!(asked.0, 400);
    let asked = post(&plain, ADMIN, "/settings/indexes", "storageMode=plasma").await;
    assert_eq!(asked.0, 400);
}

#[tokio::test]
async fn a_stand_in_answers_requests_of_containers_and_refuses_others() {
    let mut fixture = Fixture::new();
    let view = Arc::clone(&fixture.node) as Arc<dyn NodeView>;
    fixture.app = stand_in::router(view, fixture.closing.subscribe());
    for path in [
        "/admin/ping",
        "/api/ping",
        "/query/service",
        "/no/such/path",
    ] {
        assert_eq!(get(&fixture, NO_NODE, path).await.0, 401, "{path}");
    }
    for path in ["/admin/ping", "/api/ping"] {
        assert_eq!(get(&fixture, ADMIN, path).await.0, 200, "{path}");
    }
    let query = async |statement: &str| {
        let form = format!("statement={statement}&client_context_id=7");
        post(&fixture, ADMIN, "/query/service", &form).await
    };
    let present = |name| {
        format!("SELECT COUNT(*) > 0 as present FROM system:keyspaces WHERE name = \"{name}\"")
    };
    let online = "SELECT count(*) > 0 AS online FROM system:indexes where keyspace_id = \
                  \"travel\" and is_primary = true and state = \"online\"";
    let rows = async |statement: &str| query(statement).await.1["results"].clone();
    let row = |name: &str, holds: bool| serde_json::json!([{ name: holds }]);
    assert_eq!(rows(&present("travel")).await, row("present", true));
    assert_eq!(rows(&present("other")).await, row("present", false));
    assert_eq!(rows(online).await, row("online", false));
    let (status, said) = query("CREATE PRIMARY INDEX on `travel`").await;
    assert_eq!((status, &said["status"]), (200, &"success".into()));
    assert_eq!(said["clientContextID"], "7");
    assert_eq!(rows(online).await, row("online", true));
    for (statement, status, code) in [
        ("CREATE PRIMARY INDEX on `travel`", 409, 4300),
        ("CREATE PRIMARY INDEX on `other`", 404, 12_003),
        ("SELECT 1", 501, 1020),
    ] {
        let (got, said) = query(statement).await;
        assert_eq!((got, &said["errors"][0]["code"]), (status, &code.into()));
        assert_eq!(said["status"], "fatal");
    }
    assert_eq!(get(&fixture, ADMIN, "/query/service").await.0, 400);
    let (status, said) = get(&fixture, ADMIN, "/api/index").await;
    assert_eq!((status, &said["status"]), (501, &"fail".into()));
}
