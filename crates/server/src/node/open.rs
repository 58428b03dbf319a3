//! Opens the buckets of a configuration and starts their workers.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use bucket::{Bucket, BucketOptions, Buffers, Clock, MemoryWaits, Pool, Workers};
use engine::VbConfig;
use model::DurabilityLevel;
use registry::{
    BucketConfig, BucketKind, BucketSettings, EvictionPolicy, Group, GroupRecord, OpenedBucket,
    StartAs, Store, collections,
};
use replication::ReplicaOf;
use storage::{
    DiskOptions, DiskStore, EncryptionKeys, ErrorKind, KvStore as _, MemStore, OpenError,
    OpenErrorKind, StoreError, Threads,
};
use tls::{Tls, TlsOptions};
use tokio::sync::watch;
use value::{SYSTEM_BYTES_MAX, VALUE_BYTES_MAX};

use super::audit_log::AuditLog;
use super::client_certificates;
use super::configured::Configured;
use super::data_dir::{DataDir, check_cluster, check_complete, check_finished};
use super::identities::Identities;
use super::memory_limits;
use super::node_record::NodeRecord;
use super::random::{random_u64, random_vb_uuid};
use super::users::KeptUsers;
use crate::config::{NodeConfig, StartError};

/// Shortest time between two commits for which no client waits, ms: a crash may lose the writes without durability of
/// this time. A client that observes persistence makes the flusher commit at once.
const FLUSH_INTERVAL_MS: u64 = 50;

/// Interval between two passes for expired documents, s.
const EXPIRY_PASS_S: u32 = 600;

/// The data of the node.
pub(super) struct NodeData {
    pub(super) kept: NodeRecord,
    pub(super) users: KeptUsers,
    pub(super) audit: AuditLog,
    pub(super) buckets: Vec<OpenedBucket>,
    pub(super) tls: Option<Tls>,
}

/// Parts with which each bucket of the node is opened.
pub(super) struct Launcher {
    clock: Arc<dyn Clock>,
    /// Runs the workers of all buckets.
    pool: Arc<Pool>,
    pub(super) buffers: Arc<Buffers>,
    pub(super) configured: Arc<Configured>,
    /// Data directory, if there is one.
    pub(super) data_dir: Option<PathBuf>,
    journal_bytes: u64,
    encryption_keys: Option<Arc<EncryptionKeys>>,
    /// Whether the node is in a cluster.
    member: bool,
}

/// Identity of a bucket, and its role in the group of nodes that have it.
struct BucketIdentity<'a> {
    uuid: String,
    /// Epoch of the bucket's map.
    epoch: i64,
    standing: GroupRecord,
    follows: Option<&'a ReplicaOf>,
    /// Whether the node is in a cluster.
    member: bool,
    /// Age at which the bucket purges tombstones, seconds.
    purge_age_s: u64,
}

/// Opens every bucket; `warmed` counts those whose warmup ended.
pub(super) fn open_buckets(
    config: &NodeConfig,
    launcher: &Launcher,
    warmed: &watch::Sender<usize>,
) -> Result<NodeData, StartError> {
    let (dir, identities) = match &config.data_dir {
        Some(path) => {
            let (dir, identities) = DataDir::open(path)?;
            (Some(dir), identities)
        }
        None => (None, Identities::new()),
    };
    check_role(config, &identities)?;
    let users = KeptUsers::load(config.data_dir.as_deref())?;
    let audit = AuditLog::open(config.data_dir.as_deref(), launcher.clock.now().unix_ns)?;
    let mut kept = NodeRecord { dir, identities };
    kept.remove_dropped()?;
    let wanted = configured_buckets(config, &kept)?;
    kept.note_new(&wanted)?;
    // Warn before the buckets' threads start: a thread that finds no memory for its stack ends the process.
    memory_limits::tell(wanted.iter().map(|of| of.bucket.quota_bytes).sum());
    // Open all stores first: nothing runs if one of them is refused.
    let mut stores = Stores::default();
    for settings in &wanted {
        let opened = launcher.open_store(&settings.bucket, kept.dir.as_ref());
        stores
            .0
            .push(opened.map_err(|error| stores.refused(error))?);
    }
    warn_of_unclean(&wanted, &stores);
    let tls = open_tls(config, &kept.identities).map_err(|error| stores.refused(error))?;
    let mut buckets = Vec::new();
    for settings in wanted {
        let store = stores.0.remove(0);
        let name = &settings.bucket.name;
        let of = config.replica_of.as_ref();
        let known = BucketIdentity {
            uuid: kept.identities.bucket(name),
            epoch: kept.identities.epoch(name),
            standing: kept.identities.group_record(name),
            follows: of.filter(|of| of.bucket == *name),
            member: config.cluster.is_some(),
            purge_age_s: launcher
                .configured
                .purge_age_s(&settings, &kept.identities.cluster),
        };
        let warmed = warmed.clone();
        let done = move || warmed.send_modify(|count| *count += 1);
        match launcher.start(settings, store, known, done) {
            Ok(opened) => buckets.push(opened),
            Err(error) => {
                stop(&buckets);
                return Err(stores.refused(error));
            }
        }
    }
    Ok(NodeData {
        kept,
        users,
        audit,
        buckets,
        tls,
    })
}

