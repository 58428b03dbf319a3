//! The cluster that a node joins.

use etcd::ClusterAddress;
use server::{ClusterConfig, Trust};

use super::super::settings::{ConfigError, Settings};
use super::values::{mistake, number, parse, password, path, refuse};

/// The cluster that the node joins; what is said of it without one is a mistake.
pub(super) fn cluster(settings: &Settings) -> Result<Option<ClusterConfig>, ConfigError> {
    let login = login_of_etcd(settings)?;
    let trust = parse(settings, "etcd-ca", "must be a path", path)?;
    let allowed = "must be a number from 0 to 65535";
    let zone = number(settings, "zone", allowed, 0..=u16::MAX)?;
    let name = parse(
        settings,
        "node-name",
        "must be letters, digits, . _ or -",
        |name| etcd::check_name(name).ok().map(|()| name.to_owned()),
    )?;
    let Some(given) = settings.get("cluster") else {
        for key in ["node-name", "zone", "etcd-username", "etcd-ca"] {
            refuse(settings, key, "needs --cluster")?;
        }
        return Ok(None);
    };
    let value = &given.values[0];
    let fail = |allowed: String| mistake("cluster", given, value, allowed);
    for key in ["bucket", "replica-of", "memory", "provisionable"] {
        let allowed =
            "must be left out where --cluster is given: buckets and copies are the cluster's";
        refuse(settings, key, allowed)?;
    }
    let address: ClusterAddress = value.parse().map_err(|error| {
        fail(format!(
            "must be etcd[s]://HOST:PORT[,HOST:PORT...]/NAME: {error}"
        ))
    })?;
    let node_name = name.ok_or_else(|| fail("needs --node-name too".into()))?;
    let over_tls = address.endpoints.0.iter().any(|member| member.tls);
    if !over_tls {
        refuse(settings, "etcd-ca", "needs --cluster etcds://")?;
    }
    let trust = over_tls.then_some(Trust {
        ca: trust,
        insecure: false,
        own: None,
    });
    let etcd = etcd::Options {
        login,
        trust,
        ..etcd::Options::new(address.endpoints)
    };
    Ok(Some(ClusterConfig {
        etcd,
        name: address.name,
        node_name,
        zone: zone.unwrap_or(0),
    }))
}

/// User and password, or neither.
fn login_of_etcd(settings: &Settings) -> Result<Option<etcd::Login>, ConfigError> {
    let user = parse(settings, "etcd-username", "must not be empty", |user| {
        (!user.is_empty()).then(|| user.to_owned())
    })?;
    let password = password(settings, "etcd-password")?;
    match (user, password) {
        (Some(user), Some(password)) => Ok(Some(etcd::Login { user, password })),
        (None, None) => Ok(None),
        (Some(_), None) => {
            refuse(settings, "etcd-username", "needs --etcd-password too")?;
            Ok(None)
        }
        (None, Some(_)) => {
            refuse(settings, "etcd-password", "needs --etcd-username too")?;
            Ok(None)
        }
    }
}
