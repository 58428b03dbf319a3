//! Tests of users and groups.

use super::*;

/// Sends a form as a user; returns the status and the answer.
pub(super) async fn call(
    fixture: &Fixture,
    user: &str,
    (method, path): (Method, &str),
    form: &str,
) -> (u16, Value) {
    let mut request = request(method, path);
    let authorization = credentials(user).parse().unwrap();
    request.headers_mut().insert(AUTHORIZATION, authorization);
    *request.body_mut() = Body::from(form.to_owned());
    let response = fixture.send(request).await;
    let status = response.status().as_u16();
    let text = text(response).await;
    (status, serde_json::from_str(&text).unwrap_or_default())
}

pub(super) const ADMIN: &str = "Administrator:pass:word";
const ADA: &str = "/settings/rbac/users/local/ada";

pub(super) async fn put(fixture: &Fixture, path: &str, form: &str) -> (u16, Value) {
    call(fixture, ADMIN, (Method::PUT, path), form).await
}

pub(super) async fn get(fixture: &Fixture, user: &str, path: &str) -> (u16, Value) {
    call(fixture, user, (Method::GET, path), "").await
}

#[tokio::test]
async fn a_user_is_created_changed_and_removed() {
    let fixture = Fixture::new();
    let group = "description=All+readers&roles=data_reader[travel],ro_admin";
    let made = put(&fixture, "/settings/rbac/groups/readers", group).await;
    assert_eq!(made.0, 200);
    let form = "name=Ada+L&password=secret1&groups=readers&roles=data_writer[travel:s:c],ro_admin";
    assert_eq!(put(&fixture, ADA, form).await, (200, "".into()));
    let expected = serde_json::json!({
        "id": "ada",
        "domain": "local",
        "name": "Ada L",
        "roles": [
            {
                "role": "data_writer",
                "bucket_name": "travel",
                "scope_name": "s",
                "collection_name": "c",
                "origins": [{ "type": "user" }],
            },
            {
                "role": "ro_admin",
                "origins": [{ "type": "user" }, { "type": "group", "name": "readers" }],
            },
            {
                "role": "data_reader",
                "bucket_name": "travel",
                "scope_name": "*",
                "collection_name": "*",
                "origins": [{ "type": "group", "name": "readers" }],
            },
        ],
        "groups": ["readers"],
        "external_groups": [],
        "password_change_date": "2027-01-15T08:00:00.000Z",
    });
    assert_eq!(fixture.get_json(ADA).await, expected);
    for list in ["/settings/rbac/users", "/settings/rbac/users/local"] {
        assert_eq!(
            fixture.get_json(list).await,
            serde_json::json!([expected.clone()])
        );
    }
    let own = get(&fixture, "ada:secret1", "/whoami").await;
    assert_eq!(own, (200, expected));

    // The password stays if the form contains none; the rest is replaced.
    assert_eq!(put(&fixture, ADA, "roles=").await.0, 200);
    let (status, own) = get(&fixture, "ada:secret1", "/whoami").await;
    assert_eq!((status, &own["roles"]), (200, &serde_json::json!([])));
    let deleted = call(&fixture, ADMIN, (Method::DELETE, ADA), "").await;
    assert_eq!(deleted.0, 200);
    assert_eq!(get(&fixture, "ada:secret1", "/whoami").await.0, 401);
    for method in [Method::GET, Method::DELETE] {
        let gone = call(&fixture, ADMIN, (method, ADA), "").await;
        assert_eq!(gone, (404, "Unknown user.".into()));
    }
}

#[tokio::test]
async fn invalid_fields_of_users_are_named() {
    let fixture = Fixture::new();
    let roles = "Cannot assign roles to user because the following roles are unknown, malformed or \
                 role parameters are undefined";
    for (path, form, field, part) in [
        (
            ADA,
            "roles=admin",
            "password",
            "Password is required for new user.",
        ),
        (
            ADA,
            "password=secre&roles=",
            "password",
            "at least 6 characters",
        ),
        (
            ADA,
            "password=secret1&roles=admin,boss",
            "roles",
            &format!("{roles}: [boss]"),
        ),
        (
            ADA,
            "password=secret1&roles=data_reader[nope]",
            "roles",
            "[data_reader[nope]]",
        ),
        (
            ADA,
            "password=secret1&groups=nope",
            "groups",
            "Groups do not exist: nope",
        ),
        (ADA, "password=secret1&other=1", "other", "Unsupported key"),
        (
            "/settings/rbac/users/local/a%20b",
            "password=secret1",
            "_",
            "must not",
        ),
        (
            "/settings/rbac/users/local/Administrator",
            "password=secret1",
            "_",
            "--username",
        ),
        (
            "/settings/rbac/users/external/ada",
            "roles=admin",
            "_",
            "not supported",
        ),
        ("/settings/rbac/groups/a%2Fb", "roles=", "_", "must not"),
        ("/settings/rbac/groups/g", "roles=boss", "roles", roles),
    ] {
        let (status, said) = put(&fixture, path, form).await;
        assert_eq!(status, 400, "{path} {form} {said}");
        let text = said["errors"][field].as_str().unwrap_or_default();
        assert!(text.contains(part), "{path} {form} {said}");
    }
    let directory = fixture.node.identity.directory();
    assert_eq!(*directory, Directory::default(), "nothing was made");
}

