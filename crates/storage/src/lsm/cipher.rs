//! Encryption at rest: what seals the units of a file. Drawn in `docs/format/encryption.md`.
//!
//! A unit is what is read as a whole: a row of a log, a value, a block of a run. It is sealed with a key of its file, and
//! opens nowhere but where it was written: the key is derived from the header, and the offset is authenticated.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf::{KeyType, Prk};

use super::bytes::{
    CHECK_BYTES, CHECKED_BYTES, Encrypted, FileKind, HEADER_BYTES, STORE_BYTES, damaged,
    encrypted_header, key_error,
};
use super::keys::{EncryptionKeys, KeyId, MasterKey};

/// Bytes of the counter and of the tag, which follow a sealed unit.
const COUNTER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
pub(crate) const SEAL_BYTES: usize = TAG_BYTES + COUNTER_BYTES;

/// What is authenticated with a unit beside it is at most so long.
const ABOUT_MAX: usize = 32;

/// Seals the units of one file.
pub(crate) struct Cipher {
    key: LessSafeKey,
    /// The next counter. It begins anywhere in 64 bits, so that what was written at the same place before, by a process
    /// that ended, had another one.
    next: AtomicU64,
    /// Where the pieces of a log lie whose rows are read alone.
    pub(crate) pieces: Pieces,
    /// The name of the key, and whether it is the one that writes.
    pub(crate) id: KeyId,
    pub(crate) current: bool,
}

/// Where each piece of a log lies, and its length.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Mutex<Vec<(u64, u32)>>);

impl Pieces {
    /// Notes a piece; those behind it were never, or are overwritten.
    pub(crate) fn add(&self, at: u64, length: u32) {
        let mut pieces = self.0.lock();
        while pieces.last().is_some_and(|(last, _)| *last >= at) {
            pieces.pop();
        }
        pieces.push((at, length));
    }

    /// The piece that has an offset.
    pub(crate) fn find(&self, offset: u64) -> Option<(u64, u32)> {
        let pieces = self.0.lock();
        let after = pieces.partition_point(|(at, _)| *at <= offset);
        pieces.get(after.checked_sub(1)?).copied()
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cipher({})", self.id)
    }
}

/// A length, for the derivation of keys.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// What only asking too much of a cipher gives.
fn failed(_: Unspecified) -> io::Error {
    io::Error::other("a unit cannot be encrypted")
}

/// What a file with such a header is sealed with.
fn derive(secret: &Prk, header: &[u8]) -> io::Result<LessSafeKey> {
    let info = [b"file", header];
    let key = secret.expand(&info, &AES_256_GCM);
    let key = key.map(UnboundKey::from).map_err(failed)?;
    Ok(LessSafeKey::new(key))
}

/// What tells that a key fits a header.
fn check_of(secret: &Prk, header: &[u8]) -> io::Result<[u8; CHECK_BYTES]> {
    let mut check = [0; CHECK_BYTES];
    let info = [b"check", header];
    let made = secret.expand(&info, Length(CHECK_BYTES));
    made.and_then(|made| made.fill(&mut check))
        .map_err(failed)?;
    Ok(check)
}

impl Cipher {
    /// The same, to read values only.
    pub(crate) fn of_values(&self) -> Self {
        Self {
            key: self.key.clone(),
            next: AtomicU64::new(self.next.load(Ordering::Relaxed)),
            pieces: Pieces::default(),
            ..*self
        }
    }

