//! The flags. Values stay texts here: flag, environment and file are checked by the same rules
//! afterwards, so that each has the same one-line error.

use std::path::PathBuf;

use serde::Serialize;

/// How one logs in to etcd, and what is trusted of it: of a node with --cluster, and of commands that ask etcd themselves.
#[derive(Clone, Debug, Default, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(
    clippy::struct_field_names,
    reason = "they are called as the flags are"
)]
pub(crate) struct EtcdArgs {
    /// User of etcd [default: no login] [env: SETTEE_ETCD_USERNAME]
    #[arg(long, value_name = "U")]
    pub(crate) etcd_username: Option<String>,
    /// File with the password of that user, in its first line; SETTEE_ETCD_PASSWORD in the environment, or etcd-password
    /// in the file of settings, may hold it instead [env: SETTEE_ETCD_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_password_file: Option<String>,
    /// With etcd over TLS: certificates to trust, a PEM file [default: what the system trusts] [env: SETTEE_ETCD_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_ca: Option<String>,
    /// With etcd over TLS: certificate to show, a PEM file with those of its authorities behind it
    /// [env: SETTEE_ETCD_CERT]
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_cert: Option<String>,
    /// Key of that certificate, PEM [env: SETTEE_ETCD_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_key: Option<String>,
    /// With etcd over TLS: trust any certificate [env: SETTEE_ETCD_INSECURE=true]
    #[arg(long)]
    pub(crate) etcd_insecure: bool,
}