/// Checks that the data directory fits the role of the node, as its configuration and its records have it.
fn check_role(config: &NodeConfig, kept: &Identities) -> Result<(), StartError> {
    let Some(directory) = &config.data_dir else {
        return Ok(());
    };
    check_finished(directory)?;
    let cluster = config.cluster.as_ref().map(|cluster| &*cluster.name);
    check_cluster(directory, cluster, kept.member_of.as_ref())?;
    if let Some(name) = cluster {
        return check_complete(directory, &format!("cluster {name}"));
    }
    let follows = |of: &&ReplicaOf| {
        let standing = kept.group_record(&of.bucket);
        standing.start_as(Some(&of.following())) == StartAs::Replica
    };
    match config.replica_of.as_ref().filter(follows) {
        Some(of) => check_complete(directory, &format!("{}:{}", of.host, of.port)),
        None => Ok(()),
    }
}

/// Returns the configured hosts under which the node is reached.
fn advertised_hosts(config: &NodeConfig) -> Vec<String> {
    let outside = config
        .cluster
        .as_ref()
        .and_then(|cluster| cluster.outside.as_ref());
    let all = config.advertise.iter().chain(outside);
    all.map(|advertised| advertised.host.clone()).collect()
}

/// Opens the TLS of the ports with TLS; `None` if there is no such port.
fn open_tls(config: &NodeConfig, kept: &Identities) -> Result<Option<Tls>, StartError> {
    if config.kv_tls_port.is_none() && config.https_port.is_none() {
        return Ok(None);
    }
    let options = TlsOptions {
        certificate: config.certificate.clone(),
        data_dir: config.data_dir.clone(),
        listen: config.listen,
        advertised: advertised_hosts(config),
        client_ca: config.client_ca.clone(),
    };
    let tls = Tls::open(options).map_err(StartError::Certificate)?;
    let settings = client_certificates::at_start(config, &kept.cluster);
    client_certificates::check(&tls, &settings).map_err(StartError::Certificate)?;
    tls.ask_clients(client_certificates::ask(&settings));
    Ok(Some(tls))
}

/// Number of buckets that a line of the log names.
const NAMES_LOGGED: usize = 5;

/// A store that nothing uses yet.
struct OpenedStore {
    store: Store,
    /// Whether the last stop of the store was clean.
    clean: bool,
}

/// The stores of all buckets.
#[derive(Default)]
struct Stores(Vec<OpenedStore>);

impl Stores {
    /// Closes stores that had a clean stop, so that a refused start does not count as an unclean stop of them. Returns
    /// the error.
    fn refused(&self, error: StartError) -> StartError {
        for opened in &self.0 {
            if opened.clean
                && let Err(error) = opened.store.close()
            {
                tracing::warn!(%error, "a store did not close well");
            }
        }
        error
    }
}

/// Logs that the last stop was not clean, in one line for all buckets.
fn warn_of_unclean(settings: &[BucketSettings], stores: &Stores) {
    let all = settings.iter().zip(&stores.0);
    let unclean = all.filter(|(_, opened)| !opened.clean);
    let unclean: Vec<&str> = unclean.map(|(one, _)| &*one.bucket.name).collect();
    if !unclean.is_empty() {
        let (buckets, names) = (unclean.len(), first_names(&unclean));
        tracing::warn!(buckets, names, "the last stop was not a clean one");
    }
}

/// Returns the first names of a list, for the log.
fn first_names(names: &[&str]) -> String {
    let first = names.iter().take(NAMES_LOGGED).copied();
    let rest = (names.len() > NAMES_LOGGED).then_some("...");
    first.chain(rest).collect::<Vec<_>>().join(", ")
}

/// Stops buckets that run already.
fn stop(buckets: &[OpenedBucket]) {
    for opened in buckets {
        if let Err(error) = opened.workers.stop() {
            let bucket = opened.bucket.name();
            tracing::warn!(bucket, %error, "a bucket did not stop well");
        }
    }
}