#[tokio::test]
async fn a_removed_group_takes_its_roles_from_its_users() {
    let fixture = Fixture::new();
    let group = "/settings/rbac/groups/admins";
    put(&fixture, group, "roles=admin&ldap_group_ref=cn%3Dadmins").await;
    put(&fixture, ADA, "password=secret1&groups=admins").await;
    assert_eq!(
        get(&fixture, "ada:secret1", "/settings/rbac/users").await.0,
        200
    );
    let expected = serde_json::json!({
        "id": "admins", "description": "", "roles": [{ "role": "admin" }],
        "ldap_group_ref": "cn=admins",
    });
    assert_eq!(fixture.get_json(group).await, expected);
    let all = fixture.get_json("/settings/rbac/groups").await;
    assert_eq!(all, serde_json::json!([expected]));
    let deleted = call(&fixture, ADMIN, (Method::DELETE, group), "").await;
    assert_eq!(deleted.0, 200);
    assert_eq!(
        get(&fixture, "ada:secret1", "/settings/rbac/users").await.0,
        403
    );
    assert_eq!(fixture.get_json(ADA).await["groups"], serde_json::json!([]));
    for method in [Method::GET, Method::DELETE] {
        let gone = call(&fixture, ADMIN, (method, group), "").await;
        assert_eq!(gone, (404, "Unknown group.".into()));
    }
}

#[tokio::test]
async fn a_user_changes_its_own_password() {
    let fixture = Fixture::new();
    let change = (Method::POST, "/controller/changePassword");
    put(&fixture, ADA, "password=secret1&roles=").await;
    let short = call(&fixture, "ada:secret1", change.clone(), "password=x").await;
    assert_eq!(short.0, 400);
    let done = call(&fixture, "ada:secret1", change.clone(), "password=secret2").await;
    assert_eq!(done.0, 200);
    assert_eq!(get(&fixture, "ada:secret1", "/whoami").await.0, 401);
    assert_eq!(get(&fixture, "ada:secret2", "/whoami").await.0, 200);
    let (status, said) = call(&fixture, ADMIN, change, "password=secret2").await;
    assert_eq!(status, 400);
    assert!(said["errors"]["_"].as_str().unwrap().contains("--password"));
}

#[tokio::test]
async fn a_change_that_cannot_be_written_is_not_made() {
    let fixture = Fixture::new();
    *fixture.node.disk_error.lock() = Some("No space left on device".into());
    let (status, said) = put(&fixture, ADA, "password=secret1&roles=").await;
    assert_eq!(status, 500);
    assert_eq!(said["errors"]["_"], "No space left on device");
    assert_eq!(get(&fixture, "ada:secret1", "/whoami").await.0, 401);
}

#[tokio::test]
async fn lists_of_users_come_in_pages() {
    let fixture = Fixture::new();
    for name in ["a", "b", "c"] {
        let path = format!("/settings/rbac/users/local/{name}");
        put(&fixture, &path, "password=secret1&roles=").await;
    }
    let page = fixture
        .get_json("/settings/rbac/users?pageSize=1&startFrom=b")
        .await;
    assert_eq!((&page["total"], &page["skipped"]), (&3.into(), &1.into()));
    assert_eq!(page["users"].as_array().unwrap().len(), 1);
    assert_eq!(page["users"][0]["id"], "b");
    let next = "/settings/rbac/users?pageSize=1&startFrom=c";
    assert_eq!(page["links"]["next"], next);
    let last = fixture.get_json(next).await;
    assert_eq!(last["links"], serde_json::json!({}));
    let external = fixture.get_json("/settings/rbac/users/external").await;
    assert_eq!(external, serde_json::json!([]));
    assert_eq!(
        get(&fixture, ADMIN, "/settings/rbac/users/other").await.0,
        404
    );
}

/// There is no external directory (LDAP, SAML, PAM) for such users.
#[tokio::test]
async fn external_users_are_refused_with_a_reason() {
    let fixture = Fixture::new();
    let path = "/settings/rbac/users/external/ada";
    for form in [
        "roles=admin",
        "roles=data_reader[travel]&name=Ada",
        "groups=readers",
        "roles=admin&password=secret1",
        "",
    ] {
        let (status, said) = put(&fixture, path, form).await;
        assert_eq!(status, 400, "{form}");
        let text = said["errors"]["_"].as_str().unwrap_or_default();
        assert!(
            text.contains("LDAP") && text.contains("make a local one"),
            "{form} {said}"
        );
    }
    for method in [Method::GET, Method::DELETE] {
        let (status, said) = call(&fixture, ADMIN, (method, path), "").await;
        assert_eq!((status, said), (404, serde_json::json!("Unknown user.")));
    }
    let list = fixture.get_json("/settings/rbac/users/external").await;
    assert_eq!(list, serde_json::json!([]));
    let directory = fixture.node.identity.directory();
    assert_eq!(*directory, Directory::default(), "nothing was made");
}

#[tokio::test]
async fn roles_are_listed_with_their_possible_scopes() {
    let fixture = Fixture::new();
    let roles = fixture.get_json("/settings/rbac/roles").await;
    let of = |name: &str| {
        let all = roles.as_array().unwrap();
        all.iter()
            .find(|role| role["role"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(of("admin").get("bucket_name"), None);
    assert_eq!(of("admin")["name"], "Full Admin");
    // The Python SDK's own tests look for these words.
    let described = of("admin")["desc"].to_string();
    let words = [
        "all cluster features",
        "web console",
        "read and write all data",
    ];
    assert!(words.iter().all(|words| described.contains(words)));
    assert_eq!(of("data_reader")["collection_name"], "*");
    assert_eq!(of("bucket_admin")["bucket_name"], "*");
    assert_eq!(of("bucket_admin").get("scope_name"), None);
}
