//! The flags of `settee serve`. Values stay texts here: flags, environment and file are checked by the same rules
//! afterwards, so that each has the same one-line errors.

use std::path::PathBuf;

use serde::Serialize;

/// Flags for the login to etcd and for its trusted certificates, for a node with --cluster and for commands that
/// ask etcd.
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
    /// File with the password of that user in its first line; the environment variable SETTEE_ETCD_PASSWORD or
    /// the setting etcd-password of the TOML file may hold it instead [env: SETTEE_ETCD_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_password_file: Option<String>,
    /// With etcd over TLS: certificates to trust, a PEM file [default: those of the system] [env: SETTEE_ETCD_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_ca: Option<String>,
    /// With etcd over TLS: client certificate, a PEM file, followed by those of its authorities [env: SETTEE_ETCD_CERT]
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
/// Every flag may also be given as SETTEE_<FLAG> in the environment (SETTEE_KV_PORT) and as a key of the TOML
/// file (kv-port); a flag has priority over the environment, and the environment over the file.
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
    /// IP address to listen on; any address but loopback needs a password of your own, or --provisionable
    /// [default: 127.0.0.1] [env: SETTEE_LISTEN]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Address at which other nodes and clients reach this node, if it differs from the one it listens on: host
    /// (an IPv6 address in brackets) and ports of a proxy or container in front of it; omitted ports are the
    /// node's own [default: the value of --listen, or the address that its connections come to]
    /// [env: SETTEE_ADVERTISE]
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
    /// Certificate of the ports with TLS, PEM, followed by those of its authorities; SIGHUP reloads it [default:
    /// a self-made one, see settee cert] [env: SETTEE_TLS_CERT]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<String>,
    /// Key of that certificate, PEM [env: SETTEE_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<String>,
    /// Whether clients of the TLS ports send a certificate: off, optional (the others log in) or mandatory. A
    /// certificate logs in the user named by its common name; POST /settings/clientCertAuth changes both
    /// [default: the value last set there, else off] [env: SETTEE_CLIENT_CERT]
    #[arg(long, value_name = "MODE")]
    pub(crate) client_cert: Option<String>,
    /// Authorities of client certificates, and their revocation lists, a PEM file; SIGHUP reloads it [default:
    /// the self-made authority; none if --tls-cert is given] [env: SETTEE_CLIENT_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<String>,
    /// Port for classic memcached clients, 0 for a free one: only documents and some statistics of one bucket
    /// [default: closed] [env: SETTEE_MEMCACHED_PORT]
    #[arg(long, value_name = "N")]
    pub(crate) memcached_port: Option<String>,
    /// Bucket of the memcached port [default: default] [env: SETTEE_MEMCACHED_BUCKET]
    #[arg(long, value_name = "NAME")]
    pub(crate) memcached_bucket: Option<String>,
    /// Require clients of the memcached port to log in with SASL, by name and password; not needed on loopback,
    /// elsewhere this or --memcached-open is needed [env: SETTEE_MEMCACHED_SASL=true]
    #[arg(long)]
    pub(crate) memcached_sasl: bool,
    /// Let clients of the memcached port work without a login, even from other machines: any client that reaches
    /// it may read and change the documents of its bucket [env: SETTEE_MEMCACHED_OPEN=true]
    #[arg(long)]
    pub(crate) memcached_open: bool,
    /// Start without an administrator, as an image for Testcontainers does: until POST /settings/web sets one,
    /// every client of the HTTP port may do everything. The node opens stand-ins for query, search and index
    /// services if they are requested (/node/controller/setupServices); it has no bucket unless --bucket names
    /// one [env: SETTEE_PROVISIONABLE=true]
    #[arg(long)]
    pub(crate) provisionable: bool,
    /// With --provisionable: port of the stand-in for queries, 0 for a free one [default: 8093]
    /// [env: SETTEE_QUERY_PORT]
    #[arg(long, value_name = "N")]
    pub(crate) query_port: Option<String>,
    /// With --provisionable: port of the stand-in for search, 0 for a free one [default: 8094]
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
    /// Bucket with: memory quota in MiB; kind, couchbase (on disk) or ephemeral; eviction when the memory is
    /// full, of a couchbase bucket values (value) or also keys and metadata (full), of an ephemeral bucket
    /// nothing, so that writes are refused (none), or the least used documents, which are deleted (nru); lowest
    /// durability level of every write, none, majority, majorityAndPersistActive or persistToMajority; number of
    /// vBuckets, 1024 or 128, which never changes. May be repeated [default: default:256:couchbase:value:none]
    /// [env: SETTEE_BUCKET, separated by commas]
    #[arg(
        long,
        value_name = "NAME[:QUOTA_MIB[:KIND[:EVICTION[:LEVEL[:VBUCKETS]]]]]"
    )]
    pub(crate) bucket: Vec<String>,
    /// Keep documents in memory only, without a data directory [env: SETTEE_MEMORY=true]
    #[arg(long)]
    pub(crate) memory: bool,
    /// Cluster to join, created by settee cluster init: its etcd (etcds:// for TLS) and its name; buckets, users
    /// and collections are then those of the cluster [env: SETTEE_CLUSTER]
    #[arg(long, value_name = "etcd[s]://HOST:PORT[,HOST:PORT...]/NAME")]
    pub(crate) cluster: Option<String>,
    /// With --cluster: name of this node, unique in the cluster [env: SETTEE_NODE_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// With --cluster: address of this node for clients of another network, announced as its alternate address
    /// `external`: SDKs choose it if their seed is such a host, or with network=external
    /// [env: SETTEE_ADVERTISE_OUTSIDE]
    #[arg(long, value_name = "HOST[:KV[:HTTP[:KV_TLS[:HTTPS]]]]")]
    pub(crate) advertise_outside: Option<String>,
    /// With --cluster: number of the failure zone of this node; copies of a vBucket are kept in different zones
    /// [default: 0] [env: SETTEE_ZONE]
    #[arg(long, value_name = "N")]
    pub(crate) zone: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) etcd: EtcdArgs,
    /// Follow a bucket of another node: the local bucket of the same name becomes its replica; couchbases:// for
    /// TLS. Without :PASSWORD the password is taken from --peer-password-file, from the environment variable
    /// SETTEE_PEER_PASSWORD or from the setting peer-password of the TOML file, which process lists do not show
    /// [env: SETTEE_REPLICA_OF]
    #[arg(long, value_name = "couchbase[s]://USER[:PASSWORD]@HOST:PORT/BUCKET")]
    pub(crate) replica_of: Option<String>,
    /// File with the password for --replica-of in its first line [env: SETTEE_PEER_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_password_file: Option<String>,
    /// With --replica-of couchbases://, and in a cluster with TLS between its nodes: certificates to trust, a PEM
    /// file with those of the authorities of all nodes; in a cluster SIGHUP reloads it [default: those of the
    /// system] [env: SETTEE_PEER_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_ca: Option<String>,
    /// Client certificate for the same connections, PEM; if the other node maps it to a user, name and password
    /// are not sent, except in a cluster [env: SETTEE_PEER_CERT]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_cert: Option<String>,
    /// Key of that certificate, PEM [env: SETTEE_PEER_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) peer_key: Option<String>,
    /// With --replica-of couchbases://: trust any certificate [env: SETTEE_PEER_INSECURE=true]
    #[arg(long)]
    pub(crate) peer_insecure: bool,
    /// With --replica-of: follow even if the local bucket has changes of its own; those that the other node does
    /// not have are discarded [env: SETTEE_DEMOTE=true]
    #[arg(long)]
    pub(crate) demote: bool,
    /// TOML file with settings [env: SETTEE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// File to which the ports in use are written, as JSON, once data is loaded and served [env: SETTEE_PORTS_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) ports_file: Option<String>,
    /// Seconds for which deletions are kept on disk: a follower of changes may be away that long [default:
    /// 259200, three days] [env: SETTEE_PURGE_AGE]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) purge_age: Option<String>,
    /// Size in MiB at which a bucket's write-ahead log becomes a sorted run; a start reads up to four times as
    /// much [default: 32] [env: SETTEE_JOURNAL]
    #[arg(long, value_name = "MIB")]
    pub(crate) journal: Option<String>,
    /// File with the keys of encryption at rest, a line ID:KEY for each, as made by settee encryption new-key:
    /// the first one encrypts, all of them decrypt. Only the owner may have access to the file. Without it, the
    /// environment variable SETTEE_ENCRYPTION_KEYS (keys separated by commas) or the setting encryption-keys of
    /// the TOML file may hold them [default: nothing is encrypted] [env: SETTEE_ENCRYPTION_KEY_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) encryption_key_file: Option<String>,
    /// Largest number of buckets, including those created while the node runs [default: 100] [env: SETTEE_BUCKETS_MAX]
    #[arg(long, value_name = "N")]
    pub(crate) buckets_max: Option<String>,
    /// Threads that serve connections [default: one per processor] [env: SETTEE_THREADS]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<String>,
    /// Lowest level of logged messages: error, warn, info, debug or trace [default: info] [env: SETTEE_LOG_LEVEL]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Format of the log on standard error: human or json [default: human] [env: SETTEE_LOG_FORMAT]
    #[arg(long, value_name = "FORM")]
    pub(crate) log_format: Option<String>,
}
