//! Tests of audit events of requests, and of the audit configuration.

use std::fs;
use std::path::Path;

use ::audit::{Event, Writer};
use serde_json::json;

use super::permits::routes;
use super::users::{ADMIN, call, get, put};
use super::*;
use crate::audited::{RECORDED, UNRECORDED};
use crate::requests::rows;

const PATH: &str = "/settings/audit";

async fn post(fixture: &Fixture, user: &str, path: &str, form: &str) -> (u16, Value) {
    call(fixture, user, (Method::POST, path), form).await
}

/// Returns the events that were written into a directory.
fn written(fixture: &Fixture, place: &Path) -> Vec<Value> {
    let mut writer = Writer::new(Arc::clone(&fixture.node.audit));
    writer.step(1);
    drop(writer);
    let entries = fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| !path.is_symlink());
    let text: String = files
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn the_configuration_is_shown_and_changed() {
    let fixture = Fixture::new();
    let place = tempfile::tempdir().unwrap();
    let (status, before) = get(&fixture, ADMIN, PATH).await;
    let filterable: Vec<u32> = Event::all()
        .iter()
        .filter(|one| one.filterable)
        .map(|one| one.id)
        .collect();
    let told = json!({
        "auditdEnabled": false, "disabled": filterable, "disabledUsers": [], "logPath": "",
        "pruneAge": 0, "rotateInterval": 900, "rotateSize": 20 << 20, "uid": "",
    });
    assert_eq!((status, before), (200, told));
    let path = place.path().to_str().unwrap();
    let form = format!(
        "auditdEnabled=true&logPath={path}&rotateInterval=7200&rotateSize=524288000&pruneAge=10080&\
         disabled=8243,20491,32770&disabledUsers=bob/local,@cbq-engine/local"
    );
    assert_eq!(post(&fixture, ADMIN, PATH, &form).await, (200, json!([])));
    let (_, after) = get(&fixture, ADMIN, PATH).await;
    let users = json!([
        { "name": "@cbq-engine", "domain": "local" },
        { "name": "bob", "domain": "local" },
    ]);
    let told = json!({
        "auditdEnabled": true, "disabled": [8243, 20491, 32770], "disabledUsers": users, "logPath": path,
        "pruneAge": 10080, "rotateInterval": 7200, "rotateSize": 524_288_000, "uid": "",
    });
    assert_eq!(after, told);
    assert_eq!(
        post(&fixture, ADMIN, PATH, "disabled=&disabledUsers=")
            .await
            .0,
        200
    );
    let (_, after) = get(&fixture, ADMIN, PATH).await;
    assert_eq!(
        (&after["disabled"], &after["disabledUsers"]),
        (&json!([]), &json!([]))
    );
    assert_eq!(
        after["auditdEnabled"], true,
        "what a form does not name stays"
    );
}

#[tokio::test]
async fn each_wrong_field_has_its_reason() {
    let fixture = Fixture::new();
    for (field, value) in [
        ("auditdEnabled", "yes"),
        ("auditdEnabled", "true"),
        ("logPath", "here"),
        ("logPath", "/not/there"),
        ("rotateInterval", "899"),
        ("rotateInterval", "604801"),
        ("rotateInterval", "901"),
        ("rotateSize", "1048575"),
        ("rotateSize", "x"),
        ("pruneAge", "-1"),
        ("pruneAge", "35791395"),
        ("disabled", "20481"),
        ("disabled", "1"),
        ("disabled", "all"),
        ("disabledUsers", "bob"),
        ("disabledUsers", "bob/elsewhere"),
        ("disabledUsers", "/local"),
        ("odd", "1"),
    ] {
        let form = format!("pruneAge=7&{field}={value}");
        let (status, answer) = post(&fixture, ADMIN, PATH, &form).await;
        // Without a data directory there is no default place of the log.
        let blamed = if value == "true" { "logPath" } else { field };
        let errors = answer["errors"].as_object().unwrap();
        let names: Vec<&str> = errors.keys().map(String::as_str).collect();
        assert_eq!((status, names), (400, vec![blamed]), "{form}: {answer}");
        assert!(!errors[blamed].as_str().unwrap().is_empty());
    }
    let (_, after) = get(&fixture, ADMIN, PATH).await;
    assert_eq!(after["pruneAge"], 0, "nothing was changed");
}

#[tokio::test]
async fn an_unwritten_change_has_no_effect() {
    let fixture = Fixture::new();
    *fixture.node.disk_error.lock() = Some("no space".into());
    let (status, answer) = post(&fixture, ADMIN, PATH, "pruneAge=7").await;
    assert_eq!((status, &answer["errors"]["_"]), (500, &"no space".into()));
}

