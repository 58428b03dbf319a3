//! Recent changes that the command has written, so that it does not send them back.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Mutex;

use model::{Seqno, VbUuid};
use wire::request::WithMeta;

/// Number of remembered changes: 24 MiB.
const SLOTS: usize = 1 << 20;

/// The newest changes that were written to a bucket. A forgotten change is sent back; the bucket refuses it there,
/// since it is not newer.
#[derive(Debug)]
pub(super) struct Echo {
    slots: Mutex<Box<[SentChange]>>,
}

/// A sent change.
#[derive(Clone, Copy, Debug)]
struct SentChange {
    /// Hash of the document's version; 0 for an empty slot.
    name: u64,
    history: VbUuid,
    seqno: Seqno,
}

impl SentChange {
    const NOTHING: Self = Self {
        name: 0,
        history: VbUuid(0),
        seqno: Seqno(0),
    };
}

impl Echo {
    /// Creates an empty table; it takes no memory and remembers nothing unless `remembers`.
    pub(super) fn new(remembers: bool) -> Self {
        let slots = if remembers { SLOTS } else { 0 };
        Self {
            slots: Mutex::new(vec![SentChange::NOTHING; slots].into()),
        }
    }

    /// Notes a sent change, with its history and seqno at the source.
    pub(super) fn note(&self, change: &WithMeta<'_>, user_key: &[u8], at: (VbUuid, Seqno)) {
        let name = name_of(change, user_key);
        let (history, seqno) = at;
        self.with_slot(name, |slot| {
            *slot = SentChange {
                name,
                history,
                seqno,
            };
        });
    }

    /// Removes a sent change; returns its history and seqno at the source.
    pub(super) fn take(&self, change: &WithMeta<'_>, user_key: &[u8]) -> Option<(VbUuid, Seqno)> {
        let name = name_of(change, user_key);
        let sent = self.with_slot(name, |slot| {
            let is_it = slot.name == name;
            is_it.then(|| std::mem::replace(slot, SentChange::NOTHING))
        });
        sent.flatten().map(|sent| (sent.history, sent.seqno))
    }

    fn with_slot<T>(&self, name: u64, act: impl FnOnce(&mut SentChange) -> T) -> Option<T> {
        let mut slots = self.slots.lock().expect("no thread panicked with it");
        let index = usize::try_from(name).ok()? % slots.len().max(1);
        slots.get_mut(index).map(act)
    }
}

/// Returns the 64-bit hash of one version of a document; never 0.
fn name_of(change: &WithMeta<'_>, user_key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    user_key.hash(&mut hasher);
    change.cas.0.hash(&mut hasher);
    change.rev.hash(&mut hasher);
    change.action.hash(&mut hasher);
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use model::Cas;
    use wire::request::MetaAction;

    use super::*;

    fn change(cas: u64) -> WithMeta<'static> {
        WithMeta {
            action: MetaAction::Set,
            quiet: true,
            key: b"",
            value: b"",
            flags: 0,
            expiry: 0,
            rev: 1,
            cas: Cas(cas),
            options: None,
            extended: None,
        }
    }

    #[test]
    fn echo_recognises_a_change_once() {
        let echo = Echo::new(true);
        let at = (VbUuid(1), Seqno(5));
        echo.note(&change(7), b"k", at);
        assert_eq!(echo.take(&change(8), b"k"), None, "another version");
        assert_eq!(echo.take(&change(7), b"l"), None, "another document");
        assert_eq!(echo.take(&change(7), b"k"), Some(at));
        assert_eq!(echo.take(&change(7), b"k"), None);
    }

    #[test]
    fn echo_remembers_nothing_in_one_direction() {
        let echo = Echo::new(false);
        echo.note(&change(7), b"k", (VbUuid(1), Seqno(5)));
        assert_eq!(echo.take(&change(7), b"k"), None);
    }
}