    fn nonce(counter: [u8; COUNTER_BYTES], at: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..COUNTER_BYTES].copy_from_slice(&counter);
        nonce[COUNTER_BYTES..].copy_from_slice(&(at as u32).to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn about(at: u64, of: &[u8]) -> Aad<[u8; 8 + ABOUT_MAX]> {
        debug_assert!(of.len() <= ABOUT_MAX, "it is short");
        let mut about = [0; 8 + ABOUT_MAX];
        about[..8].copy_from_slice(&at.to_be_bytes());
        about[8..8 + of.len()].copy_from_slice(of);
        Aad::from(about)
    }

    /// Encrypts a unit that will lie at `at`, together with what is known of it there; gives what follows it.
    pub(crate) fn seal(&self, unit: &mut [u8], at: u64, of: &[u8]) -> io::Result<[u8; SEAL_BYTES]> {
        let counter = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let (nonce, about) = (Self::nonce(counter, at), Self::about(at, of));
        let tag = self.key.seal_in_place_separate_tag(nonce, about, unit);
        let mut seal = [0; SEAL_BYTES];
        seal[..TAG_BYTES].copy_from_slice(tag.map_err(failed)?.as_ref());
        seal[TAG_BYTES..].copy_from_slice(&counter);
        Ok(seal)
    }

    /// Decrypts a unit with what follows it; gives its length.
    pub(crate) fn open(&self, sealed: &mut [u8], at: u64, of: &[u8]) -> io::Result<usize> {
        let not_ours = || damaged("a part of it was not encrypted there");
        let split = sealed.split_last_chunk_mut::<COUNTER_BYTES>();
        let (sealed, counter) = split.ok_or_else(not_ours)?;
        let (nonce, about) = (Self::nonce(*counter, at), Self::about(at, of));
        let unit = self.key.open_in_place(nonce, about, sealed);
        unit.map(|unit| unit.len()).map_err(|_| not_ours())
    }
}

/// The keys of a store.
#[derive(Debug)]
pub(crate) struct Keyring {
    keys: Arc<EncryptionKeys>,
    /// What its files name as their store, and the key of the file that was seen last.
    seen: Mutex<Option<([u8; STORE_BYTES], KeyId)>>,
}

impl Keyring {
    pub(crate) fn new(keys: &Arc<EncryptionKeys>) -> Self {
        Self {
            keys: Arc::clone(keys),
            seen: Mutex::new(None),
        }
    }

    fn cipher(&self, key: &MasterKey, header: &[u8; HEADER_BYTES]) -> io::Result<Cipher> {
        Ok(Cipher {
            key: derive(&key.secret(), &header[..CHECKED_BYTES])?,
            next: AtomicU64::new(self.keys.random()),
            pieces: Pieces::default(),
            id: key.id,
            current: key.id == self.keys.first().id,
        })
    }

    fn header(
        key: &MasterKey,
        (kind, number): (FileKind, u64),
        store: [u8; STORE_BYTES],
    ) -> io::Result<[u8; HEADER_BYTES]> {
        encrypted_header((kind, number), key.id.0, store, |header| {
            check_of(&key.secret(), header)
        })
    }

    /// Header and cipher of a new file.
    pub(crate) fn create(&self, file: (FileKind, u64)) -> io::Result<([u8; HEADER_BYTES], Cipher)> {
        let key = self.keys.first();
        let store = {
            let mut seen = self.seen.lock();
            let random = || {
                let (high, low) = (self.keys.random(), self.keys.random());
                (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
            };
            seen.get_or_insert_with(|| (random(), key.id)).0
        };
        let header = Self::header(key, file, store)?;
        let cipher = self.cipher(key, &header)?;
        Ok((header, cipher))
    }

    /// The cipher of a file with such a header.
    ///
    /// # Errors
    /// A [`key_error`] when there is no key that fits; `InvalidData` for a file of another store.
    pub(crate) fn open(
        &self,
        header: &[u8; HEADER_BYTES],
        found: &Encrypted,
    ) -> io::Result<Cipher> {
        let id = KeyId(found.key_id);
        let key = self.keys.find(id).ok_or_else(|| missing(id))?;
        if check_of(&key.secret(), &header[..CHECKED_BYTES])? != found.check {
            return Err(key_error(format!(
                "key {id} is not the one that it was encrypted with"
            )));
        }
        let mut seen = self.seen.lock();
        if seen.is_some_and(|(store, _)| store != found.store) {
            return Err(damaged("it is a file of another store"));
        }
        *seen = Some((found.store, id));
        drop(seen);
        self.cipher(key, header)
    }

    /// The cipher of a file whose header is damaged: it is taken for one like that which was seen last.
    pub(crate) fn guess(&self, file: (FileKind, u64)) -> io::Result<Option<Cipher>> {
        let Some((store, id)) = *self.seen.lock() else {
            return Ok(None);
        };
        let key = self.keys.find(id).ok_or_else(|| missing(id))?;
        let header = Self::header(key, file, store)?;
        self.cipher(key, &header).map(Some)
    }
}

/// The error of a key that is needed.
pub(crate) fn missing(id: KeyId) -> io::Error {
    key_error(format!("it is encrypted with key {id}, which is not given"))
}
