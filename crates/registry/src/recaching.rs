//! Documents that a client of memcached's meta protocol is rebuilding. Other clients learn of it, so that they do not
//! all rebuild a popular document at once.
//!
//! This is kept in memory only. If it is lost, one more client rebuilds the document.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use model::Cas;
use parking_lot::Mutex;

/// Largest number of documents that are tracked at once: some 5 MiB with the longest keys.
const KNOWN_MAX: usize = 16_384;

/// Answer to a client that reads a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecacheTurn {
    /// This client is to rebuild the document.
    Won,
    /// Another client is rebuilding the document.
    Taken,
}

/// Facts of a document that a client reads.
#[derive(Clone, Copy, Debug)]
pub struct RecacheRead {
    /// Revision of the document.
    pub cas: Cas,
    /// Time when the document expires, Unix seconds, 0 for never.
    pub expiry: u32,
    /// Whether the value is empty.
    pub empty: bool,
    /// Whether a client is to rebuild the document.
    pub due: bool,
}

/// A document that a client is rebuilding.
#[derive(Clone, Copy, Debug)]
struct Taken {
    cas: Cas,
    /// Whether the document was created for this, without a value. It stays a stub when it is touched.
    stub: bool,
    /// Time when the document expires, Unix seconds.
    until_s: u32,
}

/// The documents of a bucket that clients are rebuilding, by key.
#[derive(Debug, Default)]
pub struct Recaching {
    taken: Mutex<BTreeMap<Box<[u8]>, Taken>>,
    /// Whether there may be any document, so that reads of others need no lock.
    any: AtomicBool,
}

impl Recaching {
    /// Returns the answer to a client that reads a document; `None` for no answer. If more documents are due than can
    /// be tracked, no client gets an answer.
    pub fn read(&self, key: &[u8], read: RecacheRead, now_s: u32) -> Option<RecacheTurn> {
        if !read.due && !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut all = self.taken.lock();
        if let Some(taken) = all.get_mut(key) {
            let same = taken.cas == read.cas || taken.stub && read.empty;
            if same && taken.until_s > now_s {
                taken.until_s = until_s(read.expiry);
                return Some(RecacheTurn::Taken);
            }
            all.remove(key);
        }
        let taken = Taken {
            cas: read.cas,
            stub: false,
            until_s: until_s(read.expiry),
        };
        (read.due && self.add(&mut all, key, taken, now_s)).then_some(RecacheTurn::Won)
    }

    /// Checks whether one more document can be tracked.
    pub fn has_room(&self, now_s: u32) -> bool {
        let mut all = self.taken.lock();
        make_room(&mut all, now_s);
        all.len() < KNOWN_MAX
    }

    /// Adds a document without a value that was created for a client that is to store its value.
    pub fn made_stub(&self, key: &[u8], cas: Cas, expiry: u32, now_s: u32) {
        let taken = Taken {
            cas,
            stub: true,
            until_s: until_s(expiry),
        };
        let known = self.add(&mut self.taken.lock(), key, taken, now_s);
        tracing::trace!(known, "a document is made for the client that won");
    }

    /// Removes a document, since it has a value.
    pub fn stored(&self, key: &[u8]) {
        if self.any.load(Ordering::Relaxed) {
            self.taken.lock().remove(key);
        }
    }

    fn add(
        &self,
        all: &mut BTreeMap<Box<[u8]>, Taken>,
        key: &[u8],
        taken: Taken,
        now_s: u32,
    ) -> bool {
        make_room(all, now_s);
        let room = all.len() < KNOWN_MAX;
        if room {
            all.insert(key.into(), taken);
            self.any.store(true, Ordering::Relaxed);
        }
        room
    }
}

/// Removes expired documents if there is no room for another one.
fn make_room(all: &mut BTreeMap<Box<[u8]>, Taken>, now_s: u32) {
    if all.len() >= KNOWN_MAX {
        all.retain(|_, taken| taken.until_s > now_s);
    }
}

fn until_s(expiry: u32) -> u32 {
    if expiry == 0 { u32::MAX } else { expiry }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(cas: u64) -> RecacheRead {
        RecacheRead {
            cas: Cas(cas),
            expiry: 10,
            empty: false,
            due: true,
        }
    }

    #[test]
    fn one_client_wins_each_version() {
        let recaching = Recaching::default();
        let read = |read| recaching.read(b"k", read, 0);
        let later = RecacheRead {
            due: false,
            ..due(7)
        };
        assert_eq!(read(later), None);
        assert_eq!(read(due(7)), Some(RecacheTurn::Won));
        assert_eq!(read(due(7)), Some(RecacheTurn::Taken));
        assert_eq!(read(later), Some(RecacheTurn::Taken));
        assert_eq!(read(due(8)), Some(RecacheTurn::Won), "it was stored anew");
        recaching.stored(b"k");
        assert_eq!(read(due(8)), Some(RecacheTurn::Won));
    }

    #[test]
    fn a_stub_is_one_until_it_has_a_value() {
        let recaching = Recaching::default();
        recaching.made_stub(b"k", Cas(7), 10, 0);
        let touched = RecacheRead {
            empty: true,
            ..due(8)
        };
        assert_eq!(recaching.read(b"k", touched, 0), Some(RecacheTurn::Taken));
        let stored = RecacheRead {
            due: false,
            ..due(9)
        };
        assert_eq!(recaching.read(b"k", stored, 0), None);
    }

    #[test]
    fn an_empty_document_after_a_stub_that_expired_is_none() {
        let empty = |expiry| RecacheRead {
            expiry,
            empty: true,
            due: false,
            ..due(8)
        };
        let recaching = Recaching::default();
        recaching.made_stub(b"k", Cas(7), 10, 0);
        assert_eq!(recaching.read(b"k", empty(20), 9), Some(RecacheTurn::Taken));
        let touched = recaching.read(b"k", empty(20), 19);
        assert_eq!(touched, Some(RecacheTurn::Taken), "it was touched");
        assert_eq!(recaching.read(b"k", empty(0), 20), None);
    }

    #[test]
    fn no_client_wins_above_the_limit_of_tracked_documents() {
        let recaching = Recaching::default();
        let read = |key: usize, now_s| recaching.read(&key.to_be_bytes(), due(1), now_s);
        for key in 0..KNOWN_MAX {
            assert!(recaching.has_room(9));
            assert_eq!(read(key, 9), Some(RecacheTurn::Won));
        }
        assert!(!recaching.has_room(9));
        assert_eq!(read(KNOWN_MAX, 9), None);
        assert_eq!(read(KNOWN_MAX, 10), Some(RecacheTurn::Won), "they expired");
    }
}
