//! A watch that keeps the resident memory of the process near the quotas of its buckets.
//!
//! A bucket counts its documents to the byte. Memory that the allocator holds beyond that, and memory of stores and
//! connections, shows only in the resident memory of the process. The watch sets this memory as the overhead of the
//! buckets. Buckets count the overhead as used, and so keep fewer documents. The part that is always there counts from
//! the start, since memory that documents have once taken hardly comes back. The rest counts when the process exceeds
//! the quotas.

use std::sync::Arc;
use std::time::Duration;

use registry::{Registry, Store};

/// Interval between two looks at resident memory, while it is below the quotas, and near them.
const PERIOD: Duration = Duration::from_millis(250);
const PERIOD_NEAR: Duration = Duration::from_millis(50);
/// Resident memory that counts as near, percent of the quotas.
const NEAR_PERCENT: u64 = 85;
/// Resident memory above which there is an overhead, percent of the quotas.
const UPPER_PERCENT: u64 = 95;
/// Overhead as a percentage of the memory above that. It is more than 100 %, since documents that leave free only a
/// part of their memory.
const GAIN_PERCENT: u64 = 200;
/// Limits of the overhead and of its rise at each look, percent of the quotas. A flood fills an empty bucket within a
/// second; without these limits, memory that is freed late would empty the buckets.
const MOST_PERCENT: u64 = 50;
const STEP_UP_PERCENT: u64 = 3;
/// Limit of the overhead's fall in a [`PERIOD`], percent of the quotas. It is less than the rise: the allocator returns
/// free pages once a second, and this memory must not fill again before the next second has shown the resident memory.
const STEP_DOWN_PERCENT: u64 = 1;
/// Limit of the overhead that is always there, percent of the quotas: buckets with the smallest quotas need room for
/// documents, too.
const FIXED_PERCENT: u64 = 25;

/// Watches the memory for as long as the node serves. In unit tests it does nothing: a hundred nodes share a process,
/// so its memory shows nothing about any of them.
pub(super) async fn watch(node: Arc<Registry>) {
    if cfg!(test) {
        return;
    }
    let (mut overhead, mut least_unbooked) = (0, u64::MAX);
    loop {
        let Some(resident) = resident_bytes() else {
            return tracing::debug!("this system does not tell what the process takes");
        };
        let buckets = node.all_buckets();
        let quota: u64 = buckets.iter().map(|b| b.bucket.memory().quota()).sum();
        let booked: u64 = buckets.iter().map(|b| b.bucket.memory().booked()).sum();
        least_unbooked = least_unbooked.min(resident.saturating_sub(booked));
        let mut fixed = least_unbooked;
        for served in &buckets {
            if let Store::Disk(store) = served.bucket.store() {
                fixed += store.memory_bytes();
            }
        }
        overhead = next_overhead(overhead, fixed, resident, quota);
        for served in &buckets {
            let own = u128::from(served.bucket.memory().quota()) * u128::from(overhead);
            let share = own.checked_div(u128::from(quota)).unwrap_or(0);
            served
                .bucket
                .set_memory_overhead(u64::try_from(share).unwrap_or(0));
        }
        tokio::time::sleep(period(resident, quota)).await;
    }
}

/// Returns the interval until the next look.
fn period(resident: u64, quota: u64) -> Duration {
    if resident > quota / 100 * NEAR_PERCENT {
        PERIOD_NEAR
    } else {
        PERIOD
    }
}

/// Returns the next overhead, bytes. `overhead` is the current one, and `resident` is the memory that the process takes
/// with it. `fixed` is the memory for other things than documents.
///
/// The overhead beyond `fixed` follows from the excess over the quotas, and does not add up over time: the next
/// documents use the memory that the allocator keeps, so it need not come back.
fn next_overhead(overhead: u64, fixed: u64, resident: u64, quota: u64) -> u64 {
    let share = |percent: u64| quota / 100 * percent;
    let fixed = fixed.min(share(FIXED_PERCENT));
    let above = resident.saturating_sub(share(UPPER_PERCENT));
    let wanted = (fixed + above / 100 * GAIN_PERCENT).min(share(MOST_PERCENT));
    let periods = PERIOD.as_millis() / period(resident, quota).as_millis();
    let step_down = share(STEP_DOWN_PERCENT) / periods as u64;
    let told = wanted.clamp(
        overhead.saturating_sub(step_down),
        overhead + share(STEP_UP_PERCENT),
    );
    told.max(fixed)
}

/// Returns the resident memory of this process, bytes; `None` if the system does not report it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_follows_resident_memory_within_limits() {
        let (mut overhead, quota) = (0, 10_000);
        overhead = next_overhead(overhead, 0, 9_500, quota);
        assert_eq!(overhead, 0, "about at the quota");
        for expected in [300, 600, 900, 1200, 1200] {
            overhead = next_overhead(overhead, 0, 10_100, quota);
            assert_eq!(overhead, expected);
        }
        for expected in [1180, 1160, 1140] {
            overhead = next_overhead(overhead, 0, 9_000, quota);
            assert_eq!(overhead, expected, "a fifth of a percent each 50 ms");
        }
        overhead = next_overhead(overhead, 0, 8_000, quota);
        assert_eq!(overhead, 1040, "a percent each 250 ms");
        for _ in 0..100 {
            overhead = next_overhead(overhead, 0, 50_000, quota);
        }
        assert_eq!(overhead, 5_000, "never more");
        for _ in 0..100 {
            overhead = next_overhead(overhead, 0, 5_000, quota);
        }
        assert_eq!(overhead, 0);
    }

    #[test]
    fn fixed_memory_counts_from_the_start_within_limits() {
        let quota = 10_000;
        assert_eq!(next_overhead(0, 1_500, 2_000, quota), 1_500);
        assert_eq!(
            next_overhead(0, 9_000, 9_400, quota),
            2_500,
            "a quarter at most"
        );
        let mut overhead = 1_500;
        for expected in [1_800, 1_900, 1_900] {
            overhead = next_overhead(overhead, 1_500, 9_700, quota);
            assert_eq!(overhead, expected, "and twice what is above");
        }
        for expected in [1_800, 1_700, 1_600, 1_500, 1_500] {
            overhead = next_overhead(overhead, 1_500, 8_000, quota);
            assert_eq!(overhead, expected);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_takes_some_megabytes() {
        let bytes = resident_bytes().unwrap();
        assert!((1 << 20..1 << 36).contains(&bytes), "{bytes}");
    }
}
