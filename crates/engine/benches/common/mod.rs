//! Helpers shared by the benchmarks.

use std::sync::Arc;

use engine::{FlushBudget, Outcome, StoreMode, VBucket, VbConfig, Write};
use model::{Cas, Draft, FailoverEntry, Meta, Now, Seqno, VbId, VbState, VbUuid};

/// A time in 2023.
pub(crate) const NOW: Now = Now {
    unix_ns: 1_700_000_000_000_000_000,
    mono_ns: 1,
};

/// The first history.
pub(crate) const FIRST: FailoverEntry = FailoverEntry {
    uuid: VbUuid(1),
    seqno: Seqno(0),
};

/// An active vBucket without documents.
pub(crate) fn vbucket() -> VBucket {
    VBucket::new(
        VbId(0),
        VbState::Active,
        FIRST,
        Arc::new(VbConfig::default()),
    )
}

/// Returns the stored key number `index`: collection prefix and ten bytes.
pub(crate) fn key(index: u64) -> [u8; 11] {
    let mut key = *b"\0k000000000";
    let mut rest = index;
    for digit in key[2..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Stores a document, including its draft.
pub(crate) fn set(vbucket: &mut VBucket, key: &[u8], value: &[u8]) {
    let draft = Some(Draft::new(key, value, &Meta::default()));
    let mut write = Write {
        mode: StoreMode::Set,
        draft,
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    };
    assert!(
        matches!(vbucket.store(&mut write, NOW), Ok(Outcome::Done(_))),
        "a plain set"
    );
}

/// Flushes all changes, without a store.
pub(crate) fn flush(vbucket: &mut VBucket) {
    while let Some(batch) =
        vbucket.begin_flush(FlushBudget::ALL, &mut engine::SpareBuffers::default())
    {
        drop(vbucket.finish_flush(batch.done(true)));
    }
}

/// A vBucket of `count` documents, flushed.
pub(crate) fn filled(count: u64, value: &[u8]) -> VBucket {
    let mut vbucket = vbucket();
    (0..count).for_each(|index| set(&mut vbucket, &key(index), value));
    flush(&mut vbucket);
    vbucket
}