/// Returns the configured buckets, then those that were created while the node ran.
fn configured_buckets(
    config: &NodeConfig,
    kept: &NodeRecord,
) -> Result<Vec<BucketSettings>, StartError> {
    for one in &config.buckets {
        kept.identities
            .check_vbuckets(one)
            .map_err(StartError::DataFormat)?;
    }
    let mut made = kept.identities.made();
    let settings_of = |one| kept.identities.settings_of(one);
    let configured: Vec<BucketSettings> = config.buckets.iter().map(settings_of).collect();
    made.retain(|one| {
        let same = |other: &BucketSettings| other.bucket.name == one.bucket.name;
        !configured.iter().any(same)
    });
    Ok(configured.into_iter().chain(made).collect())
}

impl Launcher {
    /// Creates a launcher, with the pool that runs the workers of all buckets.
    pub(super) fn new(config: &NodeConfig, clock: Arc<dyn Clock>, waits: MemoryWaits) -> Self {
        Self {
            clock,
            pool: Arc::new(Pool::new()),
            buffers: Arc::new(Buffers::new(waits)),
            configured: Arc::new(Configured::new(config)),
            data_dir: config.data_dir.clone(),
            journal_bytes: config.journal_bytes,
            encryption_keys: config.encryption_keys.clone(),
            member: config.cluster.is_some(),
        }
    }

    /// Opens one more bucket while the node runs, and waits until its warmup is over. A store of its name must not
    /// exist.
    pub(super) fn open_new(
        &self,
        settings: BucketSettings,
        kept: &NodeRecord,
        uuid: String,
    ) -> Result<OpenedBucket, StartError> {
        let dir = kept.dir.as_ref();
        let store = self.open_store(&settings.bucket, dir)?;
        let (done, warm) = mpsc::channel();
        let done = move || drop(done);
        let known = BucketIdentity {
            uuid,
            epoch: 1,
            standing: GroupRecord::default(),
            follows: None,
            member: self.member,
            purge_age_s: self
                .configured
                .purge_age_s(&settings, &kept.identities.cluster),
        };
        let opened = self.start(settings, store, known, done)?;
        // An empty store is loaded at once. The channel carries no message: it ends with the warmup.
        for () in warm {}
        Ok(opened)
    }

    /// Opens the store of a bucket.
    fn open_store(
        &self,
        bucket: &BucketConfig,
        dir: Option<&DataDir>,
    ) -> Result<OpenedStore, StartError> {
        match (bucket.kind, dir) {
            (BucketKind::Couchbase, Some(dir)) => {
                let path = dir.bucket(&bucket.name);
                let options = DiskOptions {
                    log_bytes: self.journal_bytes,
                    ..DiskOptions::default()
                };
                let threads: &dyn Threads = &*self.pool;
                let keys = self.encryption_keys.as_ref();
                let (store, opened) = DiskStore::open_with(threads, &path, options, keys)
                    .map_err(|error| start_error(&error))?;
                Ok(OpenedStore {
                    store: Store::Disk(Box::new(store)),
                    clean: opened.clean,
                })
            }
            _ => Ok(OpenedStore {
                store: Store::Memory(MemStore::new()),
                clean: true,
            }),
        }
    }

    fn start(
        &self,
        settings: BucketSettings,
        OpenedStore { store, clean }: OpenedStore,
        known: BucketIdentity<'_>,
        done: impl FnOnce() + Send + 'static,
    ) -> Result<OpenedBucket, StartError> {
        let config = &settings.bucket;
        let eviction = config.eviction(matches!(store, Store::Disk(_)));
        let options = BucketOptions {
            name: config.name.clone(),
            vbuckets: config.vbuckets(),
            quota_bytes: config.quota_bytes,
            vb: Arc::new(VbConfig {
                hash_seed: random_u64(),
                value_bytes_max: VALUE_BYTES_MAX,
                system_bytes_max: SYSTEM_BYTES_MAX,
                evicts_keys: eviction == EvictionPolicy::Documents,
                // Without a disk no persistence can be promised.
                durability_max: match store {
                    Store::Disk(_) => DurabilityLevel::PersistToMajority,
                    Store::Memory(_) => DurabilityLevel::Majority,
                },
                durability_min: config.durability_min,
                durability_falls_back: settings.durability_falls_back,
                max_ttl_s: settings.max_ttl_s,
                conflicts: settings.conflicts,
                ..VbConfig::default()
            }),
            clean,
            eviction,
            compression: settings.compression,
            compress: value::compress,
            expiry_pass_s: EXPIRY_PASS_S,
            history: settings.history.retention(),
            purge_age_s: known.purge_age_s,
            flush_interval_ms: FLUSH_INTERVAL_MS,
            member: known.member,
            buffers: Arc::clone(&self.buffers),
        };
        let bucket = Bucket::open(options, store, Arc::clone(&self.clock), &mut random_vb_uuid)
            .map_err(|error| StartError::DataFormat(format!("bucket {}: {error}", config.name)))?;
        let group = take_part(&bucket, &known.standing, known.follows)?;
        let workers = Workers::start(&self.pool, &bucket, random_vb_uuid, done)
            .map_err(|error| StartError::System(memory_limits::no_thread(&error)))?;
        Ok(OpenedBucket {
            bucket,
            workers,
            uuid: known.uuid,
            settings,
            epoch: known.epoch,
            group,
        })
    }
}

