//! Tests of requests of users that are no full administrators.

use std::collections::BTreeSet;

use super::users::{ADMIN, call, get, put};
use super::*;
use crate::permits::PERMITS;
use crate::requests::rows;

/// Returns the methods and paths of the router from its `Debug` form; `*` for a path that takes all methods.
pub(super) fn routes(app: &Router) -> BTreeSet<(String, String)> {
    let text = format!("{app:?}");
    let (endpoints, paths) = text.split_once("paths: {").expect("a list of paths");
    let entries = |list: &str| -> Vec<(String, String)> {
        let entries = list.split("RouteId(").skip(1);
        let entries = entries.filter_map(|entry| entry.split_once("): "));
        entries
            .map(|(id, rest)| (id.to_owned(), rest.to_owned()))
            .collect()
    };
    let (paths, _) = paths.split_once(", fallback_router").expect("its end");
    let mut found = BTreeSet::new();
    for (id, path) in entries(paths) {
        let of = |entry: &&(String, String)| entry.0 == id;
        let path = path.split('"').nth(1).expect("a path").to_owned();
        let all = entries(endpoints);
        let endpoint = &all.iter().find(of).expect("an endpoint").1;
        if endpoint.contains("allow_header: Skip") {
            found.insert(("*".to_owned(), path.clone()));
        }
        for method in ["get", "post", "put", "patch", "delete"] {
            let (_, handler) = endpoint.split_once(&format!("{method}: ")).expect(method);
            if !handler.starts_with("None") {
                found.insert((method.to_uppercase(), path.clone()));
            }
        }
    }
    found
}

/// Returns the method and path pairs of all rows.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    rows(PERMITS).flat_map(|(methods, path, permission)| {
        let methods = if methods == "*" {
            "GET,POST,PUT"
        } else {
            methods
        };
        methods
            .split(',')
            .map(move |method| (method, path, permission))
    })
}

#[test]
fn every_route_has_a_row() {
    const WITHOUT_CREDENTIALS: [&str; 5] = [
        "/livez",
        "/readyz",
        "/pools",
        "/pools/",
        "/pools/default/certificate",
    ];
    let fixture = Fixture::new();
    let routes = routes(&fixture.app);
    assert!(routes.len() > 60, "{routes:?}");
    for (method, path) in &routes {
        if WITHOUT_CREDENTIALS.contains(&&**path) {
            continue;
        }
        let has_row = rows(PERMITS)
            .any(|(methods, of, _)| of == path && methods.split(',').any(|one| one == method));
        assert!(has_row, "{method} {path} has no row");
    }
    for (methods, path, _) in rows(PERMITS) {
        for method in methods.split(',') {
            let route = (method.to_owned(), path.to_owned());
            assert!(routes.contains(&route), "{route:?} is no route");
        }
    }
}

fn path_of(template: &str) -> String {
    template
        .replace("{bucket}", "travel")
        .replace("{domain}", "local")
        .replace("{*path}", "x")
        .replace(['{', '}'], "")
}

/// Returns the status of each row for a user.
async fn statuses(user: &str) -> Vec<(String, &'static str, u16, Value)> {
    let mut all = Vec::new();
    for (method, template, permission) in pairs() {
        let fixture = Fixture::new();
        user_with_role(&fixture, user).await;
        let path = path_of(template);
        let what = format!("{method} {path}");
        let mut sent = request(method.parse().unwrap(), &path);
        let authorization = credentials("ada:secret1").parse().unwrap();
        sent.headers_mut().insert(AUTHORIZATION, authorization);
        let response = fixture.send(sent).await;
        let status = response.status().as_u16();
        // Other answers may be streams that do not end.
        let said = match status {
            403 | 404 => serde_json::from_str(&text(response).await).unwrap(),
            _ => Value::Null,
        };
        all.push((what, permission, status, said));
    }
    all
}

async fn user_with_role(fixture: &Fixture, roles: &str) {
    let form = format!("password=secret1&roles={roles}");
    let made = put(fixture, "/settings/rbac/users/local/ada", &form).await;
    assert_eq!(made.0, 200, "{roles}");
}

#[tokio::test]
async fn a_user_without_privileges_does_nothing_and_learns_of_no_bucket() {
    for (what, permission, status, said) in statuses("query_select[travel]").await {
        if permission == "cluster.pools!read" {
            assert_ne!(status, 403, "{what}");
        } else if permission.contains("{bucket}") {
            assert_eq!(status, 404, "{what}");
            assert_eq!(said, "Requested resource not found.", "{what}");
        } else {
            assert_eq!(status, 403, "{what}");
            let expected = serde_json::json!({
                "message": "Forbidden. User needs the following permissions",
                "permissions": [permission],
            });
            assert_eq!(said, expected, "{what}");
        }
    }
}

#[tokio::test]
async fn a_user_of_one_bucket_has_the_rights_of_the_role_there() {
    let given = [
        "cluster.pools!read",
        "cluster.settings!read",
        "cluster.bucket[{bucket}]!read",
        "cluster.bucket[{bucket}].stats!read",
    ];
    for (what, permission, status, said) in statuses("data_monitoring[travel]").await {
        let refused = !given.contains(&permission);
        assert_eq!(
            status == 403,
            refused,
            "{what} {permission}: {status} {said}"
        );
    }
    let given = [
        "cluster.bucket[{bucket}].settings!write",
        "cluster.bucket[{bucket}]!flush",
        "cluster.bucket[{bucket}]!compact",
        "cluster.bucket[{bucket}].collections!write",
        "cluster.scope[{bucket}:{scope}].collections!write",
    ];
    for (what, permission, status, said) in statuses("bucket_admin[travel]").await {
        if given.contains(&permission) {
            assert_ne!(status, 403, "{what} {permission}: {status} {said}");
        } else if permission.ends_with("!delete") || permission.contains("security") {
            assert_eq!(status, 403, "{what} {permission}: {status} {said}");
        }
    }
}

