//! Changes that this command itself has made, so that they are not offered back.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};

use model::VbUuid;
use wire::request::WithMeta;

/// Changes that are remembered: 8 MiB.
const SLOTS: usize = 1 << 20;

/// The newest changes that were written to a bucket. A change that is forgotten is offered back, and refused
/// there, since it is not newer.
#[derive(Debug)]
pub(super) struct Echo {
    slots: Box<[AtomicU64]>,
}

impl Echo {
    /// Remembers nothing; takes no memory where nothing is to be remembered.
    pub(super) fn new(remembers: bool) -> Self {
        let slots = if remembers { SLOTS } else { 0 };
        Self {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// A change of this history was sent.
    pub(super) fn note(&self, change: &WithMeta<'_>, user_key: &[u8], history: VbUuid) {
        let name = name_of(change, user_key, history);
        if let Some(slot) = self.slot(name) {
            slot.store(name, Ordering::Relaxed);
        }
    }

    /// Whether a change of this history was sent; it is forgotten now. A node that began a new history may have lost
    /// it.
    pub(super) fn take(&self, change: &WithMeta<'_>, user_key: &[u8], history: VbUuid) -> bool {
        let name = name_of(change, user_key, history);
        self.slot(name).is_some_and(|slot| {
            slot.compare_exchange(name, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        })
    }

    fn slot(&self, name: u64) -> Option<&AtomicU64> {
        let index = usize::try_from(name).ok()? % self.slots.len().max(1);
        self.slots.get(index)
    }
}

/// 64 bits that stand for one version of a document; never 0.
fn name_of(change: &WithMeta<'_>, user_key: &[u8], history: VbUuid) -> u64 {
    let mut hasher = DefaultHasher::new();
    user_key.hash(&mut hasher);
    change.cas.0.hash(&mut hasher);
    change.rev.hash(&mut hasher);
    change.action.hash(&mut hasher);
    history.0.hash(&mut hasher);
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
    fn a_change_is_recognised_once() {
        let echo = Echo::new(true);
        let (old, new) = (VbUuid(1), VbUuid(2));
        echo.note(&change(7), b"k", old);
        assert!(!echo.take(&change(8), b"k", old), "another version");
        assert!(!echo.take(&change(7), b"l", old), "another document");
        assert!(!echo.take(&change(7), b"k", new), "it may be lost");
        assert!(echo.take(&change(7), b"k", old));
        assert!(!echo.take(&change(7), b"k", old));
    }

    #[test]
    fn nothing_is_remembered_where_nothing_comes_back() {
        let echo = Echo::new(false);
        echo.note(&change(7), b"k", VbUuid(1));
        assert!(!echo.take(&change(7), b"k", VbUuid(1)));
    }
}
