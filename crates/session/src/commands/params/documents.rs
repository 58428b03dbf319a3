//! SET_PARAM settings for stored documents and for their writers.

use std::time::Duration;

use bucket::HistoryRetention;
use engine::{FutureCas, VbConfig};
use model::{Cas, CompressionMode, DurabilityLevel};
use registry::{ServedBucket, Store};
use value::VALUE_BYTES_MAX;

use super::param::Family::{Flush, VBucket};
use super::param::{InvalidParam, Param, above_zero, number, served, small};

/// Maximum of the age at which tombstones are purged, in seconds.
const PURGE_AGE_MAX_S: u64 = 60 * 86_400;

/// Minimum of a history's byte limit.
const HISTORY_BYTES_MIN: u64 = 2 << 30;

/// Maximum of the CAS that a vBucket may be set to; values above it leave room for years of changes.
const CAS_MAX: u64 = 1 << 63;

/// The settings, in the order of the reference's families.
pub(super) static DOCUMENTS: [Param; 15] = [
    served(Flush, "max_ttl", |served, _, text| {
        let seconds = small(text)?;
        change(served, |config| config.max_ttl_s = seconds);
        Ok(())
    }),
    served(Flush, "durability_min_level", |served, _, text| {
        let wrong = "none, majority, majorityAndPersistActive or persistToMajority is needed";
        let level = match text {
            "none" => None,
            name => Some(DurabilityLevel::from_name(name).ok_or(wrong)?),
        };
        if level > Some(served.bucket.vb_config().durability_max) {
            return Err("nothing is on disk of a bucket in memory");
        }
        change(served, |config| config.durability_min = level);
        Ok(())
    }),
    served(Flush, "compression_mode", |served, _, text| {
        let mode = CompressionMode::from_name(text).ok_or("off, passive or active is needed")?;
        served.bucket.set_compression(mode);
        Ok(())
    }),
    served(Flush, "getl_default_timeout", |served, _, text| {
        let seconds = above_zero(text)?;
        change(served, |config| config.getl_default_s = seconds);
        Ok(())
    }),
    served(Flush, "getl_max_timeout", |served, _, text| {
        let seconds = above_zero(text)?;
        change(served, |config| config.getl_max_s = seconds);
        Ok(())
    }),
    served(Flush, "max_item_size", |served, _, text| {
        let bytes = small(text)? as usize;
        if bytes == 0 || bytes > VALUE_BYTES_MAX {
            return Err("1 to 20971520 bytes are needed");
        }
        change(served, |config| config.value_bytes_max = bytes);
        Ok(())
    }),
    served(Flush, "persistent_metadata_purge_age", |served, _, text| {
        check_disk(served)?;
        let seconds = u64::from(small(text)?);
        if seconds > PURGE_AGE_MAX_S {
            return Err("60 days at most");
        }
        served.bucket.set_purge_age_s(seconds);
        Ok(())
    }),
    served(Flush, "seqno_persistence_timeout", |served, _, text| {
        let wait = Duration::from_secs(small(text)?.into());
        *served.persistence_wait.write() = Some(wait);
        Ok(())
    }),
    served(Flush, "history_retention_seconds", |served, _, text| {
        let seconds = number(text)?;
        keep_history(served, |retention| retention.seconds = seconds)
    }),
    served(Flush, "history_retention_bytes", |served, _, text| {
        let bytes = number(text)?;
        if bytes != 0 && bytes < HISTORY_BYTES_MIN {
            return Err("0, or 2147483648 bytes at least");
        }
        keep_history(served, |retention| retention.bytes = bytes)
    }),
    served(
        VBucket,
        "hlc_drift_ahead_threshold_us",
        |served, _, text| {
            let us = number(text)?;
            change(served, |config| config.drift.ahead_us = us);
            Ok(())
        },
    ),
    served(
        VBucket,
        "hlc_drift_behind_threshold_us",
        |served, _, text| {
            let us = number(text)?;
            change(served, |config| config.drift.behind_us = us);
            Ok(())
        },
    ),
    served(VBucket, "hlc_max_future_threshold_us", |served, _, text| {
        let us = number(text)?;
        change(served, |config| config.drift.future_us = us);
        Ok(())
    }),
    served(VBucket, "hlc_invalid_strategy", |served, _, text| {
        let future = FutureCas::from_name(text).ok_or("ignore, error or replace is needed")?;
        change(served, |config| config.drift.future = future);
        Ok(())
    }),
    served(VBucket, "max_cas", |served, vb, text| {
        let cas = Cas(number(text)?);
        let far = Cas(CAS_MAX);
        if cas > far {
            return Err("no vBucket could give greater ones");
        }
        let raised = served
            .bucket
            .with_vbucket(vb, |vbucket| vbucket.raise_cas(cas));
        raised.ok_or("there is no such vBucket here")
    }),
];

/// Changes settings of every vBucket.
fn change(served: &ServedBucket, change: impl FnOnce(&mut VbConfig)) {
    served.bucket.change_vb_config(change);
}

fn check_disk(served: &ServedBucket) -> Result<(), InvalidParam> {
    let durable = matches!(served.bucket.store(), Store::Disk(_));
    durable
        .then_some(())
        .ok_or("the documents of this bucket are only in memory")
}

/// Changes the retention of history. It blocks while a commit is under way.
fn keep_history(
    served: &ServedBucket,
    change: impl FnOnce(&mut HistoryRetention),
) -> Result<(), InvalidParam> {
    if !served.settings().history.magma {
        return Err("the bucket was not made with the storage backend magma");
    }
    let mut retention = served.bucket.history_retention();
    change(&mut retention);
    let kept = served.bucket.set_history_retention(retention);
    kept.map_err(|error| {
        tracing::error!(bucket = served.name(), %error, "the history could not be changed");
        "the store failed"
    })
}
