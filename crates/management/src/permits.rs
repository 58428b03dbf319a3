//! The permission that each request needs. A request without a row is for full administrators only.

use axum::extract::RawPathParams;
use axum::http::Method;
use axum::response::Response;
use identity::Access;

use super::answers;
use crate::permission::Permission;
use crate::requests::{Requests, find};

/// A permission that only full administrators have.
const FULL: &str = "cluster.admin!all";
/// A permission that every user has.
const ANY_USER: &str = "cluster.pools!read";

/// A permission with the parameters of the path, and the requests that need it.
pub(super) const PERMITS: &Requests<&str> = &[
    (
        ANY_USER,
        &[
            "GET /",
            "GET /pools/nodes",
            "GET /pools/nodes/",
            "GET /pools/default",
            "GET /pools/default/",
            "GET /pools/default/nodeServices",
            "GET /pools/default/nodeServicesStreaming",
            "GET /pools/default/tasks",
            "GET /pools/default/rebalanceProgress",
            "GET /nodes/self",
            "GET /pools/default/buckets",
            "GET /pools/default/buckets/",
            "POST /pools/default/checkPermissions",
            "GET /whoami",
            "POST /controller/changePassword",
            "GET /pools/default/serverGroups",
            "GET /pools/default/terseClusterInfo",
            "GET /pools/default/nodeStatuses",
            "GET /versions",
        ],
    ),
    ("cluster.stats!read", &["GET /metrics"]),
    (
        "cluster.bucket[{bucket}].data.stream!read",
        &["GET /changes/{bucket}"],
    ),
    (
        "cluster.settings!write",
        &[
            "POST /pools/default",
            "POST /settings/autoCompaction",
            "POST /settings/autoFailover",
            "POST /node/controller/rename",
            "POST /node/controller/setupServices",
            "PUT,DELETE /node/controller/setupAlternateAddresses/external",
            "POST /node/controller/reloadCertificate",
            "POST /settings/web",
            "POST /settings/stats",
            "POST /settings/indexes",
            "POST /clusterInit",
            "POST /settings/alerts",
            "POST /settings/autoReprovision",
            "POST /settings/passwordPolicy",
            "POST /settings/security",
            "POST /settings/rebalance",
            "POST /settings/retryRebalance",
            "POST /settings/developerPreview",
            "POST /settings/logRedaction",
            "GET,POST /settings/ldap",
            "GET,POST /settings/saml",
            "GET,POST /settings/replications",
            "GET,POST /settings/replications/{*path}",
            "GET,POST /controller/createReplication",
            "GET,POST /settings/querySettings",
            "GET,POST /settings/analytics",
            "GET,POST /controller/addNode",
            "GET,POST /controller/ejectNode",
            "GET,POST /controller/failOver",
            "GET,POST /controller/startGracefulFailover",
            "GET,POST /controller/reAddNode",
            "GET,POST /controller/setRecoveryType",
            "GET,POST /controller/rebalance",
            "GET,POST /controller/stopRebalance",
            "GET,POST /node/controller/doJoinCluster",
            "POST /controller/setAutoCompaction",
            "POST /nodes/self/controller/settings",
            "POST /node/controller/setupNetConfig",
            "POST /node/controller/enableExternalListener",
            "POST /node/controller/disableExternalListener",
            "POST /node/controller/disableUnusedExternalListeners",
            "POST /pools/default/remoteClusters",
        ],
    ),
    (
        "cluster.settings!read",
        &[
            "GET /settings/autoCompaction",
            "GET /settings/autoFailover",
            "GET /settings/web",
            "GET /settings/stats",
            "GET /settings/alerts",
            "GET /settings/autoReprovision",
            "GET /settings/passwordPolicy",
            "GET /settings/security",
            "GET /settings/rebalance",
            "GET /settings/retryRebalance",
            "GET /settings/developerPreview",
            "GET /settings/logRedaction",
            "GET /pools/default/remoteClusters",
        ],
    ),
    (
        "cluster.bucket[{bucket}]!read",
        &[
            "GET /pools/default/b/{bucket}",
            "GET /pools/default/bs/{bucket}",
            "GET /pools/default/bucketsStreaming/{bucket}",
            "GET /pools/default/buckets/{bucket}",
            "GET /pools/default/buckets/{bucket}/nodes",
            "GET /pools/default/buckets/{bucket}/ddocs",
            "GET /pools/default/buckets/{bucket}/scopes",
            "POST /pools/default/buckets/{bucket}/scopes/@ensureManifest/{uid}",
        ],
    ),
    (
        "cluster.buckets!create",
        &[
            "POST /pools/default/buckets",
            "POST /pools/default/buckets/",
        ],
    ),
    (
        "cluster.bucket[{bucket}].settings!write",
        &["POST /pools/default/buckets/{bucket}"],
    ),
    (
        "cluster.bucket[{bucket}]!delete",
        &["DELETE /pools/default/buckets/{bucket}"],
    ),
    (
        "cluster.bucket[{bucket}]!flush",
        &["POST /pools/default/buckets/{bucket}/controller/doFlush"],
    ),
    (
        "cluster.bucket[{bucket}]!compact",
        &[
            "* /pools/default/buckets/{bucket}/controller/{*path}",
            "POST /pools/default/buckets/{bucket}/controller/compactBucket",
            "POST /pools/default/buckets/{bucket}/controller/compactDatabases",
            "POST /pools/default/buckets/{bucket}/controller/compactViews",
        ],
    ),
    (
        "cluster.bucket[{bucket}].stats!read",
        &[
            "GET /pools/default/buckets/{bucket}/stats",
            "GET /pools/default/buckets/{bucket}/stats/{name}",
            "GET /pools/default/buckets/{bucket}/nodes/{node}/stats",
        ],
    ),
    (
        "cluster.bucket[{bucket}].collections!write",
        &["POST,PUT /pools/default/buckets/{bucket}/scopes"],
    ),
    (
        "cluster.scope[{bucket}:{scope}].collections!write",
        &[
            "DELETE /pools/default/buckets/{bucket}/scopes/{scope}",
            "POST /pools/default/buckets/{bucket}/scopes/{scope}/collections",
            "DELETE,PATCH /pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        ],
    ),
    (
        "cluster.admin.security!read",
        &[
            "GET /settings/rbac/users",
            "GET /settings/rbac/users/{domain}",
            "GET /settings/rbac/users/{domain}/{user}",
            "GET /settings/rbac/groups",
            "GET /settings/rbac/groups/{group}",
            "GET /settings/rbac/roles",
            "* /settings/rbac/{*path}",
            "GET /settings/audit",
            "GET /settings/audit/descriptors",
            "GET /settings/audit/nonFilterableDescriptors",
            "GET /settings/clientCertAuth",
        ],
    ),
    (
        "cluster.admin.security!write",
        &[
            "PUT,DELETE /settings/rbac/users/{domain}/{user}",
            "PUT,DELETE /settings/rbac/groups/{group}",
            "POST /settings/audit",
        ],
    ),
    (FULL, &["POST /settings/clientCertAuth"]),
];

/// Returns the permission that a request needs, with the parameters of its path.
fn needed(method: &Method, path: &str, parameters: &RawPathParams) -> String {
    // The router answers HEAD like GET.
    let method = if method == Method::HEAD {
        "GET"
    } else {
        method.as_str()
    };
    let template = find(PERMITS, method, path).unwrap_or(FULL);
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
