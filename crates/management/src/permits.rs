//! The permission that each request needs. A request without a row is for full administrators only.

use axum::extract::RawPathParams;
use axum::http::Method;
use axum::response::Response;
use identity::Access;

use super::answers;
use crate::permission::Permission;

/// A permission that only full administrators have.
const FULL: &str = "cluster.admin!all";
const SECURITY_READ: &str = "cluster.admin.security!read";
const SECURITY_WRITE: &str = "cluster.admin.security!write";
const SETTINGS_READ: &str = "cluster.settings!read";
const SETTINGS_WRITE: &str = "cluster.settings!write";
/// A permission that every user has.
const ANY_USER: &str = "cluster.pools!read";
const SEES_BUCKET: &str = "cluster.bucket[{bucket}]!read";
const BUCKET_COMPACT: &str = "cluster.bucket[{bucket}]!compact";
const BUCKET_COLLECTIONS: &str = "cluster.bucket[{bucket}].collections!write";
const SCOPE_COLLECTIONS: &str = "cluster.scope[{bucket}:{scope}].collections!write";

/// Methods, separated by spaces (`*` for all); path as the router has it; permission with the path's parameters.
pub(super) const PERMITS: &[(&str, &str, &str)] = &[
    ("GET", "/", ANY_USER),
    ("GET", "/metrics", "cluster.stats!read"),
    (
        "GET",
        "/changes/{bucket}",
        "cluster.bucket[{bucket}].data.stream!read",
    ),
    ("GET", "/pools/nodes", ANY_USER),
    ("GET", "/pools/nodes/", ANY_USER),
    ("GET", "/pools/default", ANY_USER),
    ("POST", "/pools/default", SETTINGS_WRITE),
    ("GET", "/pools/default/", ANY_USER),
    ("GET", "/pools/default/nodeServices", ANY_USER),
    ("GET", "/pools/default/nodeServicesStreaming", ANY_USER),
    ("GET", "/pools/default/tasks", ANY_USER),
    ("GET", "/pools/default/rebalanceProgress", ANY_USER),
    ("GET", "/settings/autoCompaction", SETTINGS_READ),
    ("POST", "/settings/autoCompaction", SETTINGS_WRITE),
    ("GET", "/settings/autoFailover", SETTINGS_READ),
    ("POST", "/settings/autoFailover", SETTINGS_WRITE),
    ("GET", "/nodes/self", ANY_USER),
    ("GET", "/pools/default/b/{bucket}", SEES_BUCKET),
    ("GET", "/pools/default/bs/{bucket}", SEES_BUCKET),
    (
        "GET",
        "/pools/default/bucketsStreaming/{bucket}",
        SEES_BUCKET,
    ),
    ("GET", "/pools/default/buckets", ANY_USER),
    ("POST", "/pools/default/buckets", "cluster.buckets!create"),
    ("GET", "/pools/default/buckets/", ANY_USER),
    ("POST", "/pools/default/buckets/", "cluster.buckets!create"),
    ("GET", "/pools/default/buckets/{bucket}", SEES_BUCKET),
    (
        "POST",
        "/pools/default/buckets/{bucket}",
        "cluster.bucket[{bucket}].settings!write",
    ),
    (
        "DELETE",
        "/pools/default/buckets/{bucket}",
        "cluster.bucket[{bucket}]!delete",
    ),
    (
        "POST",
        "/pools/default/buckets/{bucket}/controller/doFlush",
        "cluster.bucket[{bucket}]!flush",
    ),
    (
        "*",
        "/pools/default/buckets/{bucket}/controller/{*path}",
        BUCKET_COMPACT,
    ),
    (
        "GET",
        "/pools/default/buckets/{bucket}/stats",
        "cluster.bucket[{bucket}].stats!read",
    ),
    (
        "GET",
        "/pools/default/buckets/{bucket}/stats/{name}",
        "cluster.bucket[{bucket}].stats!read",
    ),
    ("GET", "/pools/default/buckets/{bucket}/nodes", SEES_BUCKET),
    (
        "GET",
        "/pools/default/buckets/{bucket}/nodes/{node}/stats",
        "cluster.bucket[{bucket}].stats!read",
    ),
    ("GET", "/pools/default/buckets/{bucket}/ddocs", SEES_BUCKET),
    ("GET", "/pools/default/buckets/{bucket}/scopes", SEES_BUCKET),
    (
        "POST PUT",
        "/pools/default/buckets/{bucket}/scopes",
        BUCKET_COLLECTIONS,
    ),
    (
        "POST",
        "/pools/default/buckets/{bucket}/scopes/@ensureManifest/{uid}",
        SEES_BUCKET,
    ),
    (
        "DELETE",
        "/pools/default/buckets/{bucket}/scopes/{scope}",
        SCOPE_COLLECTIONS,
    ),
    (
        "POST",
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections",
        SCOPE_COLLECTIONS,
    ),
    (
        "DELETE PATCH",
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        SCOPE_COLLECTIONS,
    ),
    ("POST", "/pools/default/checkPermissions", ANY_USER),
    ("GET", "/whoami", ANY_USER),
    ("POST", "/controller/changePassword", ANY_USER),
    ("GET", "/settings/rbac/users", SECURITY_READ),
    ("GET", "/settings/rbac/users/{domain}", SECURITY_READ),
    ("GET", "/settings/rbac/users/{domain}/{user}", SECURITY_READ),
    (
        "PUT DELETE",
        "/settings/rbac/users/{domain}/{user}",
        SECURITY_WRITE,
    ),
    ("GET", "/settings/rbac/groups", SECURITY_READ),
    ("GET", "/settings/rbac/groups/{group}", SECURITY_READ),
    (
        "PUT DELETE",
        "/settings/rbac/groups/{group}",
        SECURITY_WRITE,
    ),
    ("GET", "/settings/rbac/roles", SECURITY_READ),
    ("*", "/settings/rbac/{*path}", SECURITY_READ),
    ("POST", "/node/controller/rename", SETTINGS_WRITE),
    ("POST", "/node/controller/setupServices", SETTINGS_WRITE),
    (
        "PUT DELETE",
        "/node/controller/setupAlternateAddresses/external",
        SETTINGS_WRITE,
    ),
    ("POST", "/node/controller/reloadCertificate", SETTINGS_WRITE),
    ("GET", "/settings/audit", SECURITY_READ),
    ("POST", "/settings/audit", SECURITY_WRITE),
    ("GET", "/settings/audit/descriptors", SECURITY_READ),
    (
        "GET",
        "/settings/audit/nonFilterableDescriptors",
        SECURITY_READ,
    ),
    ("GET", "/settings/clientCertAuth", SECURITY_READ),
    ("POST", "/settings/clientCertAuth", FULL),
    ("GET", "/settings/web", SETTINGS_READ),
    ("POST", "/settings/web", SETTINGS_WRITE),
    ("GET", "/settings/stats", SETTINGS_READ),
    ("POST", "/settings/stats", SETTINGS_WRITE),
    ("POST", "/settings/indexes", SETTINGS_WRITE),
    ("POST", "/clusterInit", SETTINGS_WRITE),
    ("GET", "/settings/alerts", SETTINGS_READ),
    ("POST", "/settings/alerts", SETTINGS_WRITE),
    ("GET", "/settings/autoReprovision", SETTINGS_READ),
    ("POST", "/settings/autoReprovision", SETTINGS_WRITE),
    ("GET", "/settings/passwordPolicy", SETTINGS_READ),
    ("POST", "/settings/passwordPolicy", SETTINGS_WRITE),
    ("GET", "/settings/security", SETTINGS_READ),
    ("POST", "/settings/security", SETTINGS_WRITE),
    ("GET", "/settings/rebalance", SETTINGS_READ),
    ("POST", "/settings/rebalance", SETTINGS_WRITE),
    ("GET", "/settings/retryRebalance", SETTINGS_READ),
    ("POST", "/settings/retryRebalance", SETTINGS_WRITE),
    ("GET", "/settings/developerPreview", SETTINGS_READ),
    ("POST", "/settings/developerPreview", SETTINGS_WRITE),
    ("GET", "/settings/logRedaction", SETTINGS_READ),
    ("POST", "/settings/logRedaction", SETTINGS_WRITE),
    ("GET POST", "/settings/ldap", SETTINGS_WRITE),
    ("GET POST", "/settings/saml", SETTINGS_WRITE),
    ("GET POST", "/settings/replications", SETTINGS_WRITE),
    ("GET POST", "/settings/replications/{*path}", SETTINGS_WRITE),
    ("GET POST", "/controller/createReplication", SETTINGS_WRITE),
    ("GET POST", "/settings/querySettings", SETTINGS_WRITE),
    ("GET POST", "/settings/analytics", SETTINGS_WRITE),
    ("GET POST", "/controller/addNode", SETTINGS_WRITE),
    ("GET POST", "/controller/ejectNode", SETTINGS_WRITE),
    ("GET POST", "/controller/failOver", SETTINGS_WRITE),
    (
        "GET POST",
        "/controller/startGracefulFailover",
        SETTINGS_WRITE,
    ),
    ("GET POST", "/controller/reAddNode", SETTINGS_WRITE),
    ("GET POST", "/controller/setRecoveryType", SETTINGS_WRITE),
    ("GET POST", "/controller/rebalance", SETTINGS_WRITE),
    ("GET POST", "/controller/stopRebalance", SETTINGS_WRITE),
    ("GET POST", "/node/controller/doJoinCluster", SETTINGS_WRITE),
    ("POST", "/controller/setAutoCompaction", SETTINGS_WRITE),
    ("POST", "/nodes/self/controller/settings", SETTINGS_WRITE),
    ("POST", "/node/controller/setupNetConfig", SETTINGS_WRITE),
    (
        "POST",
        "/node/controller/enableExternalListener",
        SETTINGS_WRITE,
    ),
    (
        "POST",
        "/node/controller/disableExternalListener",
        SETTINGS_WRITE,
    ),
    (
        "POST",
        "/node/controller/disableUnusedExternalListeners",
        SETTINGS_WRITE,
    ),
    ("GET", "/pools/default/serverGroups", ANY_USER),
    ("GET", "/pools/default/terseClusterInfo", ANY_USER),
    ("GET", "/pools/default/nodeStatuses", ANY_USER),
    ("GET", "/versions", ANY_USER),
    ("GET", "/pools/default/remoteClusters", SETTINGS_READ),
    ("POST", "/pools/default/remoteClusters", SETTINGS_WRITE),
    (
        "POST",
        "/pools/default/buckets/{bucket}/controller/compactBucket",
        BUCKET_COMPACT,
    ),
    (
        "POST",
        "/pools/default/buckets/{bucket}/controller/compactDatabases",
        BUCKET_COMPACT,
    ),
    (
        "POST",
        "/pools/default/buckets/{bucket}/controller/compactViews",
        BUCKET_COMPACT,
    ),
];

