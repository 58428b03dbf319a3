//! A watch that keeps the resident memory of the process near the quotas of its buckets.
//!
//! A bucket counts its documents to the byte. What the process takes for other things, for stores and connections, is
//! the overhead of the buckets, which counts as used. Memory that the allocator keeps beyond that shows only in the
//! resident memory of the process. What exceeds the quotas is the excess of the buckets: documents leave for it, and small
//! writes wait for it. Large writes do not, since they use the memory that the allocator keeps of large documents.

use std::sync::Arc;
use std::time::Duration;

use registry::{Registry, Store};

use super::machine_memory::number_of;

/// Interval between two looks at resident memory, while it is below the quotas, and near them.
const PERIOD: Duration = Duration::from_millis(250);
const PERIOD_NEAR: Duration = Duration::from_millis(50);
/// Resident memory that counts as near, percent of the quotas.
const NEAR_PERCENT: u64 = 85;
/// Resident memory above which there is an excess, percent of the quotas.
const UPPER_PERCENT: u64 = 95;
/// Excess as a percentage of the memory above that. It is more than 100 %, since documents that leave free only a
/// part of their memory.
const GAIN_PERCENT: u64 = 200;
/// Limits of overhead and excess together, and of the excess's rise at each look, percent of the quotas. A flood fills
/// an empty bucket within a second; without these limits, memory that is freed late would empty the buckets.
const MOST_PERCENT: u64 = 50;
const STEP_UP_PERCENT: u64 = 3;
/// Limit of the excess's fall in a [`PERIOD`], percent of the quotas. It is less than the rise: the allocator returns
/// free pages once a second, and this memory must not fill again before the next second has shown the resident memory.
const STEP_DOWN_PERCENT: u64 = 1;
/// Limit of the overhead, percent of the quotas: buckets with the smallest quotas need room for documents, too.
const OVERHEAD_PERCENT: u64 = 25;

/// Watches the memory for as long as the node serves. In unit tests it does nothing: a hundred nodes share a process,
/// so its memory shows nothing about any of them.
pub(super) async fn watch(node: Arc<Registry>) {
    if cfg!(test) {
        return;
    }
    let (mut excess, mut least_unbooked) = (0, u64::MAX);
    loop {
        let Some(resident) = resident_bytes() else {
            return tracing::debug!("this system does not tell what the process takes");
        };
        let buckets = node.all_buckets();
        let quota: u64 = buckets.iter().map(|b| b.bucket.memory().quota()).sum();
        let booked: u64 = buckets.iter().map(|b| b.bucket.memory().booked()).sum();
        least_unbooked = least_unbooked.min(resident.saturating_sub(booked));
        let mut overhead = least_unbooked;
        for served in &buckets {
            if let Store::Disk(store) = served.bucket.store() {
                overhead += store.memory_bytes();
            }
        }
        overhead = overhead.min(quota / 100 * OVERHEAD_PERCENT);
        excess = next_excess(excess, overhead, resident, quota);
        for served in &buckets {
            let own = u128::from(served.bucket.memory().quota());
            let share = |bytes: u64| {
                let share = (own * u128::from(bytes)).checked_div(u128::from(quota));
                u64::try_from(share.unwrap_or(0)).unwrap_or(0)
            };
            served.bucket.set_memory_overhead(share(overhead));
            served.bucket.set_memory_excess(share(excess));
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

/// Returns the next excess, bytes. `excess` is the current one, and `resident` is the memory that the process takes
/// with it. `overhead` is the memory for other things than documents.
///
/// It follows from the memory above the quotas, and does not add up over time: the next documents use the memory that
/// the allocator keeps, so it need not come back.
fn next_excess(excess: u64, overhead: u64, resident: u64, quota: u64) -> u64 {
    let share = |percent: u64| quota / 100 * percent;
    let above = resident.saturating_sub(share(UPPER_PERCENT));
    let most = share(MOST_PERCENT).saturating_sub(overhead);
    let wanted = (above / 100 * GAIN_PERCENT).min(most);
    let periods = PERIOD.as_millis() / period(resident, quota).as_millis();
    let step_down = share(STEP_DOWN_PERCENT) / periods as u64;
    let least = excess.saturating_sub(step_down);
    wanted.clamp(least, excess + share(STEP_UP_PERCENT))
}

/// Returns the resident memory of this process, bytes; `None` if the system does not report it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(number_of(&status, "VmRSS:")? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_follows_resident_memory_within_limits() {
        let (mut excess, quota) = (0, 10_000);
        excess = next_excess(excess, 0, 9_500, quota);
        assert_eq!(excess, 0, "about at the quota");
        for expected in [300, 600, 900, 1200, 1200] {
            excess = next_excess(excess, 0, 10_100, quota);
            assert_eq!(excess, expected);
        }
        for expected in [1180, 1160, 1140] {
            excess = next_excess(excess, 0, 9_000, quota);
            assert_eq!(excess, expected, "a fifth of a percent each 50 ms");
        }
        excess = next_excess(excess, 0, 8_000, quota);
        assert_eq!(excess, 1040, "a percent each 250 ms");
        for _ in 0..100 {
            excess = next_excess(excess, 1_500, 50_000, quota);
        }
        assert_eq!(excess, 3_500, "with the overhead never more than half");
        for _ in 0..100 {
            excess = next_excess(excess, 1_500, 5_000, quota);
        }
        assert_eq!(excess, 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_takes_some_megabytes() {
        let bytes = resident_bytes().unwrap();
        assert!((1 << 20..1 << 36).contains(&bytes), "{bytes}");
    }
}
