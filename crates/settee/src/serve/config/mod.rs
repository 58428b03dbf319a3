//! Converts settings to a configuration: checks each value and fills in defaults. Pure.

mod cluster;
pub(super) use self::cluster::etcd_options;
mod values;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use client::Address;
use identity::CertificateState;
use model::DurabilityLevel;
use server::{
    BucketConfig, BucketKind, EncryptionKeys, EvictionPolicy, MemcachedPort, NodeConfig, ReplicaOf,
    StandInsConfig, VBUCKET_COUNTS,
};

use tracing_subscriber::filter::LevelFilter;

use self::cluster::{check_advertised, cluster};
use self::values::{
    advertised, certificate, mistake, number, parse, password, path, peer_trust, port, refuse,
    switch,
};
use super::settings::{ConfigError, Settings};

/// Default size of the write-ahead log at which it becomes a run, in MiB.
const JOURNAL_MIB_DEFAULT: u64 = 32;

/// Age at which tombstones are purged, in seconds: by default three days, at most sixty.
const PURGE_AGE_S_DEFAULT: u64 = 3 * 24 * 60 * 60;
const PURGE_AGE_S_MAX: u64 = 60 * 24 * 60 * 60;

const MIB: u64 = 1024 * 1024;
const QUOTA_MIB_DEFAULT: u64 = 256;
const QUOTA_MIB_MIN: u64 = 16;
/// 16 TiB: a higher number must be a mistake, and bytes cannot overflow below it.
const QUOTA_MIB_MAX: u64 = 16 * 1024 * 1024;
const BUCKETS_MAX: usize = 1000;
const BUCKETS_MAX_DEFAULT: usize = 100;
const THREADS_MAX: usize = 1024;
const BUCKET_NAME: &str = "must be 1 to 100 of A-Z a-z 0-9 _ - . %, not starting with a dot";

/// A configuration that is checked as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServeConfig {
    pub(super) node: NodeConfig,
    /// File for the ports in use, written once the node serves.
    pub(super) ports_file: Option<PathBuf>,
    /// Lowest level of logged messages.
    pub(super) log_level: LevelFilter,
    pub(super) log_format: LogFormat,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogFormat {
    Human,
    Json,
}

impl ServeConfig {
    /// Checks the settings and returns the configuration.
    ///
    /// # Errors
    /// The first mistake found.
    pub(super) fn from_settings(settings: &Settings) -> Result<Self, ConfigError> {
        let buckets_max = buckets_max(settings)?;
        let node = NodeConfig {
            data_dir: data_dir(settings)?,
            listen: parse(settings, "listen", "must be an IP address", |v| {
                v.parse().ok()
            })?
            .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            advertise: advertised(settings, "advertise")?,
            kv_port: port(settings, "kv-port")?.unwrap_or(11210),
            http_port: port(settings, "http-port")?.unwrap_or(8091),
            memcached: memcached(settings)?,
            kv_tls_port: port(settings, "kv-tls-port")?,
            https_port: port(settings, "https-port")?,
            certificate: certificate(settings, "tls-cert", "tls-key")?,
            client_cert: client_cert(settings)?,
            client_ca: parse(settings, "client-ca", "must be a path", path)?,
            provisionable: provisionable(settings)?,
            username: username(settings)?,
            password: password(settings, "password")?
                .unwrap_or_else(|| "password".into())
                .into(),
            buckets: buckets(settings, buckets_max)?,
            buckets_max,
            replica_of: replica_of(settings)?,
            cluster: cluster(settings)?,
            threads: threads(settings)?,
            purge_age_s: purge_age(settings)?,
            journal_bytes: journal_bytes(settings)?,
            encryption_keys: encryption_keys(settings)?,
        };
        check_levels(&node, settings)?;
        check_followed(&node, settings)?;
        check_exposure(&node, settings)?;
        check_memcached(&node, settings)?;
        check_certificate(&node, settings)?;
        check_advertised(&node, settings)?;
        check_ports(&node, settings)?;
        let ports_file = parse(settings, "ports-file", "must be a path", path)?;
        Ok(Self {
            node,
            ports_file,
            log_level: log_level(settings)?,
            log_format: log_format(settings)?,
        })
    }
}