#[tokio::test]
async fn lists_show_visible_buckets_only() {
    let fixture = Fixture::new();
    let manifest = Manifest::default();
    let settings = ::collections::CollectionSettings::default();
    let manifest = manifest.with_scope("s").unwrap();
    let manifest = manifest.with_collection("s", "c", settings).unwrap();
    *fixture.node.manifest.lock() = Arc::new(manifest);
    let user = "ada:secret1";
    let scopes = "/pools/default/buckets/travel/scopes";
    for (role, sees, names) in [
        ("", false, &[][..]),
        ("data_reader[travel:s:c]", true, &["s"]),
        ("data_reader[travel]", true, &["_default", "s"]),
    ] {
        user_with_role(&fixture, role).await;
        let (_, pool) = get(&fixture, user, "/pools/default").await;
        assert_eq!(
            pool["bucketNames"].as_array().unwrap().len(),
            usize::from(sees)
        );
        let (_, all) = get(&fixture, user, "/pools/default/buckets").await;
        assert_eq!(all.as_array().unwrap().len(), usize::from(sees));
        let (status, manifest) = get(&fixture, user, scopes).await;
        assert_eq!(status, if sees { 200 } else { 404 });
        let scopes = manifest["scopes"].as_array().into_iter().flatten();
        let mut shown: Vec<&str> = scopes
            .map(|scope| scope["name"].as_str().unwrap())
            .collect();
        shown.sort_unstable();
        assert_eq!(shown, names, "{role}");
        let (_, pools) = get(&fixture, user, "/pools").await;
        assert_eq!(pools["isAdminCreds"], false);
    }
}

#[tokio::test]
async fn a_manager_of_users_cannot_become_an_administrator() {
    let fixture = Fixture::new();
    user_with_role(&fixture, "user_admin_local").await;
    put(
        &fixture,
        "/settings/rbac/users/local/boss",
        "password=secret1&roles=admin",
    )
    .await;
    put(&fixture, "/settings/rbac/groups/bosses", "roles=admin").await;
    let user = "ada:secret1";
    for (method, path, form) in [
        (Method::PUT, "users/local/ada", "roles=admin"),
        (Method::PUT, "users/local/ada", "groups=bosses"),
        (
            Method::PUT,
            "users/local/new",
            "password=secret1&roles=security_admin",
        ),
        (Method::PUT, "users/local/boss", "password=secret2&roles="),
        (Method::DELETE, "users/local/boss", ""),
        (Method::PUT, "groups/bosses", "roles="),
        (Method::DELETE, "groups/bosses", ""),
    ] {
        let path = format!("/settings/rbac/{path}");
        let what = format!("{method} {path} {form}");
        let (status, _) = call(&fixture, user, (method, &path), form).await;
        assert_eq!(status, 403, "{what}");
    }
    assert_eq!(get(&fixture, "boss:secret1", "/whoami").await.0, 200);
    let form = "password=secret1&roles=data_reader[travel]";
    let clerk = (Method::PUT, "/settings/rbac/users/local/clerk");
    assert_eq!(call(&fixture, user, clerk, form).await.0, 200);
}

#[tokio::test]
async fn a_user_asks_which_permissions_it_has() {
    let fixture = Fixture::new();
    user_with_role(&fixture, "data_reader[travel:s]").await;
    let check = (Method::POST, "/pools/default/checkPermissions");
    let asked = "cluster.bucket[travel]!read,cluster.bucket[.]!read,\
                 cluster.bucket[travel].data.docs!read,cluster.scope[travel:s].data.docs!read,\
                 cluster.admin.security!write,cluster.admin!all";
    let answer = call(&fixture, "ada:secret1", check.clone(), asked).await;
    let expected = serde_json::json!({
        "cluster.bucket[travel]!read": true,
        "cluster.bucket[.]!read": true,
        "cluster.bucket[travel].data.docs!read": false,
        "cluster.scope[travel:s].data.docs!read": true,
        "cluster.admin.security!write": false,
        "cluster.admin!all": false,
    });
    assert_eq!(answer, (200, expected));
    let all = call(&fixture, ADMIN, check.clone(), asked).await.1;
    assert!(
        all.as_object()
            .unwrap()
            .values()
            .all(|given| *given == true)
    );
    assert_eq!(
        call(&fixture, ADMIN, check, "cluster.pools!read,nonsense")
            .await
            .0,
        400
    );
}

#[tokio::test]
async fn a_stream_of_configurations_ends_with_the_right_to_it() {
    let fixture = Fixture::new();
    user_with_role(&fixture, "data_reader[travel]").await;
    let mut sent = request(Method::GET, "/pools/default/bs/travel");
    let authorization = credentials("ada:secret1").parse().unwrap();
    sent.headers_mut().insert(AUTHORIZATION, authorization);
    let mut body = fixture.send(sent).await.into_body();
    assert!(body.frame().await.is_some());
    user_with_role(&fixture, "").await;
    fixture.node.rev.send_modify(|rev| *rev += 1);
    assert!(body.frame().await.is_none());
}
