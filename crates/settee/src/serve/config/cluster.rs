//! The settings of a node in a cluster.

use etcd::{ClusterAddress, Endpoints};
use server::{ClusterConfig, NodeConfig, Trust};

use super::super::settings::{ConfigError, Settings};
use super::values::{
    advertised, certificate, mistake, number, parse, password, path, peer_trust, refuse, switch,
};

/// Settings for etcd, which need a cluster.
const ETCD_KEYS: [&str; 5] = [
    "etcd-username",
    "etcd-ca",
    "etcd-cert",
    "etcd-key",
    "etcd-insecure",
];

/// Returns the cluster that the node joins. Settings for a cluster are an error without one.
pub(super) fn cluster(settings: &Settings) -> Result<Option<ClusterConfig>, ConfigError> {
    let outside = advertised(settings, "advertise-outside")?;
    let allowed = "must be a number from 0 to 65535";
    let zone = number(settings, "zone", allowed, 0..=u16::MAX)?;
    let name = parse(
        settings,
        "node-name",
        "must be 1 to 64 letters, digits, . _ or -",
        |name| etcd::check_name(name).ok().map(|()| name.to_owned()),
    )?;
    let Some(given) = settings.get("cluster") else {
        for key in ["node-name", "zone", "advertise-outside"]
            .into_iter()
            .chain(ETCD_KEYS)
        {
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
    refuse(settings, "peer-insecure", "needs --replica-of")?;
    let peers = peer_trust(settings)?;
    let node_name = name.ok_or_else(|| fail("needs --node-name too".into()))?;
    let etcd = etcd_options(settings, address.endpoints)?;
    Ok(Some(ClusterConfig {
        etcd,
        name: address.name,
        node_name,
        zone: zone.unwrap_or(0),
        outside,
        peers,
    }))
}

/// Checks that other nodes can reach a node of a cluster, and that it serves every TLS port that it advertises.
pub(super) fn check_advertised(node: &NodeConfig, settings: &Settings) -> Result<(), ConfigError> {
    let cluster = node.cluster.as_ref();
    if cluster.is_some() && node.advertise.is_none() && node.listen.is_unspecified() {
        let allowed = "needs --advertise too: other nodes cannot tell where to reach this one";
        refuse(settings, "listen", allowed)?;
    }
    let outside = cluster.and_then(|cluster| cluster.outside.as_ref());
    for (key, given) in [
        ("advertise", node.advertise.as_ref()),
        ("advertise-outside", outside),
    ] {
        let ports = given.map(|given| (given.kv_tls, given.https));
        let (kv_tls, https) = ports.unwrap_or_default();
        if kv_tls.is_some() && node.kv_tls_port.is_none() {
            refuse(
                settings,
                key,
                "names a port of KV over TLS: needs --kv-tls-port",
            )?;
        }
        if https.is_some() && node.https_port.is_none() {
            refuse(settings, key, "names a port of HTTPS: needs --https-port")?;
        }
    }
    Ok(())
}

/// Returns the addresses of etcd, and the login.
pub(in crate::serve) fn etcd_options(
    settings: &Settings,
    endpoints: Endpoints,
) -> Result<etcd::Options, ConfigError> {
    let login = login_of_etcd(settings)?;
    let trust = Trust {
        ca: parse(settings, "etcd-ca", "must be a path", path)?,
        insecure: switch(settings, "etcd-insecure")?.unwrap_or(false),
        own: certificate(settings, "etcd-cert", "etcd-key")?,
    };
    if trust.insecure {
        let allowed = "must be left out where --etcd-insecure is given";
        refuse(settings, "etcd-ca", allowed)?;
    }
    let over_tls = endpoints.0.iter().any(|member| member.tls);
    if !over_tls {
        for key in ["etcd-ca", "etcd-cert", "etcd-insecure"] {
            refuse(
                settings,
                key,
                "needs an etcd over TLS: etcds:// or https://",
            )?;
        }
    }
    Ok(etcd::Options {
        login,
        trust: over_tls.then_some(trust),
        ..etcd::Options::new(endpoints)
    })
}

/// Returns user and password, or neither.
fn login_of_etcd(settings: &Settings) -> Result<Option<etcd::Login>, ConfigError> {
    let user = parse(settings, "etcd-username", "must not be empty", |user| {
        (!user.is_empty()).then(|| user.to_owned())
    })?;
    let password = password(settings, "etcd-password")?;
    match (user, password) {
        (Some(user), Some(password)) => Ok(Some(etcd::Login { user, password })),
        (None, None) => Ok(None),
        (Some(_), None) => {
            refuse(
                settings,
                "etcd-username",
                "needs --etcd-password-file or SETTEE_ETCD_PASSWORD too",
            )?;
            Ok(None)
        }
        (None, Some(_)) => {
            refuse(settings, "etcd-password", "needs --etcd-username too")?;
            Ok(None)
        }
    }
}