/// Returns the settings of the memcached port. They are an error without a port.
fn memcached(settings: &Settings) -> Result<Option<MemcachedPort>, ConfigError> {
    let bucket = parse(settings, "memcached-bucket", BUCKET_NAME, |name| {
        is_bucket_name(name).then(|| name.to_owned())
    })?;
    let login = switch(settings, "memcached-sasl")?.unwrap_or(false);
    let open = switch(settings, "memcached-open")?.unwrap_or(false);
    let Some(port) = port(settings, "memcached-port")? else {
        let lonely = [
            ("memcached-bucket", bucket.is_some()),
            ("memcached-sasl", login),
            ("memcached-open", open),
        ];
        for (key, _) in lonely.into_iter().filter(|(_, said)| *said) {
            refuse(settings, key, "needs --memcached-port")?;
        }
        return Ok(None);
    };
    if open && login {
        let allowed = "must be left out where --memcached-sasl is given";
        refuse(settings, "memcached-open", allowed)?;
    }
    Ok(Some(MemcachedPort {
        port,
        bucket: bucket.unwrap_or_else(|| "default".into()),
        login,
    }))
}

/// Checks that clients of other machines must log in, unless the settings exempt them.
fn check_memcached(node: &NodeConfig, settings: &Settings) -> Result<(), ConfigError> {
    let Some(memcached) = node.memcached.as_ref().filter(|memcached| !memcached.login) else {
        return Ok(());
    };
    let open = switch(settings, "memcached-open")?.unwrap_or(false);
    if node.listen.is_loopback() || open {
        return Ok(());
    }
    let allowed = format!(
        "would let any client that reaches {} read and change the documents of bucket {} without a \
         login; give --memcached-sasl (clients log in), or --memcached-open (they need not), or \
         listen on loopback",
        node.listen, memcached.bucket
    );
    refuse(settings, "memcached-port", allowed)
}

/// Returns the settings of stand-ins. They are an error without `provisionable`, and so is an administrator,
/// which must be set over HTTP.
fn provisionable(settings: &Settings) -> Result<Option<StandInsConfig>, ConfigError> {
    let query_port = port(settings, "query-port")?;
    let search_port = port(settings, "search-port")?;
    if switch(settings, "provisionable")? != Some(true) {
        for key in ["query-port", "search-port"] {
            refuse(settings, key, "needs --provisionable")?;
        }
        return Ok(None);
    }
    for key in ["username", "password"] {
        let allowed = "must be left out where --provisionable is given: POST /settings/web names \
                       the administrator";
        refuse(settings, key, allowed)?;
    }
    let allowed = "must be left out where --provisionable is given";
    refuse(settings, "replica-of", allowed)?;
    Ok(Some(StandInsConfig {
        query_port: query_port.unwrap_or(8093),
        search_port: search_port.unwrap_or(8094),
    }))
}

/// Refuses settings for certificates if no TLS port is open.
fn check_certificate(node: &NodeConfig, settings: &Settings) -> Result<(), ConfigError> {
    let served = node.kv_tls_port.is_some() || node.https_port.is_some();
    if served {
        return Ok(());
    }
    ["tls-cert", "client-cert", "client-ca"]
        .into_iter()
        .try_for_each(|key| refuse(settings, key, "needs --kv-tls-port or --https-port"))
}

/// Returns whether clients send a certificate.
fn client_cert(settings: &Settings) -> Result<Option<CertificateState>, ConfigError> {
    let allowed = "must be off, optional or mandatory";
    parse(settings, "client-cert", allowed, |value| match value {
        "off" => Some(CertificateState::Disable),
        "optional" => Some(CertificateState::Enable),
        "mandatory" => Some(CertificateState::Mandatory),
        _ => None,
    })
}

