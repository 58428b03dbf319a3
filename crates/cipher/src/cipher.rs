//! The cipher of a file: it encrypts and authenticates the units of the file.
//!
//! A unit is read as a whole: a row of a log, a value, a block of a run. It is sealed with the key
//! of its file, and can be opened only at the place where it was written: the key is derived from
//! the file's header, and the offset is authenticated.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf::{KeyType, Prk};

use super::error::damaged;
use super::keys::{KeyId, MasterKey};

/// Bytes of the counter and of the tag, which follow a sealed unit.
const COUNTER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// Bytes that sealing adds to a unit.
pub const SEAL_BYTES: usize = TAG_BYTES + COUNTER_BYTES;

/// Bytes of the check value, by which a key is recognized as that of a header.
pub const CHECK_BYTES: usize = 8;

/// Maximum bytes of the additional data that is authenticated with a unit.
const ABOUT_MAX: usize = 32;

/// Cipher of one file.
pub struct Cipher {
    key: LessSafeKey,
    /// The next counter. It starts at a random 64-bit number, so that an earlier process has used
    /// other counters at the same place.
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

/// Returns the error of a failed encryption: only units that are too long cause it.
fn failed(_: Unspecified) -> io::Error {
    io::Error::other("a unit cannot be encrypted")
}

fn not_ours() -> io::Error {
    damaged("a part of it was not encrypted there")
}

/// Derives the key of a file from its identity.
fn derive(secret: &Prk, identity: &[u8]) -> io::Result<LessSafeKey> {
    let info = [b"file", identity];
    let key = secret.expand(&info, &AES_256_GCM);
    let key = key.map(UnboundKey::from).map_err(failed)?;
    Ok(LessSafeKey::new(key))
}

/// Returns the check value of an identity.
pub(crate) fn check_of(secret: &Prk, identity: &[u8]) -> io::Result<[u8; CHECK_BYTES]> {
    let mut check = [0; CHECK_BYTES];
    let info = [b"check", identity];
    let made = secret.expand(&info, Length(CHECK_BYTES));
    made.and_then(|made| made.fill(&mut check))
        .map_err(failed)?;
    Ok(check)
}

impl Cipher {
    /// Creates the cipher of a file from a key, and whether that is the writing key. The counter starts at `random`.
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

    /// Whether the file has the writing key.
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

    /// Encrypts a unit in place for offset `at`, and authenticates it together with `of`. Returns
    /// the seal to write after it.
    ///
    /// # Errors
    /// The unit is too long.
    pub fn seal(&self, unit: &mut [u8], at: u64, of: &[u8]) -> io::Result<[u8; SEAL_BYTES]> {
        let counter = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let (nonce, about) = (Self::nonce(counter, at), Self::about(at, of));
        let tag = self.key.seal_in_place_separate_tag(nonce, about, unit);
        let mut seal = [0; SEAL_BYTES];
        seal[..TAG_BYTES].copy_from_slice(tag.map_err(failed)?.as_ref());
        seal[TAG_BYTES..].copy_from_slice(&counter);
        Ok(seal)
    }

    /// Decrypts a unit with its seal. Returns the length of the unit.
    ///
    /// # Errors
    /// `InvalidData` if the bytes were not sealed at this place.
    pub fn open(&self, sealed: &mut [u8], at: u64, of: &[u8]) -> io::Result<usize> {
        let (unit, seal) = sealed.split_last_chunk_mut().ok_or_else(not_ours)?;
        self.open_apart(unit, seal, (at, of))?;
        Ok(unit.len())
    }

    /// Decrypts a unit whose seal is elsewhere.
    ///
    /// # Errors
    /// Like [`Cipher::open`].
    pub fn open_apart(
        &self,
        unit: &mut [u8],
        seal: &[u8; SEAL_BYTES],
        (at, of): (u64, &[u8]),
    ) -> io::Result<()> {
        let (tag, counter) = seal.split_last_chunk().ok_or_else(not_ours)?;
        let tag = Tag::try_from(tag).map_err(|_| not_ours())?;
        let (nonce, about) = (Self::nonce(*counter, at), Self::about(at, of));
        let opened = self
            .key
            .open_in_place_separate_tag(nonce, about, tag, unit, 0..);
        opened.map(drop).map_err(|_| not_ours())
    }
}
