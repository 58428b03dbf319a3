//! Random numbers, from the operating system.

use model::VbUuid;

/// Fills `bytes` from the operating system's random source.
pub(super) fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system gives random bytes");
}

/// Returns a random number.
pub(super) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Returns a new UUID for a vBucket's history: 48 bits, not 0.
pub(super) fn random_vb_uuid() -> VbUuid {
    VbUuid((random_u64() >> 16).max(1))
}

/// Returns 128 random bits as 32 hex digits.
pub(super) fn random_uuid() -> String {
    format!("{:016x}{:016x}", random_u64(), random_u64())
}
