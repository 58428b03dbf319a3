//! Buckets made, changed, emptied and removed by management clients.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::{ConflictResolution, DurabilityLevel};
use registry::{
    BucketConfig, BucketKind, BucketSettings, EvictionPolicy, HistorySettings, VBUCKETS,
};
use serde_json::json;

use super::answers::{self, Handled};
use super::documents::eviction_name;
use super::form::{FieldErrors, field, fields};
use crate::state::HttpState;
use crate::view::{BucketChange, BucketsError};

const MIB: u64 = 1024 * 1024;
/// Quotas are what the command line takes too.
const QUOTA_MIB_MIN: u64 = 16;
pub(super) const QUOTA_MIB_MAX: u64 = 16 * 1024 * 1024;
const QUOTA_MIB_DEFAULT: u64 = 256;
const REPLICAS_MAX: u8 = 3;
/// What the reference tells of a bucket of which nothing else is said; a node alone has none.
const REPLICAS_DEFAULT: u8 = 1;
const NAME_BYTES_MAX: usize = 100;
/// The least that is worth keeping: each of 1,024 vBuckets has its part.
const HISTORY_BYTES_MIN: u64 = 2 << 30;
const MAX_TTL_S_MAX: u32 = i32::MAX as u32;

/// Fields that are read.
const READ: [&str; 15] = [
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
    "historyRetentionCollectionDefault",
    "historyRetentionBytes",
    "historyRetentionSeconds",
];
const _: () = assert!(VBUCKETS == 1024, "as it is told below");
pub(super) const COMPACTS_ITSELF: &str = "Settee decides itself when to compact";

/// The values that the node has of a setting that it cannot have another way, and the reason. These are all that
/// clients send although it is as they ask anyway.
fn fixed(name: &str) -> (&'static [&'static str], &'static str) {
    const NO: &[&str] = &["false", "0"];
    match name {
        "numVBuckets" => (
            &["1024"],
            "The number of vBuckets is the same for all buckets",
        ),
        // There are no views whose indexes replicas could have, so either is true.
        "replicaIndex" => (&["0", "1", "false", "true"], "The value must be 0 or 1"),
        "authType" => (&["sasl"], "Clients log in with SASL"),
        "saslPassword" | "proxyPort" => (&[], "Buckets have no passwords and ports of their own"),
        "threadsNumber" => (&["3"], "Settee has as many threads as it needs"),
        "rank" => (&["0"], "Buckets have no order"),
        "autoCompactionDefined" | "parallelDBAndViewCompaction" => (NO, COMPACTS_ITSELF),
        "databaseFragmentationThreshold"
        | "viewFragmentationThreshold"
        | "magmaFragmentationPercentage"
        | "allowedTimePeriod"
        | "purgeInterval" => (&[], COMPACTS_ITSELF),
        "durabilityImpossibleFallback" => (
            &["disabled"],
            "A durable write that cannot be durable is refused",
        ),
        "enableCrossClusterVersioning" => (NO, "Version vectors are not built"),
        "versionPruningWindowHrs" => (&["720"], "Version vectors are not built"),
        _ => (&[], "Unsupported key"),
    }
}

/// `POST /pools/default/buckets`
pub(super) async fn create(State(state): State<HttpState>, body: Bytes) -> Handled {
    let settings = read_new(&body).map_err(|wrong| refused(&wrong))?;
    change(state, BucketChange::Make(settings)).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// `POST /pools/default/buckets/B`
pub(super) async fn update(
    State(state): State<HttpState>,
    Path(name): Path<String>,
    body: Bytes,
) -> Handled {
    let now = state.view.bucket_settings(&name);
    let now = now.ok_or_else(answers::not_found)?;
    let settings = read_update(&body, now).map_err(|wrong| refused(&wrong))?;
    change(state, BucketChange::Adjust(settings)).await
}

/// `DELETE /pools/default/buckets/B`
pub(super) async fn remove(State(state): State<HttpState>, Path(name): Path<String>) -> Handled {
    change(state, BucketChange::Drop(name)).await
}

/// `POST /pools/default/buckets/B/controller/doFlush`
pub(super) async fn flush(State(state): State<HttpState>, Path(name): Path<String>) -> Handled {
    change(state, BucketChange::Flush(name)).await
}

/// Makes a change away from the thread that serves connections: it waits for the disk.
async fn change(state: HttpState, change: BucketChange) -> Handled {
    let view = Arc::clone(&state.view);
    let done = state.bucket_turn.run(move || view.change_buckets(change));
    let Err(error) = done.await.unwrap_or(Err(BucketsError::Stopping)) else {
        return Ok(StatusCode::OK.into_response());
    };
    let text = error.to_string();
    let bad = StatusCode::BAD_REQUEST;
    let (status, value) = match error {
        BucketsError::Unknown => return Err(answers::not_found()),
        BucketsError::Exists | BucketsError::Occupied(_) => {
            (bad, json!({ "errors": { "name": text } }))
        }
        BucketsError::QuotaTooLarge(_) => (
            bad,
            json!({ "errors": { "ramQuota": text }, "summaries": {} }),
        ),
        BucketsError::QuotaTooSmall(_) => (bad, json!({ "errors": { "memoryQuota": text } })),
        BucketsError::TooMany(_) | BucketsError::FlushDisabled | BucketsError::Follows => {
            (bad, json!({ "_": text }))
        }
        BucketsError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, json!({ "_": text })),
        BucketsError::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, json!({ "_": text })),
    };
    Err(answers::json(status, &value))
}