/// Returns the permission that a request needs, with the parameters of its path.
fn needed(method: &Method, path: &str, parameters: &RawPathParams) -> String {
    // The router answers HEAD like GET.
    let method = if method == Method::HEAD {
        "GET"
    } else {
        method.as_str()
    };
    let is_for = |methods: &str| methods == "*" || methods.split(' ').any(|one| one == method);
    let mut rows = PERMITS.iter();
    let row = rows.find(|(methods, of, _)| *of == path && is_for(methods));
    let template = row.map_or(FULL, |(_, _, permission)| permission);
    let parameters = parameters.iter();
    parameters.fold(template.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    })
}

/// Returns the refusal of a request that its user may not send. A bucket in which the user has no privilege looks like
/// a missing one.
pub(super) fn check(
    access: &Access,
    method: &Method,
    path: &str,
    parameters: &RawPathParams,
) -> Option<Response> {
    if access.is_admin() {
        return None;
    }
    let needed = needed(method, path, parameters);
    let permission = Permission::parse(&needed);
    if permission.is_some_and(|permission| permission.is_given(access)) {
        return None;
    }
    let bucket = permission.and_then(|permission| permission.bucket());
    if bucket.is_some_and(|bucket| access.within_bucket(bucket).is_empty()) {
        return Some(answers::not_found());
    }
    Some(answers::forbidden(&[&needed]))
}
