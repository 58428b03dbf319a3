//! A check whether the limits of the process allow the memory of its buckets.
//!
//! If the system refuses memory, the process ends: any operation may need memory, and there is no other answer. So a
//! limit that is too low is logged at the start.

use rustix::process::{Resource, getrlimit};

/// Memory of the process beside its buckets, bytes: code, stacks, reserve of the allocator.
const OWN_BYTES: u64 = 1 << 30;
/// Addresses per byte of documents: the allocator's blocks of different sizes lie in different places.
const ADDRESSES_PER_BYTE: u64 = 2;

/// Warns if buckets with these quotas together may meet a limit of this process.
pub(super) fn tell(quota_bytes: u64) {
    for (resource, option) in [(Resource::As, "ulimit -v"), (Resource::Data, "ulimit -d")] {
        let Some(limit) = getrlimit(resource).current else {
            continue;
        };
        let enough = enough_for(quota_bytes);
        if limit < enough {
            tracing::warn!(
                limit_mib = limit >> 20,
                quotas_mib = quota_bytes >> 20,
                enough_mib = enough >> 20,
                "the memory of this process is limited ({option}) to less than its buckets may need: \
                 when the system refuses it memory, the process ends at once; raise the limit or lower the quotas"
            );
        }
    }
}

fn enough_for(quota_bytes: u64) -> u64 {
    quota_bytes
        .saturating_mul(ADDRESSES_PER_BYTE)
        .saturating_add(OWN_BYTES)
}

/// Returns the message for a thread that could not be started.
pub(super) fn no_thread(error: &std::io::Error) -> String {
    format!(
        "the system gives this process no further thread, or no memory for one: {error} \
         (look at ulimit -u and ulimit -v)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_addresses_grow_with_the_quotas_without_overflow() {
        assert_eq!(enough_for(0), OWN_BYTES);
        assert_eq!(enough_for(256 << 20), (1 << 30) + (512 << 20));
        assert_eq!(enough_for(u64::MAX), u64::MAX);
    }
}