fn refused(wrong: &FieldErrors) -> Response {
    let value = json!({ "errors": wrong, "summaries": {} });
    answers::json(StatusCode::BAD_REQUEST, &value)
}

/// A form, and what is wrong with it so far.
struct Form<'a> {
    body: &'a [u8],
    wrong: FieldErrors,
}

impl<'a> Form<'a> {
    fn new(body: &'a [u8]) -> Self {
        let wrong = FieldErrors::new();
        Self { body, wrong }
    }

    /// A field that is there and not empty.
    fn text(&self, name: &str) -> Option<String> {
        field(self.body, name).filter(|text| !text.is_empty())
    }

    fn complain(&mut self, name: &str, what: &str) {
        self.wrong.insert(name.into(), what.into());
    }

    /// A field as `read` takes it; `otherwise` if it is not there or wrong.
    fn or<T>(&mut self, name: &str, otherwise: T, read: impl Fn(&str) -> Option<T>) -> T {
        let Some(text) = self.text(name) else {
            return otherwise;
        };
        read(&text).unwrap_or_else(|| {
            self.complain(name, &format!("{text:?} is not possible here"));
            otherwise
        })
    }

    /// Wants a field, if it is there, to be one of `words`.
    fn one_of(&mut self, name: &str, words: &[&str]) {
        self.or(name, (), |text| words.contains(&text).then_some(()));
    }

    fn compression(&mut self) {
        let mode = self.text("compressionMode");
        if mode.is_some_and(|mode| mode != "passive") {
            let what =
                "Settee compresses nothing itself and keeps what clients compressed: passive";
            self.complain("compressionMode", what);
        }
    }

    /// Wants settings of the reference that are not built to be what this node does anyway, and no
    /// others than those that are known.
    fn only_what_is_done(&mut self) {
        for (field, value) in fields(self.body) {
            let name = field.split('[').next().unwrap_or_default();
            if READ.contains(&name) || value.is_empty() {
                continue;
            }
            let (fixed, reason) = fixed(name);
            if !fixed.contains(&&*value) {
                self.complain(&field, reason);
            }
        }
    }

