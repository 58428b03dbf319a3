//! Buckets made, changed, emptied and removed by management clients.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::DurabilityLevel;
use registry::{
    BucketConfig, BucketKind, BucketSettings, EvictionPolicy, HistorySettings, VBUCKETS,
};
use serde_json::{Map, Value, json};

use super::answers;
use super::form::{field, fields};
use crate::state::HttpState;
use crate::view::{BucketChange, BucketsError};

const MIB: u64 = 1024 * 1024;
/// Quotas are what the command line takes too.
const QUOTA_MIB_MIN: u64 = 16;
pub(super) const QUOTA_MIB_MAX: u64 = 16 * 1024 * 1024;
const QUOTA_MIB_DEFAULT: u64 = 256;
const REPLICAS_MAX: u8 = 3;
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
/// A setting that the node cannot have another way: names, values that it has, and the reason.
type Fixed = (
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);
const NO: [&str; 2] = ["false", "0"];
const COMPACTS_ITSELF: &str = "Settee decides itself when to compact";
/// All that clients send although it is as they ask anyway.
const FIXED: [Fixed; 10] = [
    // There are no views whose indexes replicas could have, so either is true.
    (
        &["replicaIndex"],
        &["0", "1", "false", "true"],
        "The value must be 0 or 1",
    ),
    (&["authType"], &["sasl"], "Clients log in with SASL"),
    (
        &["saslPassword", "proxyPort"],
        &[],
        "Buckets have no passwords and ports of their own",
    ),
    (
        &["threadsNumber"],
        &["3"],
        "Settee has as many threads as it needs",
    ),
    (&["rank"], &["0"], "Buckets have no order"),
    (
        &["autoCompactionDefined", "parallelDBAndViewCompaction"],
        &NO,
        COMPACTS_ITSELF,
    ),
    (
        &[
            "databaseFragmentationThreshold",
            "viewFragmentationThreshold",
            "magmaFragmentationPercentage",
            "allowedTimePeriod",
            "purgeInterval",
        ],
        &[],
        COMPACTS_ITSELF,
    ),
    (
        &["durabilityImpossibleFallback"],
        &["disabled"],
        "A durable write that cannot be durable is refused",
    ),
    (
        &["enableCrossClusterVersioning"],
        &NO,
        "Version vectors are not built",
    ),
    (
        &["versionPruningWindowHrs"],
        &["720"],
        "Version vectors are not built",
    ),
];

/// What is wrong with the fields of a form, by field.
type FieldErrors = Map<String, Value>;

/// `POST /pools/default/buckets`
pub(super) async fn create(State(state): State<HttpState>, body: Bytes) -> Response {
    match read_new(&body) {
        Ok(settings) => {
            let done = change(state, BucketChange::Make(settings)).await;
            answer(done, StatusCode::ACCEPTED)
        }
        Err(wrong) => refused(&wrong),
    }
}

/// `POST /pools/default/buckets/B`
pub(super) async fn update(
    State(state): State<HttpState>,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    let Some(now) = state.view.bucket_settings(&name) else {
        return answers::not_found();
    };
    match read_update(&body, now) {
        Ok(settings) => {
            let done = change(state, BucketChange::Adjust(settings)).await;
            answer(done, StatusCode::OK)
        }
        Err(wrong) => refused(&wrong),
    }
}

/// `DELETE /pools/default/buckets/B`
pub(super) async fn remove(State(state): State<HttpState>, Path(name): Path<String>) -> Response {
    answer(
        change(state, BucketChange::Drop(name)).await,
        StatusCode::OK,
    )
}

/// `POST /pools/default/buckets/B/controller/doFlush`
pub(super) async fn flush(State(state): State<HttpState>, Path(name): Path<String>) -> Response {
    answer(
        change(state, BucketChange::Flush(name)).await,
        StatusCode::OK,
    )
}

/// Makes a change away from the thread that serves connections: it waits for the disk.
async fn change(state: HttpState, change: BucketChange) -> Result<(), BucketsError> {
    let view = Arc::clone(&state.view);
    let done = state.bucket_turn.run(move || view.change_buckets(change));
    done.await.unwrap_or(Err(BucketsError::Stopping))
}

