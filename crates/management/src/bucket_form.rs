//! Settings of buckets as management clients send them: forms.

use model::{CompressionMode, ConflictResolution, DurabilityLevel};
use registry::{
    AutoCompaction, BucketConfig, BucketKind, BucketSettings, EvictionPolicy, HistorySettings,
    VBUCKET_COUNTS, VBUCKETS, Versioning,
};

use super::auto_compaction;
use super::form::{FieldErrors, Form, fields};

const MIB: u64 = 1024 * 1024;
/// Allowed quotas, MiB; the same as on the command line.
const QUOTA_MIB_MIN: u64 = 16;
pub(super) const QUOTA_MIB_MAX: u64 = 16 * 1024 * 1024;
const QUOTA_MIB_DEFAULT: u64 = 256;
const REPLICAS_MAX: u8 = 3;
/// Default number of replicas, as in the reference server. A node alone has none.
const REPLICAS_DEFAULT: u8 = 1;
const NAME_BYTES_MAX: usize = 100;
/// Smallest size of a history, bytes: each of 1,024 vBuckets has its part.
const HISTORY_BYTES_MIN: u64 = 2 << 30;
const MAX_TTL_S_MAX: u32 = i32::MAX as u32;
const PRUNING_HOURS_MIN: u32 = 24;
const CONFLICTS_STAY: &str = "Conflict resolution type not allowed in update bucket";

/// Names of the fields that are read.
const READ: [&str; 20] = [
    "name",
    "bucketType",
    "ramQuota",
    "ramQuotaMB",
    "replicaNumber",
    "evictionPolicy",
    "durabilityMinLevel",
    "maxTTL",
    "flushEnabled",
    "storageBackend",
    "conflictResolutionType",
    "compressionMode",
    "durabilityImpossibleFallback",
    "numVBuckets",
    "enableCrossClusterVersioning",
    "versionPruningWindowHrs",
    "historyRetentionCollectionDefault",
    "historyRetentionBytes",
    "historyRetentionSeconds",
    "autoCompactionDefined",
];

/// Returns the accepted values of a setting that the node cannot change, and the reason. Clients send only these fields
/// although they cannot change anything.
fn fixed(name: &str) -> (&'static [&'static str], &'static str) {
    match name {
        // There are no views whose indexes could have replicas, so all values are accepted.
        "replicaIndex" => (&["0", "1", "false", "true"], "The value must be 0 or 1"),
        "authType" => (&["sasl"], "Clients log in with SASL"),
        "saslPassword" | "proxyPort" => (&[], "Buckets have no passwords and ports of their own"),
        "threadsNumber" => (&["3"], "Settee has as many threads as it needs"),
        "rank" => (&["0"], "Buckets have no order"),
        _ => (&[], "Unsupported key"),
    }
}