#[tokio::test]
async fn events_are_described_in_two_lists() {
    let fixture = Fixture::new();
    let (_, some) = get(&fixture, ADMIN, "/settings/audit/descriptors").await;
    let (_, others) = get(&fixture, ADMIN, "/settings/audit/nonFilterableDescriptors").await;
    let read = json!({
        "id": 20488, "name": "document read", "module": "memcached", "description": "Document was read",
    });
    assert!(some.as_array().unwrap().contains(&read));
    let ids = |list: &Value| -> Vec<u64> {
        let list = list.as_array().unwrap().iter();
        list.map(|one| one["id"].as_u64().unwrap()).collect()
    };
    assert!(ids(&others).contains(&20481) && ids(&others).contains(&4096));
    assert_eq!(ids(&some).len() + ids(&others).len(), Event::all().len());
}

#[tokio::test]
async fn only_readers_of_security_settings_see_the_audit_settings() {
    let fixture = Fixture::new();
    let users = "/settings/rbac/users/local";
    for (name, roles) in [("ada", "ro_admin"), ("bob", "data_reader[travel]")] {
        let form = format!("password=secret1&roles={roles}");
        assert_eq!(
            put(&fixture, &format!("{users}/{name}"), &form).await.0,
            200
        );
    }
    for path in [
        PATH,
        "/settings/audit/descriptors",
        "/settings/audit/nonFilterableDescriptors",
    ] {
        assert_eq!(get(&fixture, "ada:secret1", path).await.0, 200, "{path}");
        assert_eq!(get(&fixture, "bob:secret1", path).await.0, 403, "{path}");
    }
    assert_eq!(
        post(&fixture, "ada:secret1", PATH, "pruneAge=7").await.0,
        403
    );
}

#[tokio::test]
async fn changes_are_recorded_with_their_user() {
    let fixture = Fixture::new();
    let place = tempfile::tempdir().unwrap();
    let form = format!("auditdEnabled=true&logPath={}", place.path().display());
    assert_eq!(post(&fixture, ADMIN, PATH, &form).await.0, 200);
    let bob = "/settings/rbac/users/local/bob";
    let form = "password=secret1&roles=ro_admin&name=Bob";
    assert_eq!(put(&fixture, bob, form).await.0, 200);
    assert_eq!(
        put(&fixture, bob, "roles=nonsense").await.0,
        400,
        "nothing is changed"
    );
    assert_eq!(get(&fixture, "bob:wrong", "/whoami").await.0, 401);
    let own = "/controller/changePassword";
    assert_eq!(
        post(&fixture, "bob:secret1", own, "password=secret2")
            .await
            .0,
        200
    );
    let scopes = "/pools/default/buckets/travel/scopes";
    assert_eq!(post(&fixture, ADMIN, scopes, "name=s").await.0, 200);
    assert_eq!(
        post(&fixture, ADMIN, "/pools/default", "clusterName=c")
            .await
            .0,
        200
    );
    let asked = "/pools/default/checkPermissions";
    assert_eq!(
        post(&fixture, ADMIN, asked, "cluster.pools!read").await.0,
        200
    );
    let gone = call(&fixture, ADMIN, (Method::DELETE, bob), "").await;
    assert_eq!(gone.0, 200);
    let events = written(&fixture, place.path());
    let brief = |event: &Value| {
        let user = &event["real_userid"];
        (
            event["id"].as_u64().unwrap(),
            user["domain"].clone(),
            user["user"].clone(),
        )
    };
    let of = |id: u64, domain: &str, user: &str| (id, json!(domain), json!(user));
    let admin = |id| of(id, "builtin", "Administrator");
    let expected = [
        of(4096, "internal", "settee"),
        admin(8240),
        admin(8232),
        of(8193, "rejected", "bob"),
        of(8195, "local", "bob"),
        admin(8202),
        admin(8209),
        admin(8194),
    ];
    assert_eq!(events.iter().map(brief).collect::<Vec<_>>(), expected);
    assert_eq!(events[2]["user_name"], "bob");
    assert_eq!(
        events[2]["props"],
        json!({ "name": "Bob", "roles": "ro_admin" })
    );
    assert_eq!(events[4]["props"], Value::Null, "no password is recorded");
    assert_eq!(events[5]["bucket_name"], "travel");
    assert_eq!(events[5]["props"]["name"], "s");
    assert_eq!(
        (&events[6]["path"], &events[6]["props"]["clusterName"]),
        (&"/pools/default".into(), &"c".into())
    );
    assert_eq!(events[5]["timestamp"], "2027-01-15T08:00:00.000000Z");
}

#[tokio::test]
async fn each_row_of_recorded_requests_has_a_route() {
    let routes = routes(&Fixture::new().app);
    for (methods, path, _) in rows(RECORDED) {
        for method in methods.split(',') {
            let route = (method.to_owned(), path.to_owned());
            assert!(routes.contains(&route), "{route:?}");
        }
    }
    for path in UNRECORDED {
        assert!(routes.iter().any(|route| route.1 == *path), "{path}");
    }
}