fn answer(done: Result<(), BucketsError>, good: StatusCode) -> Response {
    let Err(error) = done else {
        return good.into_response();
    };
    let text = error.to_string();
    let bad = StatusCode::BAD_REQUEST;
    match error {
        BucketsError::Unknown => answers::not_found(),
        BucketsError::Exists | BucketsError::Occupied(_) => {
            answers::json(bad, &json!({ "errors": { "name": text } }))
        }
        BucketsError::QuotaTooLarge(_) => answers::json(
            bad,
            &json!({ "errors": { "ramQuota": text }, "summaries": {} }),
        ),
        BucketsError::QuotaTooSmall(_) => {
            answers::json(bad, &json!({ "errors": { "memoryQuota": text } }))
        }
        BucketsError::TooMany(_) | BucketsError::FlushDisabled | BucketsError::Follows => {
            answers::json(bad, &json!({ "_": text }))
        }
        BucketsError::Stopping => {
            answers::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "_": text }))
        }
        BucketsError::Failed(_) => {
            answers::json(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "_": text }))
        }
    }
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
            let what = format!("{text:?} is not possible here");
            self.complain(name, &what);
            otherwise
        })
    }

    /// Wants a field, if it is there, to be one of `words`.
    fn one_of(&mut self, name: &str, words: &[&str]) {
        self.or(name, (), |text| words.contains(&text).then_some(()));
    }

    fn compression(&mut self) {
        if self
            .text("compressionMode")
            .is_some_and(|mode| mode != "passive")
        {
            let text =
                "Settee compresses nothing itself and keeps what clients compressed: passive";
            self.complain("compressionMode", text);
        }
    }

    /// Wants settings of the reference that are not built to be what this node does anyway, and no
    /// others than those that are known.
    fn only_what_is_done(&mut self) {
        let vbuckets = VBUCKETS.to_string();
        for (field, value) in fields(self.body) {
            let name = field.split('[').next().unwrap_or_default();
            if READ.contains(&name) || value.is_empty() {
                continue;
            }
            let (fixed, reason) = match name {
                "numVBuckets" => (
                    &[&*vbuckets][..],
                    "The number of vBuckets is the same for all buckets",
                ),
                _ => match FIXED.iter().find(|(names, ..)| names.contains(&name)) {
                    Some((_, fixed, reason)) => (*fixed, *reason),
                    None => (&[][..], "Unsupported key"),
                },
            };
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
                if self
                    .text(name)
                    .is_some_and(|text| text != "0" && text != "false")
                {
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
    let eviction = if durable {
        EvictionPolicy::Values
    } else {
        EvictionPolicy::None
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
    let replicas = form.or("replicaNumber", 0, replicas);
    let flush_enabled = form.flag("flushEnabled", false);
    let history = form.history(durable);
    form.one_of("conflictResolutionType", &["seqno"]);
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
    let eviction = match bucket.eviction {
        EvictionPolicy::Values => "valueOnly",
        EvictionPolicy::Documents => "fullEviction",
        EvictionPolicy::None => "noEviction",
        EvictionPolicy::Delete => "nruEviction",
    };
    form.one_of("evictionPolicy", &[eviction]);
    let least = bucket.durability_min.map_or("none", DurabilityLevel::name);
    form.one_of("durabilityMinLevel", &[least]);
    let ttl = settings.max_ttl_s.to_string();
    form.one_of("maxTTL", &[&ttl]);
    form.compression();
    form.one_of("name", &[&bucket.name]);
    form.one_of("conflictResolutionType", &["seqno"]);
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
        let body = b"name=c%25d&bucketType=ephemeral&ramQuota=200&flushEnabled=1&replicaNumber=2\
                     &evictionPolicy=nruEviction&durabilityMinLevel=majority&maxTTL=60";
        let full = read_new(body).unwrap();
        assert_eq!(full.bucket.name, "c%d");
        assert_eq!(full.bucket.kind, BucketKind::Ephemeral);
        assert_eq!(full.bucket.eviction, EvictionPolicy::Delete);
        assert_eq!(full.bucket.durability_min, Some(DurabilityLevel::Majority));
        assert_eq!((full.max_ttl_s, full.replicas), (60, 2));
        assert!(full.flush_enabled);
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
            ("conflictResolutionType", "lww"),
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
