//! SET_PARAM: settings that can be changed while the node runs. They are lost when the process ends.

mod documents;
mod param;

use std::time::Duration;

use bucket::{Limits, Share};
use registry::dcp::OsoBackfill;
use wire::{Frame, Status};

use crate::context::Context;
use crate::outcome::{CommandResult, Refusal};
use crate::reply::Reply;

use param::Family::{self, Checkpoint, Dcp, Flush};
use param::{
    InvalidParam, Param, Setter, above_zero, boolean, limit, number, ratio, served, small,
};

/// Minimum quota of a running bucket, in bytes.
const QUOTA_BYTES_MIN: u64 = 1 << 20;

/// Settings of memory, checkpoints, expiry and streams. The names are the reference's.
static PARAMS: [Param; 20] = [
    limit(Flush, "max_size", |limits, text| {
        let bytes = number(text)?;
        if bytes < QUOTA_BYTES_MIN {
            return Err("the quota must be at least 1048576 bytes");
        }
        limits.quota_bytes = bytes;
        Ok(())
    }),
    limit(Flush, "mem_low_wat", |limits, text| {
        limits.low = part_of_quota(number(text)?, limits)?;
        Ok(())
    }),
    limit(Flush, "mem_high_wat", |limits, text| {
        limits.high = part_of_quota(number(text)?, limits)?;
        Ok(())
    }),
    limit(Flush, "mem_low_wat_percent", |limits, text| {
        limits.low = ratio(text)?;
        Ok(())
    }),
    limit(Flush, "mem_high_wat_percent", |limits, text| {
        limits.high = ratio(text)?;
        Ok(())
    }),
    limit(Flush, "mutation_mem_ratio", |limits, text| {
        limits.mutation = ratio(text)?;
        Ok(())
    }),
    limit(Flush, "backfill_mem_threshold", |limits, text| {
        let percent = number(text)?;
        let percent = u32::try_from(percent)
            .ok()
            .filter(|percent| *percent <= 100);
        let percent = percent.ok_or("a percentage of 1 to 100 is needed")?;
        limits.backfill = Share::percent(percent);
        Ok(())
    }),
    served(Flush, "exp_pager_enabled", |served, _, text| {
        served.bucket.set_expires(boolean(text)?);
        Ok(())
    }),
    served(Flush, "exp_pager_stime", |served, _, text| {
        let seconds = u32::try_from(number(text)?).map_err(|_| "too many seconds")?;
        served.bucket.set_expiry_pass_s(seconds);
        Ok(())
    }),
    served(Flush, "range_scan_max_lifetime", |served, _, text| {
        let lifetime = Duration::from_secs(number(text)?);
        served.bucket.set_scan_lifetime(lifetime);
        Ok(())
    }),
    limit(Checkpoint, "checkpoint_memory_ratio", |limits, text| {
        limits.checkpoints = ratio(text)?;
        Ok(())
    }),
    limit(
        Checkpoint,
        "checkpoint_memory_recovery_upper_mark",
        |limits, text| {
            limits.checkpoint_upper = ratio(text)?;
            Ok(())
        },
    ),
    limit(
        Checkpoint,
        "checkpoint_memory_recovery_lower_mark",
        |limits, text| {
            limits.checkpoint_lower = ratio(text)?;
            Ok(())
        },
    ),
    served(Dcp, "dcp_oso_backfill", |served, _, text| {
        let setting = OsoBackfill::parse(text).ok_or("auto, enabled or disabled is needed")?;
        served.dcp.settings.write().oso = setting;
        Ok(())
    }),
    served(Dcp, "dcp_backfill_byte_limit", |served, _, text| {
        let bytes = usize::try_from(number(text)?).map_err(|_| "too many bytes")?;
        served.bucket.set_backfill_bytes_max(bytes);
        Ok(())
    }),
    served(
        Dcp,
        "dcp_backfill_in_progress_per_connection_limit",
        |served, _, text| {
            let count = usize::try_from(number(text)?).map_err(|_| "too many")?;
            served.bucket.set_backfills_at_once(count);
            Ok(())
        },
    ),
    served(Dcp, "dcp_consumer_buffer_ratio", |served, _, text| {
        let share = ratio(text)?.of(1_000_000);
        served.dcp.settings.write().window_share_ppm = share as u32;
        Ok(())
    }),
    served(Dcp, "dcp_flow_control_buffer_size", |served, _, text| {
        let bytes = Some(small(text)?).filter(|bytes| *bytes > 0);
        served.dcp.settings.write().window_bytes = bytes;
        Ok(())
    }),
    served(Dcp, "dcp_idle_timeout", |served, _, text| {
        let seconds = above_zero(text)?;
        let timeout = Duration::from_secs(seconds.into());
        served.dcp.settings.write().idle_timeout = Some(timeout);
        Ok(())
    }),
    served(
        Dcp,
        "dcp_noop_mandatory_for_v5_features",
        |served, _, text| {
            served.dcp.settings.write().noops_mandatory = boolean(text)?;
            Ok(())
        },
    ),
];

/// Returns every setting that can be changed.
fn all() -> impl Iterator<Item = &'static Param> {
    PARAMS.iter().chain(&documents::DOCUMENTS)
}

/// SET_PARAM: the extras name the family, the key names the setting, the value is the new value.
pub(super) fn set(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let bucket = context.bucket()?;
    // The reference once had a family for replication. An unknown family is answered with "not found".
    let family = Family::of_extras(frame.extras).ok_or(Status::KEY_ENOENT)?;
    let found = |param: &&Param| {
        param.name.as_bytes() == frame.key && (family == Family::Config || param.family == family)
    };
    let param = all()
        .find(found)
        .ok_or_else(|| Refusal::invalid("this node has no such setting to change"))?;
    let wrong = |reason: InvalidParam| Refusal::invalid(reason);
    let text = str::from_utf8(frame.value).map_err(|_| wrong("the value is no text"))?;
    let value = text.trim();
    let set = match param.set {
        Setter::Served(set) => set(&bucket, frame.vbucket(), value),
        Setter::Limit(set) => bucket.bucket.change_limits(|limits| set(limits, value)),
    };
    set.map_err(wrong)?;
    tracing::info!(
        bucket = bucket.name(),
        setting = param.name,
        value = text,
        "changed"
    );
    Ok(context.reply(frame, &Reply::EMPTY))
}

fn part_of_quota(bytes: u64, limits: &Limits) -> Result<Share, InvalidParam> {
    Share::of_bytes(bytes, limits.quota_bytes).ok_or("it must not be above the quota")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_a_bucket_has_a_statistic() {
        let page = stats::stats_page();
        for param in all() {
            let row = format!("| `ep_{}` |", param.name);
            let is_told = param.family == Family::VBucket || page.contains(&row);
            assert!(is_told, "{} is not told", param.name);
        }
    }
}
