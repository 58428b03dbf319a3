use std::path::PathBuf;

use super::*;
use crate::exit::Sysexit;
use crate::serve::settings::ValueOrigin;
use crate::serve::settings::tests::from_flags;

fn config(given: &[(&str, &str)]) -> ServeConfig {
    ServeConfig::from_settings(&from_flags(given)).unwrap()
}

/// Returns the error line for these flags.
fn line(given: &[(&str, &str)]) -> String {
    let error = ServeConfig::from_settings(&from_flags(given)).unwrap_err();
    assert_eq!(error.code, Sysexit::Usage);
    error.line
}

#[test]
fn defaults_are_the_documented_ones() {
    let config = config(&[]);
    let node = &config.node;
    assert_eq!(node.data_dir, Some(PathBuf::from("./settee-data")));
    assert_eq!(node.listen, IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(
        (node.kv_port, node.http_port, &node.memcached),
        (11210, 8091, &None)
    );
    assert_eq!(
        (node.username.as_str(), node.password.as_str()),
        ("Administrator", "password")
    );
    let default = BucketConfig {
        name: "default".into(),
        quota_bytes: 256 * MIB,
        kind: BucketKind::Couchbase,
        eviction: EvictionPolicy::Values,
        durability_min: None,
        vbuckets: None,
    };
    assert_eq!(node.buckets, [default]);
    assert!(node.threads >= 1);
    assert_eq!(config.ports_file, None);
    assert_eq!(
        (config.log_level, config.log_format),
        (LevelFilter::INFO, LogFormat::Human)
    );
}

#[test]
fn every_setting_reaches_configuration() {
    let config = config(&[
        ("data-dir", "/srv/couch"),
        ("listen", "::1"),
        ("kv-port", "0"),
        ("http-port", "0"),
        ("memcached-port", "0"),
        ("memcached-bucket", "b"),
        ("memcached-sasl", "true"),
        ("username", "u"),
        ("password", "p"),
        ("bucket", "a:64"),
        ("bucket", "b:100:ephemeral"),
        ("ports-file", "/run/ports.json"),
        ("threads", "3"),
        ("purge-age", "5184000"),
        ("journal", "3"),
        ("buckets-max", "7"),
        ("log-level", "trace"),
        ("log-format", "json"),
    ]);
    let bucket = |name: &str, mib, kind, eviction| BucketConfig {
        name: name.into(),
        quota_bytes: mib * MIB,
        kind,
        eviction,
        durability_min: None,
        vbuckets: None,
    };
    let node = NodeConfig {
        data_dir: Some("/srv/couch".into()),
        listen: "::1".parse().unwrap(),
        advertise: None,
        kv_port: 0,
        http_port: 0,
        memcached: Some(MemcachedPort {
            port: 0,
            bucket: "b".into(),
            login: true,
        }),
        kv_tls_port: None,
        https_port: None,
        certificate: None,
        client_cert: None,
        client_ca: None,
        provisionable: None,
        username: "u".into(),
        password: "p".into(),
        buckets: vec![
            bucket("a", 64, BucketKind::Couchbase, EvictionPolicy::Values),
            bucket("b", 100, BucketKind::Ephemeral, EvictionPolicy::None),
        ],
        buckets_max: 7,
        replica_of: None,
        cluster: None,
        threads: 3,
        purge_age_s: 5_184_000,
        journal_bytes: 3 << 20,
        encryption_keys: None,
    };
    let expected = ServeConfig {
        node,
        ports_file: Some("/run/ports.json".into()),
        log_level: LevelFilter::TRACE,
        log_format: LogFormat::Json,
    };
    assert_eq!(config, expected);
}

#[test]
fn replica_takes_password_and_trust_from_own_settings() {
    let at = "couchbases://u@h:1/default";
    let given = [
        ("replica-of", at),
        ("peer-password", "p"),
        ("peer-ca", "/ca.pem"),
    ];
    let config = ServeConfig::from_settings(&from_flags(&given)).unwrap();
    let of = config.node.replica_of.unwrap();
    assert_eq!(
        (of.username.as_str(), of.password.as_str(), of.port),
        ("u", "p", 1)
    );
    let ca = Some("/ca.pem".into());
    let insecure = false;
    let own = None;
    assert_eq!(of.tls, Some(server::Trust { ca, insecure, own }));
    for (given, part) in [
        (&[("replica-of", at)][..], "no password"),
        (
            &[("replica-of", "couchbase://u:p@h"), ("peer-ca", "/ca.pem")],
            "couchbases://",
        ),
        (
            &[
                ("replica-of", at),
                ("peer-password", "p"),
                ("peer-ca", "c"),
                ("peer-insecure", "true"),
            ],
            "--peer-insecure",
        ),
        (&[("advertise", "http://h")], "HOST[:KV"),
    ] {
        let error = ServeConfig::from_settings(&from_flags(given)).unwrap_err();
        assert!(error.line.contains(part), "{}", error.line);
    }
}

#[test]
fn advertised_addresses_need_their_settings() {
    let member = [
        ("cluster", "etcd://e/shop"),
        ("node-name", "a"),
        ("listen", "0.0.0.0"),
        ("password", "p"),
    ];
    let with = |more: &[(&'static str, &'static str)]| {
        let given = [&member[..], more].concat();
        ServeConfig::from_settings(&from_flags(&given)).map_err(|error| error.line)
    };
    let at = ("advertise", "a:1:2");
    let outside = ("advertise-outside", "[::1]:3");
    let node = with(&[at, outside]).unwrap().node;
    let kv = |told: Option<server::Advertised>| told.map(|told| (told.host, told.kv));
    assert_eq!(kv(node.advertise), Some(("a".into(), Some(1))));
    let told = node.cluster.unwrap().outside;
    assert_eq!(kv(told), Some(("::1".into(), Some(3))));

    for (given, part) in [
        (with(&[]), "--listen \"0.0.0.0\": needs --advertise too"),
        (with(&[("advertise", "::1")]), "an IPv6 address in brackets"),
        (with(&[("advertise", "a:1:2:3")]), "needs --kv-tls-port"),
        (
            with(&[at, ("advertise-outside", "a:1:2:3:4"), ("kv-tls-port", "0")]),
            "needs --https-port",
        ),
    ] {
        let line = given.unwrap_err();
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(
        line(&[outside]),
        "--advertise-outside \"[::1]:3\": needs --cluster"
    );
}

#[test]
fn mistake_is_one_line_with_key_value_and_allowed_values() {
    let port = "must be a port number from 0 to 65535, 0 for a free one";
    let age = "must be a number of seconds from 0 to 5184000";
    for (key, value, allowed) in [
        ("kv-port", "65536", port),
        ("http-port", "-1", port),
        ("memcached-port", "", port),
        ("listen", "localhost", "must be an IP address"),
        ("threads", "0", "must be a number from 1 to 1024"),
        ("threads", "1025", "must be a number from 1 to 1024"),
        (
            "log-level",
            "loud",
            "must be error, warn, info, debug or trace",
        ),
        ("log-format", "xml", "must be human or json"),
        ("purge-age", "5184001", age),
        ("buckets-max", "0", "must be a number from 1 to 1000"),
        ("buckets-max", "1001", "must be a number from 1 to 1000"),
        ("purge-age", "-1", age),
        ("purge-age", "3d", age),
        ("memory", "maybe", "must be true or false"),
        ("data-dir", "", "must be a path"),
        (
            "username",
            "a:b",
            "must be 1 to 128 bytes without control characters or a colon",
        ),
        ("https-port", "65536", port),
        ("tls-cert", "a.pem", "needs --tls-key too"),
        ("tls-key", "a.pem", "needs --tls-cert too"),
    ] {
        assert_eq!(
            line(&[(key, value)]),
            format!("--{key} {value:?}: {allowed}")
        );
    }
}

#[test]
fn values_cannot_break_error_line() {
    let line = line(&[("threads", "1\n2")]);
    assert_eq!(line.lines().count(), 1, "{line}");
}

#[test]
fn a_password_is_never_shown() {
    for wrong in ["", "secret\n", "s".repeat(1025).as_str()] {
        let line = line(&[("password", wrong)]);
        let allowed = "must be 1 to 1024 bytes without control characters";
        assert_eq!(line, format!("--password \"***\": {allowed}"));
    }
    assert!(!format!("{:?}", config(&[("password", "hunter2")])).contains("hunter2"));
}

#[test]
fn exit_code_distinguishes_usage_error_from_configuration_error() {
    for (origin, written) in [
        (ValueOrigin::Environment, "SETTEE_KV_PORT"),
        (
            ValueOrigin::File("settee.toml".into()),
            "settee.toml: kv-port",
        ),
    ] {
        let mut settings = from_flags(&[("kv-port", "x")]);
        settings.get_mut("kv-port").unwrap().origin = origin;
        let error = ServeConfig::from_settings(&settings).unwrap_err();
        assert_eq!(error.code, Sysexit::Config);
        assert!(
            error.line.starts_with(&format!("{written} \"x\": must be")),
            "{}",
            error.line
        );
    }
}

#[test]
fn buckets_are_checked_part_by_part() {
    let name = "name must be 1 to 100 of A-Z a-z 0-9 _ - . %, not starting with a dot";
    let quota = "quota must be 16 to 16777216 MiB";
    let long = "x".repeat(101);
    for (text, allowed) in [
        ("", name),
        (":64", name),
        (".hidden", name),
        ("../etc", name),
        ("a b", name),
        ("caf\u{e9}", name),
        (long.as_str(), name),
        ("a:", quota),
        ("a:15", quota),
        ("a:16777217", quota),
        ("a:99999999999999999999999", quota),
        ("a:64:memcached", "kind must be couchbase or ephemeral"),
        (
            "a:64:couchbase:value:",
            "level must be none, majority, majorityAndPersistActive or persistToMajority",
        ),
        (
            "a:64:couchbase:value:none:64",
            "vBuckets must be 128 or 1024",
        ),
        (
            "a:64:couchbase:value:none:128:",
            "must be NAME[:QUOTA_MIB[:couchbase|ephemeral[:EVICTION[:LEVEL[:VBUCKETS]]]]]",
        ),
    ] {
        assert_eq!(
            line(&[("bucket", text)]),
            format!("--bucket {text:?}: {allowed}")
        );
    }
    let largest = config(&[("bucket", "a:16777216")]);
    assert_eq!(largest.node.buckets[0].quota_bytes, 1 << 44);
}

#[test]
fn buckets_are_distinct_and_not_too_many() {
    let twice = line(&[("bucket", "a"), ("bucket", "a:64")]);
    assert_eq!(twice, "--bucket \"a:64\": must not be given twice");
    let names: Vec<String> = (0..101).map(|n| format!("b{n}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| ("bucket", name.as_str())).collect();
    assert_eq!(config(&many[..100]).node.buckets.len(), 100);
    assert_eq!(
        line(&many),
        "--bucket \"b100\": is one too many, --buckets-max allows 100"
    );
    let more: Vec<_> = many.into_iter().chain([("buckets-max", "101")]).collect();
    assert_eq!(config(&more).node.buckets.len(), 101);
}

#[test]
fn other_machines_need_non_default_password() {
    for address in ["0.0.0.0", "::", "192.0.2.1"] {
        let line = line(&[("listen", address)]);
        assert!(
            line.starts_with(&format!("--listen {address:?}: is reachable")),
            "{line}"
        );
        assert!(line.contains("--password"), "{line}");
        let open = config(&[("listen", address), ("password", "hunter2")]);
        assert_eq!(open.node.listen.to_string(), address);
    }
    for loopback in ["127.0.0.1", "127.9.9.9", "::1"] {
        assert_eq!(
            config(&[("listen", loopback)]).node.listen.to_string(),
            loopback
        );
    }
}

#[test]
fn memory_and_data_dir_conflict_only_at_same_origin() {
    assert_eq!(config(&[("memory", "true")]).node.data_dir, None);
    assert_eq!(
        config(&[("memory", "0")]).node.data_dir,
        Some("./settee-data".into())
    );
    let both = [("memory", "true"), ("data-dir", "/srv")];
    assert_eq!(
        line(&both),
        "--memory \"true\": must be left out where --data-dir is given"
    );

    let mut settings = from_flags(&both);
    settings.get_mut("data-dir").unwrap().origin = ValueOrigin::Environment;
    assert_eq!(
        ServeConfig::from_settings(&settings).unwrap().node.data_dir,
        None
    );
    settings.get_mut("memory").unwrap().origin = ValueOrigin::File("f".into());
    let config = ServeConfig::from_settings(&settings).unwrap();
    assert_eq!(config.node.data_dir, Some("/srv".into()));
}

#[test]
fn ports_differ_unless_they_are_free_ones() {
    let same = line(&[("kv-port", "7"), ("http-port", "7")]);
    assert_eq!(same, "--http-port \"7\": must differ from kv-port");
    // In a conflict with a default, the given port is named.
    let default = line(&[("kv-port", "8091")]);
    assert_eq!(default, "--kv-port \"8091\": must differ from http-port");
    let memcached = line(&[("memcached-port", "11210")]);
    assert_eq!(
        memcached,
        "--memcached-port \"11210\": must differ from kv-port"
    );
    config(&[
        ("kv-port", "0"),
        ("http-port", "0"),
        ("memcached-port", "0"),
    ]);
}

#[test]
fn a_bucket_may_have_128_vbuckets() {
    let count = |bucket: &str| config(&[("bucket", bucket)]).node.buckets[0].vbuckets;
    assert_eq!(count("a:64:ephemeral:none:none:128"), Some(128));
    assert_eq!(count("a:64:couchbase:value:none"), None);
}

#[test]
fn lowest_durability_level_may_need_disk() {
    let least = |bucket: &str| config(&[("bucket", bucket)]).node.buckets[0].durability_min;
    let level = Some(DurabilityLevel::PersistToMajority);
    assert_eq!(least("a:64:couchbase:value:persistToMajority"), level);
    assert_eq!(least("a:64:couchbase:full:none"), None);
    let level = Some(DurabilityLevel::Majority);
    assert_eq!(least("a:64:ephemeral:none:majority"), level);
    let ephemeral = line(&[("bucket", "a:64:ephemeral:none:persistToMajority")]);
    assert!(
        ephemeral.ends_with("must be none or majority"),
        "{ephemeral}"
    );
    let unknown = line(&[("bucket", "a:64:couchbase:value:most")]);
    assert!(unknown.contains("majorityAndPersistActive"), "{unknown}");
    let persisted = ("bucket", "a:64:couchbase:value:majorityAndPersistActive");
    let memory = line(&[persisted, ("memory", "true")]);
    assert!(memory.contains("in memory only"), "{memory}");
}

#[test]
fn eviction_policy_depends_on_bucket_kind() {
    use EvictionPolicy::{Delete, Documents, None, Values};
    for (text, eviction) in [
        ("a:16:couchbase", Values),
        ("a:16:couchbase:value", Values),
        ("a:16:couchbase:full", Documents),
        ("a:16:ephemeral", None),
        ("a:16:ephemeral:none", None),
        ("a:16:ephemeral:nru", Delete),
    ] {
        assert_eq!(
            config(&[("bucket", text)]).node.buckets[0].eviction,
            eviction,
            "{text}"
        );
    }
    for (text, allowed) in [
        (
            "a:16:couchbase:nru",
            "eviction of a couchbase bucket must be value or full",
        ),
        (
            "a:16:ephemeral:full",
            "eviction of an ephemeral bucket must be none or nru",
        ),
    ] {
        assert_eq!(
            line(&[("bucket", text)]),
            format!("--bucket {text:?}: {allowed}")
        );
    }
}

#[test]
fn memcached_port_serves_one_bucket_on_loopback() {
    let port = ("memcached-port", "0");
    let memcached = |more: &[(&str, &str)]| {
        let given = [&[port], more].concat();
        config(&given).node.memcached.unwrap()
    };
    let (plain, other) = (memcached(&[]), memcached(&[("memcached-bucket", "toys")]));
    assert_eq!((plain.bucket.as_str(), plain.login), ("default", false));
    assert_eq!(other.bucket, "toys");
    for key in ["memcached-bucket", "memcached-sasl", "memcached-open"] {
        let alone = line(&[(key, "true")]);
        assert_eq!(alone, format!("--{key} \"true\": needs --memcached-port"));
    }
    assert!(line(&[port, ("memcached-bucket", "a b")]).contains("A-Z"));

    let anywhere = [("listen", "0.0.0.0"), ("password", "p"), port];
    let refused = line(&anywhere);
    assert!(refused.starts_with("--memcached-port"), "{refused}");
    for word in ["without a login", "--memcached-sasl", "--memcached-open"] {
        assert!(refused.contains(word), "{refused}");
    }
    for (key, login) in [("memcached-sasl", true), ("memcached-open", false)] {
        let given = [&anywhere[..], &[(key, "true")]].concat();
        assert_eq!(config(&given).node.memcached.unwrap().login, login);
    }
    let both = line(&[port, ("memcached-sasl", "true"), ("memcached-open", "true")]);
    assert!(both.contains("must be left out"), "{both}");
}

#[test]
fn provisionable_node_has_no_administrator_and_no_buckets() {
    let on = ("provisionable", "true");
    let node = config(&[on, ("listen", "0.0.0.0")]).node;
    let ports = node.provisionable.unwrap();
    assert_eq!((ports.query_port, ports.search_port), (8093, 8094));
    assert_eq!(node.buckets, []);
    let node = config(&[
        on,
        ("query-port", "1"),
        ("search-port", "2"),
        ("bucket", "b"),
    ])
    .node;
    let ports = node.provisionable.unwrap();
    assert_eq!((ports.query_port, ports.search_port), (1, 2));
    assert_eq!(node.buckets.len(), 1);
    assert_eq!(config(&[("provisionable", "false")]), config(&[]));
    for key in ["query-port", "search-port"] {
        assert_eq!(
            line(&[(key, "1")]),
            format!("--{key} \"1\": needs --provisionable")
        );
    }
    for (key, value) in [
        ("username", "u"),
        ("password", "secret1"),
        ("replica-of", "couchbase://u:p@h/default"),
    ] {
        let refused = line(&[on, (key, value)]);
        assert!(refused.starts_with(&format!("--{key} ")), "{refused}");
        assert!(refused.contains("must be left out"), "{refused}");
        assert!(!refused.contains("secret1"), "{refused}");
    }
    let taken = line(&[on, ("query-port", "8091")]);
    assert!(taken.contains("must differ from http-port"), "{taken}");
}
