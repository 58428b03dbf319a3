//! SET_PARAM: settings that may be changed while the node runs. Nothing of it outlives the
//! process.

use std::str::FromStr;
use std::time::Duration;

use bucket::{Limits, Share};
use model::{Cas, VbId};
use registry::ServedBucket;
use registry::dcp::OsoBackfill;
use wire::{Frame, Status};

use crate::context::Context;
use crate::outcome::{CommandOutcome, Refusal};
use crate::reply::Reply;

/// The smallest quota that a running bucket may be given.
const QUOTA_BYTES_MIN: u64 = 1 << 20;

/// The greatest CAS that a vBucket can be told of: years of changes fit above it.
const CAS_MAX: u64 = 1 << 63;

/// Which family of settings a name belongs to, by its number in the request's extras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Flush = 1,
    Checkpoint = 3,
    Dcp = 4,
    VBucket = 5,
    Config = 6,
}

impl Family {
    fn of_extras(extras: &[u8]) -> Option<Self> {
        let number = u32::from_be_bytes(extras.try_into().ok()?);
        let families = [
            Self::Flush,
            Self::Checkpoint,
            Self::Dcp,
            Self::VBucket,
            Self::Config,
        ];
        families.into_iter().find(|family| *family as u32 == number)
    }
}

/// What is wrong with a setting, for people.
type InvalidParam = &'static str;

struct Param {
    family: Family,
    name: &'static str,
    set: fn(&ServedBucket, VbId, &str) -> Result<(), InvalidParam>,
}

/// Every setting that can be changed. The names are the reference's.
static PARAMS: [Param; 21] = [
    flush("max_size", |served, _, text| {
        let bytes = number(text)?;
        if bytes < QUOTA_BYTES_MIN {
            return Err("the quota must be at least 1048576 bytes");
        }
        limits(served, |limits| {
            limits.quota_bytes = bytes;
            Ok(())
        })
    }),
    flush("mem_low_wat", |served, _, text| {
        let bytes = number(text)?;
        limits(served, |limits| {
            limits.low = part_of_quota(bytes, limits)?;
            Ok(())
        })
    }),
    flush("mem_high_wat", |served, _, text| {
        let bytes = number(text)?;
        limits(served, |limits| {
            limits.high = part_of_quota(bytes, limits)?;
            Ok(())
        })
    }),
    flush("mem_low_wat_percent", |served, _, text| {
        let share = ratio(text)?;
        limits(served, |limits| {
            limits.low = share;
            Ok(())
        })
    }),
    flush("mem_high_wat_percent", |served, _, text| {
        let share = ratio(text)?;
        limits(served, |limits| {
            limits.high = share;
            Ok(())
        })
    }),
    flush("mutation_mem_ratio", |served, _, text| {
        let share = ratio(text)?;
        limits(served, |limits| {
            limits.mutation = share;
            Ok(())
        })
    }),
    flush("backfill_mem_threshold", |served, _, text| {
        let percent = number(text)?;
        let percent = u32::try_from(percent)
            .ok()
            .filter(|percent| *percent <= 100);
        let percent = percent.ok_or("a percentage of 1 to 100 is needed")?;
        limits(served, |limits| {
            limits.backfill = Share::percent(percent);
            Ok(())
        })
    }),
    flush("exp_pager_enabled", |served, _, text| {
        served.bucket.set_expires(boolean(text)?);
        Ok(())
    }),
    flush("exp_pager_stime", |served, _, text| {
        let seconds = u32::try_from(number(text)?).map_err(|_| "too many seconds")?;
        served.bucket.set_expiry_pass_s(seconds);
        Ok(())
    }),
    flush("range_scan_max_lifetime", |served, _, text| {
        let lifetime = Duration::from_secs(number(text)?);
        served.bucket.set_scan_lifetime(lifetime);
        Ok(())
    }),
    checkpoint("checkpoint_memory_ratio", |served, _, text| {
        let share = ratio(text)?;
        limits(served, |limits| {
            limits.checkpoints = share;
            Ok(())
        })
    }),
    checkpoint(
        "checkpoint_memory_recovery_upper_mark",
        |served, _, text| {
            let share = ratio(text)?;
            limits(served, |limits| {
                limits.checkpoint_upper = share;
                Ok(())
            })
        },
    ),
    checkpoint(
        "checkpoint_memory_recovery_lower_mark",
        |served, _, text| {
            let share = ratio(text)?;
            limits(served, |limits| {
                limits.checkpoint_lower = share;
                Ok(())
            })
        },
    ),
    dcp("dcp_oso_backfill", |served, _, text| {
        let setting = OsoBackfill::parse(text).ok_or("auto, enabled or disabled is needed")?;
        served.dcp.settings.oso.set(setting);
        Ok(())
    }),
    dcp("dcp_backfill_byte_limit", |served, _, text| {
        let bytes = usize::try_from(number(text)?).map_err(|_| "too many bytes")?;
        served.bucket.set_backfill_bytes_max(bytes);
        Ok(())
    }),
    dcp(
        "dcp_backfill_in_progress_per_connection_limit",
        |served, _, text| {
            let count = usize::try_from(number(text)?).map_err(|_| "too many")?;
            served.bucket.set_backfills_at_once(count);
            Ok(())
        },
    ),
    dcp("dcp_consumer_buffer_ratio", |served, _, text| {
        let share = ratio(text)?.of(1_000_000);
        served.dcp.settings.set_window_share(share as u32);
        Ok(())
    }),
    dcp("dcp_flow_control_buffer_size", |served, _, text| {
        served.dcp.settings.set_window_bytes(small(text)?);
        Ok(())
    }),
    dcp("dcp_idle_timeout", |served, _, text| {
        let seconds = small(text)?;
        if seconds == 0 {
            return Err("a second at least");
        }
        served.dcp.settings.set_idle_timeout_s(seconds);
        Ok(())
    }),
    dcp("dcp_noop_mandatory_for_v5_features", |served, _, text| {
        served.dcp.settings.set_noops_mandatory(boolean(text)?);
        Ok(())
    }),
    Param {
        family: Family::VBucket,
        name: "max_cas",
        set: |served, vb, text| {
            let cas = Cas(number(text)?);
            let far = Cas(CAS_MAX);
            if cas > far {
                return Err("no vBucket could give greater ones");
            }
            let raised = served
                .bucket
                .with_vbucket(vb, |vbucket| vbucket.raise_cas(cas));
            raised.ok_or("there is no such vBucket here")
        },
    },
];

