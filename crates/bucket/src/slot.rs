//! Slots of vBuckets, and their creation from the store's records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use engine::{VBucket, VbConfig};
use model::{FailoverEntry, Seqno, SnapshotRange, VbId, VbRecord, VbState, VbUuid};
use parking_lot::Mutex;

use crate::subscribers::Subscribers;

/// Slot of one vBucket. The fields that a write touches lie in one cache line, shared with no other vBucket.
#[repr(align(64))]
pub(crate) struct Slot {
    pub(crate) vbucket: Mutex<Option<Box<VBucket>>>,
    /// Whether the loaded state may lack changes that clients have seen: then an active vBucket begins a new history.
    pub(crate) begins_anew: bool,
    /// Whether warmup has loaded the vBucket, so that data operations are allowed.
    pub(crate) loaded: AtomicBool,
    /// Whether the vBucket is [sealed](Bucket::seal).
    pub(crate) sealed: AtomicBool,
    pub(crate) subscribers: Subscribers,
    /// Counter of events that end all streams of the vBucket: state changes, removals, new objects.
    pub(crate) epoch: AtomicU64,
    /// Low bits of the newest seqno; see [`Bucket::newest`].
    pub(crate) newest: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == 64, "one cache line");

pub(crate) fn first_history(uuid: VbUuid) -> FailoverEntry {
    FailoverEntry {
        uuid,
        seqno: Seqno::ZERO,
    }
}

/// Returns the record that stays in the store for a deleted vBucket, so that a restart does not create it again.
pub(crate) fn deleted_record(mut record: VbRecord) -> VbRecord {
    record.state = VbState::Dead;
    record.high_seqno = Seqno::ZERO;
    record.snapshot = SnapshotRange::default();
    // A store never lowers it: a new vBucket would have it as well.
    record.purge_seqno = Seqno::ZERO;
    record.counts = None;
    record
}

fn was_deleted(record: &VbRecord) -> bool {
    record.state == VbState::Dead && record.high_seqno == Seqno::ZERO
}

/// Options for opening vBuckets.
pub(crate) struct SlotOptions<'a> {
    pub(crate) config: &'a Arc<VbConfig>,
    pub(crate) vbuckets: u16,
    /// Whether the store was closed properly.
    pub(crate) clean: bool,
    /// Whether the node is in a cluster.
    pub(crate) member: bool,
}

/// Creates the slots from the store's records. A vBucket without a record is new and active. On a
/// node in a cluster no vBucket is new and none is active.
pub(crate) fn slots(
    options: &SlotOptions<'_>,
    loaded: &BTreeMap<VbId, VbRecord>,
    uuids: &mut dyn FnMut() -> VbUuid,
) -> Vec<Slot> {
    let (vbuckets, clean) = (options.vbuckets, options.clean);
    let mut slots = Vec::with_capacity(usize::from(vbuckets));
    for index in 0..vbuckets {
        let id = VbId(index);
        let config = Arc::clone(options.config);
        let found = loaded.get(&id);
        let vbucket = if let Some(found) = found {
            let mut record = found.clone();
            if options.member && record.state != VbState::Dead {
                record.state = VbState::Replica;
                record.topology.clear();
            }
            (!was_deleted(&record)).then(|| VBucket::from_record(id, record, config))
        } else {
            let first = first_history(uuids());
            (!options.member).then(|| VBucket::new(id, VbState::Active, first, config))
        };
        let begins_anew =
            found.is_some_and(|found| !clean || found.snapshot.start != found.snapshot.end);
        slots.push(Slot {
            vbucket: Mutex::new(vbucket.map(Box::new)),
            begins_anew,
            loaded: AtomicBool::new(false),
            subscribers: Subscribers::default(),
            sealed: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            newest: AtomicU32::new(0),
        });
    }
    slots
}
