//! Changes that this command itself has made, so that they are not offered back.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Mutex;

use model::{Seqno, VbUuid};
use wire::request::WithMeta;

/// Changes that are remembered: 24 MiB.
const SLOTS: usize = 1 << 20;

/// The newest changes that were written to a bucket. A change that is forgotten is offered back, and refused
/// there, since it is not newer.
#[derive(Debug)]
pub(super) struct Echo {
    slots: Mutex<Box<[Sent]>>,
}

/// A change that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    /// Its name; 0 for none.
    name: u64,
    history: VbUuid,
    seqno: Seqno,
}

impl Sent {
    const NOTHING: Self = Self {
        name: 0,
        history: VbUuid(0),
        seqno: Seqno(0),
    };
}

impl Echo {
    /// Remembers nothing; takes no memory where nothing is to be remembered.
    pub(super) fn new(remembers: bool) -> Self {
        let slots = if remembers { SLOTS } else { 0 };
        Self {
            slots: Mutex::new(vec![Sent::NOTHING; slots].into()),
        }
    }

    /// A change was sent that has this seqno in this history where it was read.
    pub(super) fn note(&self, change: &WithMeta<'_>, user_key: &[u8], at: (VbUuid, Seqno)) {
        let name = name_of(change, user_key);
        let (history, seqno) = at;
        self.with_slot(name, |slot| {
            *slot = Sent {
                name,
                history,
                seqno,
            };
        });
    }

    /// Where a change was read if it was sent; it is forgotten now.
    pub(super) fn take(&self, change: &WithMeta<'_>, user_key: &[u8]) -> Option<(VbUuid, Seqno)> {
        let name = name_of(change, user_key);
        let sent = self.with_slot(name, |slot| {
            let is_it = slot.name == name;
            is_it.then(|| std::mem::replace(slot, Sent::NOTHING))
        });
        sent.flatten().map(|sent| (sent.history, sent.seqno))
    }

    fn with_slot<T>(&self, name: u64, act: impl FnOnce(&mut Sent) -> T) -> Option<T> {
        let mut slots = self.slots.lock().expect("no thread panicked with it");
        let index = usize::try_from(name).ok()? % slots.len().max(1);
        slots.get_mut(index).map(act)
    }
}

/// 64 bits that stand for one version of a document; never 0.
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
    fn a_change_is_recognised_once() {
        let echo = Echo::new(true);
        let at = (VbUuid(1), Seqno(5));
        echo.note(&change(7), b"k", at);
        assert_eq!(echo.take(&change(8), b"k"), None, "another version");
        assert_eq!(echo.take(&change(7), b"l"), None, "another document");
        assert_eq!(echo.take(&change(7), b"k"), Some(at));
        assert_eq!(echo.take(&change(7), b"k"), None);
    }

    #[test]
    fn nothing_is_remembered_where_nothing_comes_back() {
        let echo = Echo::new(false);
        echo.note(&change(7), b"k", (VbUuid(1), Seqno(5)));
        assert_eq!(echo.take(&change(7), b"k"), None);
    }
}