/// Returns the bucket to follow; it is `default` if the address has none.
fn replica_of(settings: &Settings) -> Result<Option<ReplicaOf>, ConfigError> {
    let demote = switch(settings, "demote")?.unwrap_or(false);
    let Some(given) = settings.get("replica-of") else {
        return Ok(None);
    };
    let value = &given.values[0];
    let fail = |allowed: String| mistake("replica-of", given, value, allowed);
    let address: Address = value
        .parse()
        .map_err(|error| fail(format!("must be a connect string: {error}")))?;
    let beside = password(settings, "peer-password")?;
    let address = address.with_password(beside).map_err(|error| {
        let hint = "write USER:PASSWORD@HOST, or give --peer-password-file or SETTEE_PEER_PASSWORD";
        fail(format!("{error}: {hint}"))
    })?;
    let Some(login) = address.login else {
        return Err(fail(
            "must be couchbase[s]://USER[:PASSWORD]@HOST:PORT/BUCKET".into(),
        ));
    };
    let tls = peer_trust(settings)?;
    if !address.over_tls {
        ["peer-ca", "peer-cert"]
            .into_iter()
            .try_for_each(|key| refuse(settings, key, "needs --replica-of couchbases://"))?;
    }
    let tls = address.over_tls.then_some(tls);
    Ok(Some(ReplicaOf {
        host: address.host,
        port: address.port,
        username: login.user,
        password: login.password.into(),
        bucket: login.bucket,
        tls,
        demote,
    }))
}

/// Refuses durability levels that need a disk if there is no data directory.
fn check_levels(node: &NodeConfig, settings: &Settings) -> Result<(), ConfigError> {
    let on_disk = |bucket: &&BucketConfig| {
        let level = bucket.durability_min;
        node.data_dir.is_none() && level.is_some_and(DurabilityLevel::persists_on_active)
    };
    match (node.buckets.iter().find(on_disk), settings.get("bucket")) {
        (Some(bucket), Some(given)) => {
            let allowed = "level must be none or majority where documents are in memory only";
            Err(mistake("bucket", given, &bucket.name, allowed))
        }
        _ => Ok(()),
    }
}

/// Checks that the bucket that follows exists; `demote` needs a bucket to follow.
fn check_followed(node: &NodeConfig, settings: &Settings) -> Result<(), ConfigError> {
    let Some(of) = &node.replica_of else {
        let demote = settings.get("demote");
        return match demote.filter(|given| given.values[0] == "true") {
            Some(_) => {
                let allowed = "must be left out where no --replica-of is given";
                refuse(settings, "demote", allowed)
            }
            None => Ok(()),
        };
    };
    let here = node.buckets.iter().any(|bucket| bucket.name == of.bucket);
    match settings.get("replica-of").filter(|_| !here) {
        Some(given) => {
            let allowed = format!(
                "this node has no bucket {}; give it with --bucket",
                of.bucket
            );
            Err(mistake("replica-of", given, "", allowed))
        }
        None => Ok(()),
    }
}

/// Returns the data directory. `memory` and `data-dir` contradict each other if they have the same origin;
/// otherwise the origin with higher priority decides.
fn data_dir(settings: &Settings) -> Result<Option<PathBuf>, ConfigError> {
    let on = switch(settings, "memory")?;
    let directory = parse(settings, "data-dir", "must be a path", path)?;
    let Some(memory) = settings.get("memory").filter(|_| on == Some(true)) else {
        return Ok(Some(directory.unwrap_or_else(|| "./settee-data".into())));
    };
    match settings.get("data-dir") {
        Some(given) if given.origin > memory.origin => Ok(directory),
        Some(given) if given.origin == memory.origin => {
            let allowed = format!(
                "must be left out where {} is given",
                given.written("data-dir")
            );
            Err(mistake("memory", memory, &memory.values[0], allowed))
        }
        _ => Ok(None),
    }
}

fn username(settings: &Settings) -> Result<String, ConfigError> {
    let allowed = "must be 1 to 128 bytes without control characters or a colon";
    let name = parse(settings, "username", allowed, |value| {
        let plain = |c: char| !c.is_control() && c != ':';
        let fits = (1..=identity::USER_NAME_BYTES_MAX).contains(&value.len());
        (fits && value.chars().all(plain)).then(|| value.to_owned())
    })?;
    Ok(name.unwrap_or_else(|| "Administrator".into()))
}

fn threads(settings: &Settings) -> Result<usize, ConfigError> {
    let allowed = "must be a number from 1 to 1024";
    let given = number(settings, "threads", allowed, 1..=THREADS_MAX)?;
    let per_processor = || thread::available_parallelism().map_or(1, usize::from);
    Ok(given.unwrap_or_else(per_processor))
}