impl Form<'_> {
    /// Checks that a field, if it is present, is one of `words`.
    fn one_of(&mut self, name: &str, words: &[&str]) {
        self.or(name, (), |text| words.contains(&text).then_some(()));
    }

    /// Reads the eviction policy: one of those for this kind of bucket.
    fn eviction(&mut self, kind: BucketKind, otherwise: EvictionPolicy) -> EvictionPolicy {
        let (words, what) = match kind {
            BucketKind::Couchbase => (
                [
                    ("valueOnly", EvictionPolicy::Values),
                    ("fullEviction", EvictionPolicy::Documents),
                ],
                "Eviction policy must be either 'valueOnly' or 'fullEviction' for couchbase buckets",
            ),
            BucketKind::Ephemeral => (
                [
                    ("noEviction", EvictionPolicy::None),
                    ("nruEviction", EvictionPolicy::Delete),
                ],
                "Eviction policy must be either 'noEviction' or 'nruEviction' for ephemeral buckets",
            ),
        };
        self.choice("evictionPolicy", otherwise, what, |text| {
            let found = words.iter().find(|(word, _)| *word == text);
            found.map(|(_, policy)| *policy)
        })
    }

    /// Reads the lowest durability level of every write: a level that is possible for this kind of bucket.
    fn durability_min(
        &mut self,
        kind: BucketKind,
        otherwise: Option<DurabilityLevel>,
    ) -> Option<DurabilityLevel> {
        let durable = kind == BucketKind::Couchbase;
        let what = if durable {
            "Durability minimum level must be one of 'none', 'majority', 'majorityAndPersistActive', 'persistToMajority'"
        } else {
            "Durability minimum level must be either 'none' or 'majority' for ephemeral buckets"
        };
        self.choice("durabilityMinLevel", otherwise, what, |text| match text {
            "none" => Some(None),
            text => DurabilityLevel::from_name(text)
                .filter(|level| durable || !level.persists_on_active())
                .map(Some),
        })
    }

    fn max_ttl_s(&mut self, otherwise: u32) -> u32 {
        let what = "Max TTL must be an integer between 0 and 2147483647";
        self.choice("maxTTL", otherwise, what, |text| {
            text.parse().ok().filter(|ttl| *ttl <= MAX_TTL_S_MAX)
        })
    }

    /// Reads the conflict resolution of a new bucket. SDKs know the refusal of `custom` by its text.
    fn conflicts(&mut self) -> ConflictResolution {
        let what = match self.text("conflictResolutionType").as_deref() {
            Some("custom") => {
                "Conflict resolution type 'custom' is supported only with developer preview enabled"
            }
            _ => "Conflict resolution type must be either 'seqno' or 'lww'",
        };
        self.choice(
            "conflictResolutionType",
            ConflictResolution::Revision,
            what,
            ConflictResolution::from_name,
        )
    }

    fn compression(&mut self, otherwise: CompressionMode) -> CompressionMode {
        let what = "Compression mode must be one of 'off', 'passive', 'active'";
        self.choice(
            "compressionMode",
            otherwise,
            what,
            CompressionMode::from_name,
        )
    }

    fn durability_falls_back(&mut self, otherwise: bool) -> bool {
        let what =
            "Durability impossible fallback must be either 'disabled' or 'fallbackToActiveAck'";
        self.choice(
            "durabilityImpossibleFallback",
            otherwise,
            what,
            |text| match text {
                "disabled" => Some(false),
                "fallbackToActiveAck" => Some(true),
                _ => None,
            },
        )
    }

    fn versioning(&mut self, now: Versioning) -> Versioning {
        let name = "enableCrossClusterVersioning";
        let enabled = self.flag(name, now.enabled);
        if now.enabled && !enabled {
            self.complain(
                name,
                "Cross cluster versioning cannot be disabled once it is enabled",
            );
        }
        let what = "Version pruning window must be an integer of at least 24 hours";
        let pruning_hours =
            self.choice("versionPruningWindowHrs", now.pruning_hours, what, |text| {
                let hours = text.parse().ok();
                hours.filter(|hours| *hours >= PRUNING_HOURS_MIN)
            });
        Versioning {
            enabled,
            pruning_hours,
            ..now
        }
    }

    /// Reads the bucket's own compaction settings, if there are any.
    fn auto_compaction(
        &mut self,
        kind: BucketKind,
        now: Option<AutoCompaction>,
    ) -> Option<AutoCompaction> {
        let name = "autoCompactionDefined";
        if self.text(name).is_none() {
            return now;
        }
        if !self.flag(name, false) {
            return None;
        }
        if kind == BucketKind::Ephemeral {
            let what = "autoCompactionDefined must not be set for ephemeral buckets";
            self.complain(name, what);
            return None;
        }
        Some(auto_compaction::read(self))
    }

    fn replicas(&mut self, otherwise: u8) -> u8 {
        let what = "Replica number must be an integer between 0 and 3";
        self.choice("replicaNumber", otherwise, what, |text| {
            text.parse().ok().filter(|count| *count <= REPLICAS_MAX)
        })
    }

    /// Checks the fields that are not read: each must be a known one, with the value that the node has anyway.
    fn only_what_is_done(&mut self) {
        for (field, value) in fields(self.body) {
            let name = auto_compaction::base(&field);
            if READ.contains(&name) || auto_compaction::READ.contains(&name) || value.is_empty() {
                continue;
            }
            let (fixed, reason) = fixed(name);
            if !fixed.contains(&&*value) {
                self.complain(&field, reason);
            }
        }
    }

    fn quota(&mut self, otherwise: u64) -> u64 {
        let read = |text: &str| {
            let mib = text.parse().ok()?;
            let allowed = QUOTA_MIB_MIN..=QUOTA_MIB_MAX;
            allowed.contains(&mib).then_some(mib * MIB)
        };
        let quota = self.or("ramQuotaMB", otherwise, read);
        self.or("ramQuota", quota, read)
    }

    /// Reads the store name and the history of a new bucket.
    fn history(&mut self, durable: bool) -> HistorySettings {
        let magma = self.or("storageBackend", false, |text| {
            is_magma(text).filter(|magma| durable || !magma)
        });
        self.retention(HistorySettings {
            magma,
            ..HistorySettings::default()
        })
    }

    /// Reads the new limits of the history.
    fn retention(&mut self, now: HistorySettings) -> HistorySettings {
        let fields = [
            "historyRetentionCollectionDefault",
            "historyRetentionBytes",
            "historyRetentionSeconds",
        ];
        if !now.magma {
            for name in fields {
                let text = self.text(name);
                if text.is_some_and(|text| text != "0" && text != "false") {
                    self.complain(name, "History Retention can only used with Magma");
                }
            }
            return now;
        }
        let [default, bytes, seconds] = fields;
        HistorySettings {
            collection_default: self.flag(default, now.collection_default),
            bytes: self.or(bytes, now.bytes, |text| {
                let bytes = text.parse().ok()?;
                (bytes == 0 || bytes >= HISTORY_BYTES_MIN).then_some(bytes)
            }),
            seconds: self.or(seconds, now.seconds, |text| {
                text.parse::<u32>().ok().map(u64::from)
            }),
            ..now
        }
    }

    fn done(self, settings: BucketSettings) -> Result<BucketSettings, FieldErrors> {
        if self.wrong.is_empty() {
            Ok(settings)
        } else {
            Err(self.wrong)
        }
    }
}