fn start_error(error: &OpenError) -> StartError {
    let text = error.to_string();
    match error.kind {
        OpenErrorKind::InUse => StartError::DataInUse(text),
        OpenErrorKind::NewerFormat
        | OpenErrorKind::OlderFormat
        | OpenErrorKind::Foreign
        | OpenErrorKind::Damaged => StartError::DataFormat(text),
        OpenErrorKind::Unreadable | OpenErrorKind::Io => StartError::DataAccess(text),
        OpenErrorKind::NoSpace => StartError::NoSpace(text),
        OpenErrorKind::Key => {
            StartError::DataKey(format!("{text}; give it with --encryption-key-file"))
        }
    }
}

/// Restores the stored manifest of a bucket. If its text is damaged, the manifest is rebuilt from the vBuckets.
fn restore_manifest(bucket: &Bucket<Store>) -> Result<(), StartError> {
    let refused =
        |error: StoreError| StartError::DataAccess(format!("bucket {}: {error}", bucket.name()));
    let text = match bucket.store().manifest() {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(()),
        Err(error) if error.kind == ErrorKind::Corrupt => {
            tracing::error!(bucket = bucket.name(), %error, "looking at the vBuckets instead");
            return Ok(());
        }
        Err(error) => return Err(refused(error)),
    };
    match collections::of_json(&text) {
        Ok(manifest) => bucket.restore_manifest(manifest),
        Err(error) => {
            let bucket = bucket.name();
            tracing::error!(bucket, %error, "the manifest makes no sense; looking at the vBuckets instead");
        }
    }
    Ok(())
}

/// Replaces the stored manifest of a bucket that follows another node's by the collections of its vBuckets: the stored
/// one may be of another history.
fn forget_manifest(bucket: &Bucket<Store>) -> Result<(), StartError> {
    if matches!(bucket.store().manifest(), Ok(None)) {
        return Ok(());
    }
    bucket
        .keep_manifest(collections::to_bytes)
        .map_err(|error| StartError::DataAccess(format!("bucket {}: {error}", bucket.name())))
}

/// Sets the states of the vBuckets by the role of this node in the bucket's group. Returns the group.
fn take_part(
    bucket: &Bucket<Store>,
    standing: &GroupRecord,
    of: Option<&ReplicaOf>,
) -> Result<Group, StartError> {
    let name = bucket.name();
    let not_replica = |own| StartError::NotReplica {
        bucket: name.to_owned(),
        own,
    };
    let become_replica = |demote| {
        let done = bucket.become_replica(demote, random_vb_uuid());
        done.map_err(not_replica)
    };
    let following = of.map(ReplicaOf::following);
    match (standing.start_as(following.as_ref()), of) {
        (StartAs::Replica, Some(of)) => {
            let own = bucket.changed_vbuckets();
            if standing.superseded && !of.demote && own > 0 {
                return Err(not_replica(own));
            }
            become_replica(of.demote)?;
            forget_manifest(bucket)?;
        }
        (StartAs::Superseded, _) => {
            tracing::warn!(
                bucket = name,
                "another node was promoted: the bucket is not active here. It follows that node when \
                 started with --replica-of and --demote; settee promote --force makes it active"
            );
            restore_manifest(bucket)?;
            become_replica(true)?;
        }
        (StartAs::Promoted, _) => {
            tracing::warn!(
                bucket = name,
                "this node was promoted: it starts as the active one and does not follow the node that \
                 --replica-of names; --demote would make it follow"
            );
            restore_manifest(bucket)?;
            bucket.become_active(random_vb_uuid());
        }
        _ => restore_manifest(bucket)?,
    }
    Ok(standing.group(following.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_names_only_some_buckets() {
        let names = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(first_names(&names[..1]), "a");
        assert_eq!(first_names(&names[..5]), "a, b, c, d, e");
        assert_eq!(first_names(&names), "a, b, c, d, e, ...");
    }
}