/// Returns the purge age; limits and default are those of the reference.
fn purge_age(settings: &Settings) -> Result<u64, ConfigError> {
    let allowed = "must be a number of seconds from 0 to 5184000";
    let given = number(settings, "purge-age", allowed, 0..=PURGE_AGE_S_MAX)?;
    Ok(given.unwrap_or(PURGE_AGE_S_DEFAULT))
}

fn journal_bytes(settings: &Settings) -> Result<u64, ConfigError> {
    let allowed = "must be a number of MiB from 1 to 1024";
    let given = number(settings, "journal", allowed, 1..=1024)?;
    Ok(given.unwrap_or(JOURNAL_MIB_DEFAULT) << 20)
}

fn encryption_keys(settings: &Settings) -> Result<Option<Arc<EncryptionKeys>>, ConfigError> {
    let Some(given) = settings.get("encryption-keys") else {
        return Ok(None);
    };
    let keys = server::encryption_keys(&given.values[0]);
    keys.map(Some).map_err(|error| {
        let file = settings.get("encryption-key-file");
        match file {
            Some(file) => mistake("encryption-key-file", file, &file.values[0], error),
            None => mistake("encryption-keys", given, "", error),
        }
    })
}

fn log_level(settings: &Settings) -> Result<LevelFilter, ConfigError> {
    let allowed = "must be error, warn, info, debug or trace";
    let level = parse(settings, "log-level", allowed, |value| match value {
        "error" => Some(LevelFilter::ERROR),
        "warn" => Some(LevelFilter::WARN),
        "info" => Some(LevelFilter::INFO),
        "debug" => Some(LevelFilter::DEBUG),
        "trace" => Some(LevelFilter::TRACE),
        _ => None,
    })?;
    Ok(level.unwrap_or(LevelFilter::INFO))
}

fn log_format(settings: &Settings) -> Result<LogFormat, ConfigError> {
    let allowed = "must be human or json";
    let format = parse(settings, "log-format", allowed, |value| match value {
        "human" => Some(LogFormat::Human),
        "json" => Some(LogFormat::Json),
        _ => None,
    })?;
    Ok(format.unwrap_or(LogFormat::Human))
}

fn buckets_max(settings: &Settings) -> Result<usize, ConfigError> {
    let allowed = format!("must be a number from 1 to {BUCKETS_MAX}");
    let given = number(settings, "buckets-max", &allowed, 1..=BUCKETS_MAX)?;
    Ok(given.unwrap_or(BUCKETS_MAX_DEFAULT))
}

fn buckets(settings: &Settings, max: usize) -> Result<Vec<BucketConfig>, ConfigError> {
    let Some(given) = settings.get("bucket") else {
        let set_up_later = switch(settings, "provisionable")? == Some(true);
        if set_up_later || settings.contains_key("cluster") {
            return Ok(Vec::new());
        }
        return Ok(vec![
            bucket("default").expect("the default bucket's name is allowed"),
        ]);
    };
    let mut names = HashSet::new();
    let mut buckets = Vec::with_capacity(given.values.len());
    for value in &given.values {
        let fail = |allowed: &str| mistake("bucket", given, value, allowed);
        let bucket = bucket(value).map_err(|allowed| fail(&allowed))?;
        if !names.insert(bucket.name.clone()) {
            return Err(fail("must not be given twice"));
        }
        if names.len() > max {
            let allowed = format!("is one too many, --buckets-max allows {max}");
            return Err(fail(&allowed));
        }
        buckets.push(bucket);
    }
    Ok(buckets)
}

fn is_bucket_name(name: &str) -> bool {
    let named = |c: char| c.is_ascii_alphanumeric() || "_-.%".contains(c);
    (1..=100).contains(&name.len()) && !name.starts_with('.') && name.chars().all(named)
}