/// Whether a bucket of this backend may keep a history; `None` for an unknown one. Ephemeral buckets are told as `undefined`.
fn is_magma(backend: &str) -> Option<bool> {
    match backend {
        "couchstore" | "undefined" => Some(false),
        "magma" => Some(true),
        _ => None,
    }
}

/// Reads the form of a new bucket. Missing fields get the reference server's defaults. Settings that this node cannot
/// provide are refused, and settings that make no difference here are ignored.
pub(super) fn read_new(body: &[u8]) -> Result<BucketSettings, FieldErrors> {
    let mut form = Form::new(body);
    let name = form.text("name").unwrap_or_default();
    let named = |c: char| c.is_ascii_alphanumeric() || "_-.%".contains(c);
    if name.is_empty() {
        form.complain("name", "Bucket name needs to be specified");
    } else if name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.chars().all(named) {
        let what = "Bucket name can only contain characters in range A-Z, a-z, 0-9 as well as \
                    underscore, period, dash & percent, 100 of them, and not begin with a period";
        form.complain("name", what);
    }
    let kind = form.or("bucketType", BucketKind::Couchbase, |text| match text {
        "couchbase" | "membase" => Some(BucketKind::Couchbase),
        "ephemeral" => Some(BucketKind::Ephemeral),
        _ => None,
    });
    let durable = kind == BucketKind::Couchbase;
    let eviction = match form.text("storageBackend").as_deref() {
        _ if !durable => EvictionPolicy::None,
        Some("magma") => EvictionPolicy::Documents,
        _ => EvictionPolicy::Values,
    };
    let eviction = form.eviction(kind, eviction);
    let durability_min = form.durability_min(kind, None);
    let max_ttl_s = form.max_ttl_s(0);
    let replicas = form.replicas(REPLICAS_DEFAULT);
    let flush_enabled = form.flag("flushEnabled", false);
    let history = form.history(durable);
    let conflicts = form.conflicts();
    let compression = form.compression(CompressionMode::default());
    let durability_falls_back = form.durability_falls_back(false);
    let what = "Number of vBuckets must be 128 or 1024";
    let vbuckets = form.choice("numVBuckets", None, what, |text| {
        let count = text.parse().ok()?;
        VBUCKET_COUNTS.contains(&count).then_some(Some(count))
    });
    let mut versioning = form.versioning(Versioning::default());
    if versioning.enabled {
        versioning.max_cas = vec![0; usize::from(vbuckets.unwrap_or(VBUCKETS))];
    }
    let auto_compaction = form.auto_compaction(kind, None);
    form.only_what_is_done();
    let bucket = BucketConfig {
        name,
        quota_bytes: form.quota(QUOTA_MIB_DEFAULT * MIB),
        kind,
        eviction,
        durability_min,
        vbuckets,
    };
    form.done(BucketSettings {
        bucket,
        max_ttl_s,
        flush_enabled,
        replicas,
        history,
        conflicts,
        compression,
        durability_falls_back,
        versioning,
        auto_compaction,
    })
}