    fn flag(&mut self, name: &str, otherwise: bool) -> bool {
        self.or(name, otherwise, |text| match text {
            "1" | "true" => Some(true),
            "0" | "false" => Some(false),
            _ => None,
        })
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

    /// Of a bucket that is to be made: which store it is said to have, and its history.
    fn history(&mut self, durable: bool) -> HistorySettings {
        let magma = self.or("storageBackend", false, |text| match text {
            "couchstore" | "undefined" => Some(false),
            "magma" if durable => Some(true),
            _ => None,
        });
        self.retention(HistorySettings {
            magma,
            ..HistorySettings::default()
        })
    }

    /// Its history from now on.
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

/// The name under which its store goes.
fn backend(history: HistorySettings) -> &'static str {
    if history.magma { "magma" } else { "couchstore" }
}

/// A bucket that is to be made. What it does not say has the reference's defaults; what this
/// node cannot do is refused, and what makes no difference here is passed over.
fn read_new(body: &[u8]) -> Result<BucketSettings, FieldErrors> {
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
    let eviction = form.or("evictionPolicy", eviction, |text| match text {
        "valueOnly" if durable => Some(EvictionPolicy::Values),
        "fullEviction" if durable => Some(EvictionPolicy::Documents),
        "noEviction" if !durable => Some(EvictionPolicy::None),
        "nruEviction" if !durable => Some(EvictionPolicy::Delete),
        _ => None,
    });
    let durability_min = form.or("durabilityMinLevel", None, |text| match text {
        "none" => Some(None),
        text => DurabilityLevel::from_name(text)
            .filter(|level| durable || !level.persists_on_active())
            .map(Some),
    });
    let max_ttl_s = form.or("maxTTL", 0, |text| {
        text.parse().ok().filter(|ttl| *ttl <= MAX_TTL_S_MAX)
    });
    let replicas = form.or("replicaNumber", REPLICAS_DEFAULT, replicas);
    let flush_enabled = form.flag("flushEnabled", false);
    let history = form.history(durable);
    let conflicts = form.or(
        "conflictResolutionType",
        ConflictResolution::Revision,
        ConflictResolution::from_name,
    );
    form.compression();
    form.only_what_is_done();
    let bucket = BucketConfig {
        name,
        quota_bytes: form.quota(QUOTA_MIB_DEFAULT * MIB),
        kind,
        eviction,
        durability_min,
    };
    form.done(BucketSettings {
        bucket,
        max_ttl_s,
        flush_enabled,
        replicas,
        history,
        conflicts,
    })
}

/// A running bucket with other settings. Those that it was opened with stay.
fn read_update(body: &[u8], now: BucketSettings) -> Result<BucketSettings, FieldErrors> {
    let mut form = Form::new(body);
    let mut settings = now;
    let bucket = &mut settings.bucket;
    bucket.quota_bytes = form.quota(bucket.quota_bytes);
    let kinds: &[&str] = match bucket.kind {
        BucketKind::Couchbase => &["couchbase", "membase"],
        BucketKind::Ephemeral => &["ephemeral"],
    };
    form.one_of("bucketType", kinds);
    form.one_of("evictionPolicy", &[eviction_name(bucket.eviction)]);
    let least = bucket.durability_min.map_or("none", DurabilityLevel::name);
    form.one_of("durabilityMinLevel", &[least]);
    let ttl = settings.max_ttl_s.to_string();
    form.one_of("maxTTL", &[&ttl]);
    form.compression();
    form.one_of("name", &[&bucket.name]);
    form.one_of("conflictResolutionType", &[settings.conflicts.name()]);
    form.only_what_is_done();
    form.one_of("storageBackend", &[backend(settings.history)]);
    settings.history = form.retention(settings.history);
    settings.flush_enabled = form.flag("flushEnabled", settings.flush_enabled);
    settings.replicas = form.or("replicaNumber", settings.replicas, replicas);
    form.done(settings)
}

fn replicas(text: &str) -> Option<u8> {
    text.parse().ok().filter(|count| *count <= REPLICAS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_defaults_and_what_was_asked_for() {
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
        let refused = read_update(b"conflictResolutionType=seqno", full.clone());
        assert!(refused.unwrap_err().contains_key("conflictResolutionType"));
        let changed = read_update(b"ramQuota=300&flushEnabled=0", full.clone()).unwrap();
        assert_eq!(changed.bucket.quota_bytes, 300 * MIB);
        assert!(!changed.flush_enabled);
        assert_eq!(changed.max_ttl_s, 60);
    }

    /// What the bucket managers of SDKs and the reference's tools send on their own account.
    #[test]
    fn what_clients_always_send_is_taken() {
        for body in [
            "name=a&ramQuotaMB=100&replicaNumber=1&flushEnabled=0&replicaIndex=1&bucketType=membase",
            "name=a&ramQuotaMB=100&flushEnabled=1&maxTTL=0&compressionMode=passive\
             &durabilityMinLevel=none&storageBackend=couchstore&evictionPolicy=valueOnly\
             &conflictResolutionType=seqno&numVBuckets=1024",
            "name=a&bucketType=couchbase&ramQuota=100&authType=sasl&saslPassword=&threadsNumber=3\
             &replicaIndex=0&autoCompactionDefined=false&durabilityImpossibleFallback=disabled",
            "name=a&bucketType=ephemeral&evictionPolicy=noEviction&rank=0\
             &enableCrossClusterVersioning=false&versionPruningWindowHrs=720",
        ] {
            let made = read_new(body.as_bytes()).expect(body);
            read_update(body.as_bytes(), made).expect(body);
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
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
        // All that is not done, and nothing that is unknown, is passed over in silence.
        for (name, value) in [
            ("compressionMode", "off"),
            ("compressionMode", "active"),
            ("numVBuckets", "128"),
            ("durabilityImpossibleFallback", "fallbackToActiveAck"),
            ("enableCrossClusterVersioning", "true"),
            ("autoCompactionDefined", "true"),
            ("databaseFragmentationThreshold[percentage]", "30"),
            ("purgeInterval", "3"),
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
        let now = read_new(b"name=a").unwrap();
        assert!(read_update(b"maxTTL=5", now.clone()).is_err());
        assert!(read_update(b"evictionPolicy=fullEviction", now).is_err());
    }
}
