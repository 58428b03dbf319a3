//! Which documents a client of the meta protocol of memcached makes anew at the moment: the others are told, so that
//! a document that is asked for often is not made by all of them at once.
//!
//! It is known in memory alone. Where it is lost, one more client makes the document anew.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use model::Cas;
use parking_lot::Mutex;

/// Documents that are known at once at most: some 5 MiB with the longest keys.
const KNOWN_MAX: usize = 16_384;

/// What a client is told of a document that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecacheTurn {
    /// It is the one that is to make it anew.
    Won,
    /// Another client was told so before.
    Taken,
}

/// A document as a client reads it.
#[derive(Clone, Copy, Debug)]
pub struct RecacheRead {
    /// Its revision.
    pub cas: Cas,
    /// When it expires, Unix seconds, 0 for never.
    pub expiry: u32,
    /// Whether its value is empty.
    pub empty: bool,
    /// Whether a client is to make it anew.
    pub due: bool,
}

/// A document of which a client was told to make it anew.
#[derive(Clone, Copy, Debug)]
struct Taken {
    cas: Cas,
    /// Whether it was made for this, without a value. It stays what it is when it is touched.
    stub: bool,
    /// When it expires, Unix seconds.
    until_s: u32,
}

/// The documents of a bucket that clients make anew, by their keys.
#[derive(Debug, Default)]
pub struct Recaching {
    taken: Mutex<BTreeMap<Box<[u8]>, Taken>>,
    /// Whether there may be any, so that others need no lock.
    any: AtomicBool,
}

impl Recaching {
    /// What a client is told that reads a document; `None` for nothing. If more documents are due than can be known,
    /// no client is told.
    pub fn read(&self, key: &[u8], read: RecacheRead, now_s: u32) -> Option<RecacheTurn> {
        if !read.due && !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut all = self.taken.lock();
        if let Some(taken) = all.get(key) {
            if taken.cas == read.cas || taken.stub && read.empty {
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

    /// Whether one more document can be known.
    pub fn has_room(&self, now_s: u32) -> bool {
        let mut all = self.taken.lock();
        make_room(&mut all, now_s);
        all.len() < KNOWN_MAX
    }

    /// Notes a document without a value that was made for a client that is to give it one.
    pub fn made_stub(&self, key: &[u8], cas: Cas, expiry: u32, now_s: u32) {
        let taken = Taken {
            cas,
            stub: true,
            until_s: until_s(expiry),
        };
        let known = self.add(&mut self.taken.lock(), key, taken, now_s);
        tracing::trace!(known, "a document is made for the client that won");
    }

    /// The document has a value.
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

/// Forgets documents that have expired, if there is no room for another one.
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
    fn no_client_wins_beyond_what_can_be_known() {
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