/// Parses `NAME[:QUOTA_MIB[:KIND[:EVICTION[:LEVEL[:VBUCKETS]]]]]`; the error names the allowed values.
fn bucket(text: &str) -> Result<BucketConfig, String> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    if !is_bucket_name(name) {
        return Err(format!("name {BUCKET_NAME}"));
    }
    let quota_mib = match parts.next() {
        None => QUOTA_MIB_DEFAULT,
        Some(text) => text
            .parse()
            .ok()
            .filter(|mib| (QUOTA_MIB_MIN..=QUOTA_MIB_MAX).contains(mib))
            .ok_or_else(|| format!("quota must be {QUOTA_MIB_MIN} to {QUOTA_MIB_MAX} MiB"))?,
    };
    let kind = match parts.next() {
        None | Some("couchbase") => BucketKind::Couchbase,
        Some("ephemeral") => BucketKind::Ephemeral,
        Some(_) => return Err("kind must be couchbase or ephemeral".into()),
    };
    let eviction = match (kind, parts.next()) {
        (BucketKind::Couchbase, None | Some("value")) => EvictionPolicy::Values,
        (BucketKind::Couchbase, Some("full")) => EvictionPolicy::Documents,
        (BucketKind::Ephemeral, None | Some("none")) => EvictionPolicy::None,
        (BucketKind::Ephemeral, Some("nru")) => EvictionPolicy::Delete,
        (BucketKind::Couchbase, Some(_)) => {
            return Err("eviction of a couchbase bucket must be value or full".into());
        }
        (BucketKind::Ephemeral, Some(_)) => {
            return Err("eviction of an ephemeral bucket must be none or nru".into());
        }
    };
    let durability_min = parts
        .next()
        .map_or(Ok(None), |level| durability_min(kind, level))?;
    let vbuckets = parts.next().map(vbuckets).transpose()?;
    if parts.next().is_some() {
        return Err(
            "must be NAME[:QUOTA_MIB[:couchbase|ephemeral[:EVICTION[:LEVEL[:VBUCKETS]]]]]".into(),
        );
    }
    Ok(BucketConfig {
        name: name.into(),
        quota_bytes: quota_mib * MIB,
        kind,
        eviction,
        durability_min,
        vbuckets,
    })
}

/// Parses a number of vBuckets.
fn vbuckets(text: &str) -> Result<u16, String> {
    let count = text.parse().ok();
    count
        .filter(|count| VBUCKET_COUNTS.contains(count))
        .ok_or_else(|| "vBuckets must be 128 or 1024".into())
}

/// Parses the lowest durability level of a bucket's writes. A level that needs a disk needs a bucket on disk.
fn durability_min(kind: BucketKind, name: &str) -> Result<Option<DurabilityLevel>, String> {
    let level = DurabilityLevel::from_name(name);
    match (kind, level) {
        (BucketKind::Ephemeral, Some(level)) if level.persists_on_active() => {
            Err("level of an ephemeral bucket must be none or majority".into())
        }
        (_, None) if name != "none" => Err(
            "level must be none, majority, majorityAndPersistActive or persistToMajority".into(),
        ),
        _ => Ok(level),
    }
}

/// Refuses the default password, which is public, on addresses that other machines reach. A provisionable node,
/// which has no administrator yet, is allowed.
fn check_exposure(node: &NodeConfig, settings: &Settings) -> Result<(), ConfigError> {
    let named = settings.contains_key("password") || node.provisionable.is_some();
    if node.listen.is_loopback() || named {
        return Ok(());
    }
    let allowed = "is reachable from other machines, where the default password is no \
                   protection; give --password too, or listen on loopback";
    refuse(settings, "listen", allowed)
}

/// Checks that ports other than 0 differ.
fn check_ports(node: &NodeConfig, settings: &Settings) -> Result<(), ConfigError> {
    let memcached = node.memcached.as_ref().map(|memcached| memcached.port);
    let ports = [
        ("kv-port", node.kv_port),
        ("http-port", node.http_port),
        ("memcached-port", memcached.unwrap_or(0)),
        ("kv-tls-port", node.kv_tls_port.unwrap_or(0)),
        ("https-port", node.https_port.unwrap_or(0)),
        (
            "query-port",
            node.provisionable.map_or(0, |at| at.query_port),
        ),
        (
            "search-port",
            node.provisionable.map_or(0, |at| at.search_port),
        ),
    ];
    for (i, (later, port)) in ports.iter().enumerate() {
        let earlier = ports[..i]
            .iter()
            .find(|(_, other)| other == port && *port != 0);
        let Some((earlier, _)) = earlier else {
            continue;
        };
        // Names a port that was given: two defaults do not clash.
        let (key, other) = if settings.contains_key(later) {
            (later, earlier)
        } else {
            (earlier, later)
        };
        refuse(settings, key, format_args!("must differ from {other}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
