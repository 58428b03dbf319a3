//! A check whether the limits of the process allow the memory of its buckets.
//!
//! If the system refuses memory, the process ends: any operation may need memory, and there is no other answer. So a
//! limit that is too low is logged at the start.

use rustix::process::{Resource, getrlimit};

use super::machine_memory::machine_memory;

/// Memory of the process beside its buckets, bytes: code, stacks, reserve of the allocator.
const OWN_BYTES: u64 = 1 << 30;
/// Addresses per byte of documents: the allocator's blocks of different sizes lie in different places.
const ADDRESSES_PER_BYTE: u64 = 2;

/// Part of the quotas that the allocator holds beside the documents: an eighth.
const ALLOCATOR_SHARE: u64 = 8;
/// Memory of the process beside its buckets that is in use, bytes.
const RESIDENT_BYTES: u64 = 64 << 20;

/// Warns if buckets with these quotas together may meet a limit of this process, or need more memory than there is.
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
    let memory = machine_memory().total;
    let enough = resident_at(quota_bytes);
    if 0 < memory && memory < enough {
        tracing::warn!(
            memory_mib = memory >> 20,
            quotas_mib = quota_bytes >> 20,
            enough_mib = enough >> 20,
            "the buckets may need more memory than this machine or container has: when it is used up, the system \
             ends the process; lower the quotas (--bucket NAME:MIB) or allow it more memory"
        );
    }
}

/// Returns the resident memory of a process whose buckets have used up their quotas.
fn resident_at(quota_bytes: u64) -> u64 {
    let allocator = quota_bytes / ALLOCATOR_SHARE;
    quota_bytes
        .saturating_add(allocator)
        .saturating_add(RESIDENT_BYTES)
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
        assert_eq!(resident_at(256 << 20), (256 + 32 + 64) << 20);
        assert_eq!(resident_at(u64::MAX), u64::MAX);
    }
}