const fn flush(
    name: &'static str,
    set: fn(&ServedBucket, VbId, &str) -> Result<(), InvalidParam>,
) -> Param {
    Param {
        family: Family::Flush,
        name,
        set,
    }
}

const fn dcp(
    name: &'static str,
    set: fn(&ServedBucket, VbId, &str) -> Result<(), InvalidParam>,
) -> Param {
    Param {
        family: Family::Dcp,
        name,
        set,
    }
}

const fn checkpoint(
    name: &'static str,
    set: fn(&ServedBucket, VbId, &str) -> Result<(), InvalidParam>,
) -> Param {
    Param {
        family: Family::Checkpoint,
        name,
        set,
    }
}

/// SET_PARAM: the extras name the family, the key the setting, the value what it becomes.
pub(super) fn set(context: &mut Context<'_>, frame: &Frame<'_>) -> Result<CommandOutcome, Refusal> {
    let bucket = context.bucket()?;
    // There was a family of replication once; whatever is none is not found.
    let family = Family::of_extras(frame.extras).ok_or(Status::KEY_ENOENT)?;
    let found = |param: &&Param| {
        param.name.as_bytes() == frame.key && (family == Family::Config || param.family == family)
    };
    let param = PARAMS.iter().find(found).ok_or_else(|| {
        Refusal::because(Status::EINVAL, "this node has no such setting to change")
    })?;
    let wrong = |reason: InvalidParam| Refusal::because(Status::EINVAL, reason);
    let text = str::from_utf8(frame.value).map_err(|_| wrong("the value is no text"))?;
    (param.set)(&bucket, frame.vbucket(), text.trim()).map_err(wrong)?;
    tracing::info!(
        bucket = bucket.name(),
        setting = param.name,
        value = text,
        "changed"
    );
    Ok(context.reply(frame, &Reply::EMPTY))
}

fn limits(
    served: &ServedBucket,
    change: impl FnOnce(&mut Limits) -> Result<(), InvalidParam>,
) -> Result<(), InvalidParam> {
    served.bucket.change_limits(change)
}

fn part_of_quota(bytes: u64, limits: &Limits) -> Result<Share, InvalidParam> {
    Share::of_bytes(bytes, limits.quota_bytes).ok_or("it must not be above the quota")
}

fn number(text: &str) -> Result<u64, InvalidParam> {
    u64::from_str(text).map_err(|_| "a number is needed")
}

fn small(text: &str) -> Result<u32, InvalidParam> {
    u32::from_str(text).map_err(|_| "a number of 32 bits is needed")
}

fn ratio(text: &str) -> Result<Share, InvalidParam> {
    let ratio = f64::from_str(text).ok().and_then(Share::ratio);
    ratio.ok_or("a share of 0 to 1 is needed")
}

fn boolean(text: &str) -> Result<bool, InvalidParam> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("true or false is needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_a_bucket_is_told_by_a_statistic() {
        let page = stats::stats_page();
        for param in &PARAMS {
            let row = format!("| `ep_{}` |", param.name);
            let is_told = param.family == Family::VBucket || page.contains(&row);
            assert!(is_told, "{} is not told", param.name);
        }
    }
}
