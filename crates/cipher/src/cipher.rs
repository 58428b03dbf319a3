//! What seals the units of a file.
//!
//! A unit is what is read as a whole: a row of a log, a value, a block of a run. It is sealed with a key of its file, and
//! opens nowhere but where it was written: the key is derived from the header, and the offset is authenticated.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf::{KeyType, Prk};

use super::error::damaged;
use super::keys::{KeyId, MasterKey};

/// Bytes of the counter and of the tag, which follow a sealed unit.
const COUNTER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// Bytes by which a sealed unit is longer.
pub const SEAL_BYTES: usize = TAG_BYTES + COUNTER_BYTES;

/// Bytes of what tells that a key fits a header.
pub const CHECK_BYTES: usize = 8;

/// What is authenticated with a unit beside it is at most so long.
const ABOUT_MAX: usize = 32;

/// Seals the units of one file.
pub struct Cipher {
    key: LessSafeKey,
    /// The next counter. It begins anywhere in 64 bits, so that what was written at the same place before, by a process
    /// that ended, had another one.
    next: AtomicU64,
    id: KeyId,
    is_current: bool,
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

/// What a file with such an identity is sealed with.
fn derive(secret: &Prk, identity: &[u8]) -> io::Result<LessSafeKey> {
    let info = [b"file", identity];
    let key = secret.expand(&info, &AES_256_GCM);
    let key = key.map(UnboundKey::from).map_err(failed)?;
    Ok(LessSafeKey::new(key))
}

/// What tells that a key fits an identity.
pub(crate) fn check_of(secret: &Prk, identity: &[u8]) -> io::Result<[u8; CHECK_BYTES]> {
    let mut check = [0; CHECK_BYTES];
    let info = [b"check", identity];
    let made = secret.expand(&info, Length(CHECK_BYTES));
    made.and_then(|made| made.fill(&mut check))
        .map_err(failed)?;
    Ok(check)
}

impl Cipher {
    /// That of a file: of a key, and whether that is the one that writes. The counter begins at `random`.
    pub(crate) fn derived(
        (key, is_current): (&MasterKey, bool),
        identity: &[u8],
        random: u64,
    ) -> io::Result<Self> {
        Ok(Self {
            key: derive(&key.secret(), identity)?,
            next: AtomicU64::new(random),
            id: key.id,
            is_current,
        })
    }

    /// Whether the file has the key that writes.
    pub fn is_current(&self) -> bool {
        self.is_current
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
    ///
    /// # Errors
    /// It is too long.
    pub fn seal(&self, unit: &mut [u8], at: u64, of: &[u8]) -> io::Result<[u8; SEAL_BYTES]> {
        let counter = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let (nonce, about) = (Self::nonce(counter, at), Self::about(at, of));
        let tag = self.key.seal_in_place_separate_tag(nonce, about, unit);
        let mut seal = [0; SEAL_BYTES];
        seal[..TAG_BYTES].copy_from_slice(tag.map_err(failed)?.as_ref());
        seal[TAG_BYTES..].copy_from_slice(&counter);
        Ok(seal)
    }

    /// Decrypts a unit with what follows it; gives its length.
    ///
    /// # Errors
    /// `InvalidData` when that is not what was sealed there.
    pub fn open(&self, sealed: &mut [u8], at: u64, of: &[u8]) -> io::Result<usize> {
        let not_ours = || damaged("a part of it was not encrypted there");
        let split = sealed.split_last_chunk_mut::<COUNTER_BYTES>();
        let (sealed, counter) = split.ok_or_else(not_ours)?;
        let (nonce, about) = (Self::nonce(*counter, at), Self::about(at, of));
        let unit = self.key.open_in_place(nonce, about, sealed);
        unit.map(|unit| unit.len()).map_err(|_| not_ours())
    }
}