/// Reads the form of changes of a running bucket. Settings that are fixed at its creation stay.
pub(super) fn read_update(body: &[u8], now: BucketSettings) -> Result<BucketSettings, FieldErrors> {
    let mut form = Form::new(body);
    let mut settings = now;
    let bucket = &mut settings.bucket;
    bucket.quota_bytes = form.quota(bucket.quota_bytes);
    let kinds: &[&str] = match bucket.kind {
        BucketKind::Couchbase => &["couchbase", "membase"],
        BucketKind::Ephemeral => &["ephemeral"],
    };
    form.one_of("bucketType", kinds);
    bucket.eviction = form.eviction(bucket.kind, bucket.eviction);
    bucket.durability_min = form.durability_min(bucket.kind, bucket.durability_min);
    settings.max_ttl_s = form.max_ttl_s(settings.max_ttl_s);
    settings.compression = form.compression(settings.compression);
    settings.durability_falls_back = form.durability_falls_back(settings.durability_falls_back);
    settings.versioning = form.versioning(settings.versioning);
    settings.auto_compaction = form.auto_compaction(settings.bucket.kind, settings.auto_compaction);
    let what = "The number of vBuckets stays as the bucket was made";
    form.choice("numVBuckets", (), what, |text| {
        (text.parse() == Ok(settings.bucket.vbuckets())).then_some(())
    });
    form.one_of("name", &[&settings.bucket.name]);
    form.choice("conflictResolutionType", (), CONFLICTS_STAY, |text| {
        (text == settings.conflicts.name()).then_some(())
    });
    form.only_what_is_done();
    form.or("storageBackend", (), |text| {
        (is_magma(text) == Some(settings.history.magma)).then_some(())
    });
    settings.history = form.retention(settings.history);
    settings.flush_enabled = form.flag("flushEnabled", settings.flush_enabled);
    settings.replicas = form.replicas(settings.replicas);
    form.done(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_requested_settings_and_defaults() {
        let plain = read_new(b"name=shop&ramQuotaMB=100").unwrap();
        assert_eq!(plain.bucket.quota_bytes, 100 * MIB);
        assert_eq!(plain.bucket.eviction, EvictionPolicy::Values);
        assert!(!plain.flush_enabled);
        assert_eq!(plain.replicas, 1);
        let magma = read_new(b"name=shop&storageBackend=magma").unwrap();
        assert_eq!(magma.bucket.eviction, EvictionPolicy::Documents);
        let body = b"name=c%25d&bucketType=ephemeral&ramQuota=200&flushEnabled=1&replicaNumber=2\
                     &evictionPolicy=nruEviction&durabilityMinLevel=majority&maxTTL=60\
                     &conflictResolutionType=lww";
        let full = read_new(body).unwrap();
        assert_eq!(full.bucket.name, "c%d");
        assert_eq!(full.bucket.kind, BucketKind::Ephemeral);
        assert_eq!(full.bucket.eviction, EvictionPolicy::Delete);
        assert_eq!(full.bucket.durability_min, Some(DurabilityLevel::Majority));
        assert_eq!((full.max_ttl_s, full.replicas), (60, 2));
        assert!(full.flush_enabled);
        assert_eq!(full.conflicts, ConflictResolution::LastWrite);
        read_update(b"conflictResolutionType=lww", full.clone()).unwrap();
        let refused = read_update(b"conflictResolutionType=seqno", full.clone()).unwrap_err();
        assert_eq!(refused["conflictResolutionType"], CONFLICTS_STAY);
        let changed = read_update(b"ramQuota=300&flushEnabled=0", full.clone()).unwrap();
        assert_eq!(changed.bucket.quota_bytes, 300 * MIB);
        assert!(!changed.flush_enabled);
        assert_eq!(changed.max_ttl_s, 60);
    }

    #[test]
    fn an_update_changes_some_settings_and_the_rest_stays() {
        let made = read_new(b"name=a&ramQuota=100").unwrap();
        let all = b"maxTTL=5&durabilityMinLevel=majorityAndPersistActive&compressionMode=active\
                    &evictionPolicy=fullEviction&replicaNumber=2\
                    &durabilityImpossibleFallback=fallbackToActiveAck";
        let changed = read_update(all, made.clone()).unwrap();
        let level = Some(DurabilityLevel::MajorityAndPersistOnActive);
        assert_eq!(
            (changed.max_ttl_s, changed.bucket.durability_min),
            (5, level)
        );
        assert_eq!(changed.compression, CompressionMode::Active);
        assert_eq!(changed.bucket.eviction, EvictionPolicy::Documents);
        assert_eq!((changed.replicas, changed.durability_falls_back), (2, true));
        assert_eq!(read_update(b"", changed.clone()), Ok(changed.clone()));
        let back = b"maxTTL=0&durabilityMinLevel=none&compressionMode=passive\
                     &evictionPolicy=valueOnly&replicaNumber=1&durabilityImpossibleFallback=disabled";
        assert_eq!(read_update(back, changed), Ok(made));
    }

    #[test]
    fn a_bucket_has_settings_of_compaction_of_its_own_or_none() {
        let made = read_new(b"name=a&purgeInterval=5").unwrap();
        assert_eq!(made.auto_compaction, None);
        let defined =
            b"autoCompactionDefined=true&parallelDBAndViewCompaction=false&purgeInterval=5";
        let own = read_update(defined, made).unwrap();
        assert_eq!(
            own.auto_compaction.as_ref().and_then(|own| own.purge_s),
            Some(432_000)
        );
        let kept = read_update(b"ramQuota=200", own.clone()).unwrap();
        assert_eq!(kept.auto_compaction, own.auto_compaction);
        let none = read_update(b"autoCompactionDefined=false", own.clone()).unwrap();
        assert_eq!(none.auto_compaction, None);
        let wrong = read_update(b"autoCompactionDefined=true", own).unwrap_err();
        assert_eq!(
            wrong.keys().collect::<Vec<_>>(),
            ["parallelDBAndViewCompaction"]
        );
        let ephemeral = b"name=a&bucketType=ephemeral&autoCompactionDefined=true";
        assert!(
            read_new(ephemeral)
                .unwrap_err()
                .contains_key("autoCompactionDefined")
        );
    }

    #[test]
    fn versioning_is_switched_on_for_good() {
        let made = read_new(b"name=a").unwrap();
        let on = read_update(b"enableCrossClusterVersioning=true", made).unwrap();
        assert!(on.versioning.enabled);
        let on = read_update(b"versionPruningWindowHrs=24", on).unwrap();
        assert_eq!(
            (on.versioning.enabled, on.versioning.pruning_hours),
            (true, 24)
        );
        assert!(read_update(b"enableCrossClusterVersioning=false", on).is_err());
        let made_with_it = read_new(b"name=a&enableCrossClusterVersioning=true").unwrap();
        assert_eq!(made_with_it.versioning.max_cas, [0; 1024]);
    }

    #[test]
    fn the_number_of_vbuckets_is_chosen_once() {
        let few = read_new(b"name=a&numVBuckets=128&enableCrossClusterVersioning=1").unwrap();
        assert_eq!(few.bucket.vbuckets(), 128);
        assert_eq!(few.versioning.max_cas, [0; 128]);
        assert!(read_update(b"numVBuckets=128", few.clone()).is_ok());
        assert!(read_update(b"numVBuckets=1024", few).is_err());
        let made = read_new(b"name=a").unwrap();
        assert_eq!(made.bucket.vbuckets(), 1024);
        assert!(read_update(b"numVBuckets=128", made).is_err());
    }

    /// Forms that SDKs' bucket managers and the reference server's tools send by default.
    #[test]
    fn default_forms_of_clients_are_accepted() {
        for body in [
            "name=a&ramQuotaMB=100&replicaNumber=1&flushEnabled=0&replicaIndex=1&bucketType=membase",
            "name=a&ramQuotaMB=100&flushEnabled=1&maxTTL=0&compressionMode=passive\
             &durabilityMinLevel=none&storageBackend=couchstore&evictionPolicy=valueOnly\
             &conflictResolutionType=seqno&numVBuckets=1024",
            "name=a&bucketType=couchbase&ramQuota=100&authType=sasl&saslPassword=&threadsNumber=3\
             &replicaIndex=0&autoCompactionDefined=false&durabilityImpossibleFallback=disabled",
            "name=a&bucketType=ephemeral&evictionPolicy=noEviction&rank=0\
             &enableCrossClusterVersioning=false&versionPruningWindowHrs=720\
             &storageBackend=undefined",
        ] {
            let made = read_new(body.as_bytes()).expect(body);
            read_update(body.as_bytes(), made).expect(body);
        }
    }

    #[test]
    fn impossible_fields_are_named() {
        let field_of = |body: &str| {
            let wrong = read_new(body.as_bytes()).expect_err(body);
            wrong.keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(field_of("ramQuota=100"), "name");
        assert_eq!(field_of("name=.a"), "name");
        assert_eq!(field_of("name=a/b"), "name");
        assert_eq!(field_of("name=a&ramQuota=1"), "ramQuota");
        assert_eq!(field_of("name=a&ramQuota=99999999999999999999"), "ramQuota");
        for (name, value) in [
            ("bucketType", "memcached"),
            ("evictionPolicy", "nruEviction"),
            ("durabilityMinLevel", "all"),
            ("replicaNumber", "4"),
            ("maxTTL", "-1"),
            ("flushEnabled", "yes"),
            ("storageBackend", "rocksdb"),
            ("conflictResolutionType", "custom"),
            ("historyRetentionBytes", "2147483648"),
            ("historyRetentionSeconds", "1"),
            ("historyRetentionCollectionDefault", "true"),
        ] {
            assert_eq!(field_of(&format!("name=a&{name}={value}")), name);
        }
        let custom = read_new(b"name=a&conflictResolutionType=custom").unwrap_err();
        let told = custom["conflictResolutionType"].as_str().unwrap();
        assert!(told.contains("is supported only with developer preview enabled"));
        // Unsupported values and unknown fields are never ignored silently.
        for (name, value) in [
            ("compressionMode", "most"),
            ("evictionPolicy", "noEviction"),
            ("durabilityMinLevel", "all"),
            ("maxTTL", "2147483648"),
            ("numVBuckets", "64"),
            ("durabilityImpossibleFallback", "true"),
            ("enableCrossClusterVersioning", "maybe"),
            ("versionPruningWindowHrs", "23"),
            ("threadsNumber", "8"),
            ("authType", "none"),
            ("nonsense", "1"),
        ] {
            let body = format!("{name}={value}");
            assert_eq!(field_of(&format!("name=a&{body}")), name);
            let now = read_new(b"name=a").unwrap();
            let wrong = read_update(body.as_bytes(), now).expect_err(name);
            assert_eq!(wrong.keys().collect::<Vec<_>>(), [name]);
        }
        let disk = "name=a&bucketType=ephemeral&durabilityMinLevel=persistToMajority";
        assert_eq!(field_of(disk), "durabilityMinLevel");
        let ephemeral = read_new(b"name=a&bucketType=ephemeral").unwrap();
        for body in [
            "evictionPolicy=valueOnly",
            "durabilityMinLevel=majorityAndPersistActive",
            "bucketType=couchbase",
        ] {
            assert!(
                read_update(body.as_bytes(), ephemeral.clone()).is_err(),
                "{body}"
            );
        }
    }
}