/// Run a node.
///
/// Every flag may also be given as SETTEE_<FLAG> in the environment (SETTEE_KV_PORT) and as a
/// key of the TOML file (kv-port); a flag wins over the environment, that over the file.
#[derive(Clone, Debug, Default, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag that is given or not"
)]
pub(crate) struct ServeArgs {
    /// Directory for the documents [default: ./settee-data] [env: SETTEE_DATA_DIR]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<String>,
    /// IP address to listen on; anything but loopback needs a password of your own, or
    /// --provisionable
    /// [default: 127.0.0.1] [env: SETTEE_LISTEN]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Where other nodes, and clients, reach this one, if that is not where it listens: host, an IPv6 address in
    /// brackets, and ports of a proxy or container before it; ports that are left out are its own
    /// [default: what --listen says, or where its connections come from] [env: SETTEE_ADVERTISE]
    #[arg(long, value_name = "HOST[:KV[:HTTP[:KV_TLS[:HTTPS]]]]")]
    pub(crate) advertise: Option<String>,
    /// Port of the KV protocol, 0 for a free one [default: 11210] [env: SETTEE_KV_PORT]
    #[arg(long, value_name = "N")]
    pub(crate) kv_port: Option<String>,
    /// Port of the KV protocol over TLS (couchbases://), 0 for a free one; usually 11207
    /// [default: closed] [env: SETTEE_KV_TLS_PORT]
    #[arg(long, value_name = "N")]
    pub(crate) kv_tls_port: Option<String>,
    /// Port of HTTP management, 0 for a free one [default: 8091] [env: SETTEE_HTTP_PORT]
    #[arg(long, value_name = "N")]
    pub(crate) http_port: Option<String>,
    /// Port of HTTP management over TLS, 0 for a free one; usually 18091
    /// [default: closed] [env: SETTEE_HTTPS_PORT]
    #[arg(long, value_name = "N")]
    pub(crate) https_port: Option<String>,
    /// Certificate of the ports with TLS, PEM, followed by those of its authorities; SIGHUP reads
    /// it again [default: one that the node makes, see settee cert] [env: SETTEE_TLS_CERT]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<String>,
    /// Key of that certificate, PEM [env: SETTEE_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<String>,
    /// Whether clients of the ports with TLS show a certificate: off, optional (the others log in) or mandatory. It stands
    /// for the user that its common name names; POST /settings/clientCertAuth changes both
    /// [default: what was set there last, else off] [env: SETTEE_CLIENT_CERT]
    #[arg(long, value_name = "MODE")]
    pub(crate) client_cert: Option<String>,
    /// Authorities of client certificates, and their revocation lists, a PEM file; SIGHUP reads it again [default: the
    /// authority that the node makes; none where --tls-cert is given] [env: SETTEE_CLIENT_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<String>,
    /// Port for classic memcached clients, 0 for a free one: documents and some statistics of one
    /// bucket, nothing else [default: closed] [env: SETTEE_MEMCACHED_PORT]
    #[arg(long, value_name = "N")]
    pub(crate) memcached_port: Option<String>,
    /// The bucket of that port [default: default] [env: SETTEE_MEMCACHED_BUCKET]
    #[arg(long, value_name = "NAME")]
    pub(crate) memcached_bucket: Option<String>,
    /// Clients of that port must log in with SASL, name and password; on the loopback they need
    /// not, elsewhere it is this or --memcached-open [env: SETTEE_MEMCACHED_SASL=true]
    #[arg(long)]
    pub(crate) memcached_sasl: bool,
    /// Clients of that port need no login, also those of other machines: any client that reaches it may read
    /// and change the documents of its bucket [env: SETTEE_MEMCACHED_OPEN=true]
    #[arg(long)]
    pub(crate) memcached_open: bool,
    /// Start without an administrator, as an image for Testcontainers does: until POST /settings/web names one,
    /// every client of the HTTP port may do everything. Stands in for query, search and index services where
    /// they are asked for (/node/controller/setupServices); no bucket unless --bucket names one
    /// [env: SETTEE_PROVISIONABLE=true]
    #[arg(long)]
    pub(crate) provisionable: bool,
    /// With --provisionable: port of what stands in for queries, 0 for a free one [default: 8093]
    /// [env: SETTEE_QUERY_PORT]
    #[arg(long, value_name = "N")]
    pub(crate) query_port: Option<String>,
    /// With --provisionable: port of what stands in for search, 0 for a free one [default: 8094]
    /// [env: SETTEE_SEARCH_PORT]
    #[arg(long, value_name = "N")]
    pub(crate) search_port: Option<String>,
    /// Name of the administrator [default: Administrator] [env: SETTEE_USERNAME]
    #[arg(long, value_name = "U")]
    pub(crate) username: Option<String>,
    /// Password of the administrator; the environment or the file hide it from process lists
    /// [default: password] [env: SETTEE_PASSWORD]
    #[arg(long, value_name = "P")]
    pub(crate) password: Option<String>,
    /// Bucket with its memory in MiB, its kind, couchbase (on disk) or ephemeral, and what
    /// leaves memory when that is full: of a couchbase bucket values (value) or keys and
    /// metadata too (full); of an ephemeral one nothing, writes are refused (none), or the
    /// documents used least are deleted (nru); how durable every write must be at least: none,
    /// majority, majorityAndPersistActive or persistToMajority; last, the number of its vBuckets,
    /// 1024 or 128, which stays as it was made; may be repeated
    /// [default: default:256:couchbase:value:none] [env: SETTEE_BUCKET, separated by commas]
    #[arg(
        long,
        value_name = "NAME[:QUOTA_MIB[:KIND[:EVICTION[:LEVEL[:VBUCKETS]]]]]"
    )]
    pub(crate) bucket: Vec<String>,
    /// Keep documents in memory only, without a data directory [env: SETTEE_MEMORY=true]
    #[arg(long)]
    pub(crate) memory: bool,
    /// Join a cluster that settee cluster init made: its etcd, etcds:// for TLS, and its name; buckets, users and
    /// collections are the cluster's [env: SETTEE_CLUSTER]
    #[arg(long, value_name = "etcd[s]://HOST:PORT[,HOST:PORT...]/NAME")]
    pub(crate) cluster: Option<String>,
    /// With --cluster: name of this node, that no other node has [env: SETTEE_NODE_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// With --cluster: where clients of another network reach this node, told as its alternate address `external`: SDKs
    /// choose it when their seed is such a host, or with network=external [env: SETTEE_ADVERTISE_OUTSIDE]
    #[arg(long, value_name = "HOST[:KV[:HTTP[:KV_TLS[:HTTPS]]]]")]
    pub(crate) advertise_outside: Option<String>,
    /// With --cluster: number of the zone that the node fails with; copies are kept in different ones
    /// [default: 0] [env: SETTEE_ZONE]
    #[arg(long, value_name = "N")]
    pub(crate) zone: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) etcd: EtcdArgs,
    /// Follow a bucket of another node: the bucket of the same name here becomes its replica;
    /// couchbases:// for TLS. Without :PASSWORD it is that of --peer-password-file, or of
    /// SETTEE_PEER_PASSWORD in the environment or peer-password in the file: process lists show none of them
    /// [env: SETTEE_REPLICA_OF]
    #[arg(long, value_name = "couchbase[s]://USER[:PASSWORD]@HOST:PORT/BUCKET")]
    pub(crate) replica_of: Option<String>,
    /// File with the password for --replica-of, in its first line [env: SETTEE_PEER_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_password_file: Option<String>,
    /// With --replica-of couchbases://, and in a cluster with TLS between its nodes: certificates to trust, a PEM file with
    /// those of the authorities of all nodes; in a cluster SIGHUP reads it again
    /// [default: what the system trusts] [env: SETTEE_PEER_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_ca: Option<String>,
    /// Likewise: certificate to show, PEM; where the other node takes it for that of a user, name and password are not
    /// sent, but in a cluster [env: SETTEE_PEER_CERT]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_cert: Option<String>,
    /// Key of that certificate, PEM [env: SETTEE_PEER_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_key: Option<String>,
    /// With --replica-of couchbases://: trust any certificate [env: SETTEE_PEER_INSECURE=true]
    #[arg(long)]
    pub(crate) peer_insecure: bool,
    /// With --replica-of: also if the bucket here has changes of its own, which are given up as
    /// far as the other node does not have them [env: SETTEE_DEMOTE=true]
    #[arg(long)]
    pub(crate) demote: bool,
    /// TOML file with settings [env: SETTEE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// File to write the ports in use to, as JSON, once data is loaded and served
    /// [env: SETTEE_PORTS_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) ports_file: Option<String>,
    /// Seconds for which deletions are kept on disk, so that a follower of changes may be away so
    /// long [default: 259200, three days] [env: SETTEE_PURGE_AGE]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) purge_age: Option<String>,
    /// MiB of a bucket's write-ahead log at which it becomes a sorted run; a start reads up to four times as
    /// many [default: 32] [env: SETTEE_JOURNAL]
    #[arg(long, value_name = "MIB")]
    pub(crate) journal: Option<String>,
    /// File with the keys of encryption at rest, a line ID:KEY for each, as settee encryption new-key makes them:
    /// the first one writes, all of them read. The file must be its owner's alone. Without it, SETTEE_ENCRYPTION_KEYS in
    /// the environment, separated by commas, or encryption-keys in the file may hold them
    /// [default: nothing is encrypted] [env: SETTEE_ENCRYPTION_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_key_file: Option<String>,
    /// Buckets that there may be, with those made while the node runs [default: 100]
    /// [env: SETTEE_BUCKETS_MAX]
    #[arg(long, value_name = "N")]
    pub(crate) buckets_max: Option<String>,
    /// Threads that serve connections [default: one per processor] [env: SETTEE_THREADS]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<String>,
    /// Least important messages to log: error, warn, info, debug or trace
    /// [default: info] [env: SETTEE_LOG_LEVEL]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Form of the log on standard error: human or json [default: human]
    /// [env: SETTEE_LOG_FORMAT]
    #[arg(long, value_name = "FORM")]
    pub(crate) log_format: Option<String>,
}
