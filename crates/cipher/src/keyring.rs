//! The keys of a store: the cipher of each file is derived from one of them and the file's header.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::cipher::{CHECK_BYTES, Cipher, check_of};
use super::error::{damaged, key_error};
use super::keys::{EncryptionKeys, KeyId, MasterKey};

/// Bytes of a store's identifier.
pub const STORE_BYTES: usize = 16;

/// Encryption fields of a file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encrypted {
    /// ID of the key.
    pub key: KeyId,
    /// Identifier of the store, the same in all its files.
    pub store: [u8; STORE_BYTES],
    /// Check value of the key.
    pub check: [u8; CHECK_BYTES],
}

/// The keys of a store.
///
/// The header fields of file, key and store form the *identity* of a file: the key of the file is
/// derived from these bytes.
#[derive(Debug)]
pub struct Keyring {
    keys: Arc<EncryptionKeys>,
    /// Store identifier of the files, and the key of the last opened file.
    seen: Mutex<Option<([u8; STORE_BYTES], KeyId)>>,
}

impl Keyring {
    /// Creates a keyring with these keys.
    pub fn new(keys: &Arc<EncryptionKeys>) -> Self {
        Self {
            keys: Arc::clone(keys),
            seen: Mutex::new(None),
        }
    }

    fn cipher(&self, key: &MasterKey, identity: &[u8]) -> io::Result<Cipher> {
        let is_first = key.id == self.keys.first().id;
        Cipher::derived((key, is_first), identity, self.keys.random())
    }

    /// Creates the identity of a new file by calling `identity` with key and store. Returns it with
    /// its check value and cipher.
    ///
    /// # Errors
    /// The key of the file cannot be derived.
    pub fn create<I: AsRef<[u8]>>(
        &self,
        identity: impl FnOnce(KeyId, [u8; STORE_BYTES]) -> I,
    ) -> io::Result<(I, [u8; CHECK_BYTES], Cipher)> {
        let key = self.keys.first();
        let store = {
            let mut seen = self.seen.lock();
            let random = || {
                let (high, low) = (self.keys.random(), self.keys.random());
                (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
            };
            seen.get_or_insert_with(|| (random(), key.id)).0
        };
        let identity = identity(key.id, store);
        let check = check_of(&key.secret(), identity.as_ref())?;
        let cipher = self.cipher(key, identity.as_ref())?;
        Ok((identity, check, cipher))
    }

    /// Returns the cipher of a file with this identity.
    ///
    /// # Errors
    /// A [`key_error`] if no key fits; `InvalidData` for a file of another store.
    pub fn open(&self, identity: &[u8], found: &Encrypted) -> io::Result<Cipher> {
        let id = found.key;
        let key = self.keys.find(id).ok_or_else(|| missing(id))?;
        if check_of(&key.secret(), identity)? != found.check {
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
        self.cipher(key, identity)
    }

    /// Returns the cipher of a file whose header is damaged, with key and store of the last opened
    /// file; `None` before any file was opened.
    ///
    /// # Errors
    /// A [`key_error`] if that key is missing.
    pub fn guess<I: AsRef<[u8]>>(
        &self,
        identity: impl FnOnce(KeyId, [u8; STORE_BYTES]) -> I,
    ) -> io::Result<Option<Cipher>> {
        let Some((store, id)) = *self.seen.lock() else {
            return Ok(None);
        };
        let key = self.keys.find(id).ok_or_else(|| missing(id))?;
        self.cipher(key, identity(id, store).as_ref()).map(Some)
    }
}

/// Returns the error of a missing key.
pub fn missing(id: KeyId) -> io::Error {
    key_error(format!("it is encrypted with key {id}, which is not given"))
}
