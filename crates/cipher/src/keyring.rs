//! The keys of a store: of each of its files the cipher is derived from one of them and the file's header.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::cipher::{CHECK_BYTES, Cipher, check_of};
use super::error::{damaged, key_error};
use super::keys::{EncryptionKeys, KeyId, MasterKey};

/// Bytes of what names a store.
pub const STORE_BYTES: usize = 16;

/// What the header of an encrypted file says of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encrypted {
    /// The name of its key.
    pub key: KeyId,
    /// The files of a store have the same one.
    pub store: [u8; STORE_BYTES],
    /// What tells that a key fits.
    pub check: [u8; CHECK_BYTES],
}

/// The keys of a store.
///
/// What a header says of its file, key and store is its *identity*: the key of the file is derived from these bytes.
#[derive(Debug)]
pub struct Keyring {
    keys: Arc<EncryptionKeys>,
    /// What its files name as their store, and the key of the file that was seen last.
    seen: Mutex<Option<([u8; STORE_BYTES], KeyId)>>,
}

impl Keyring {
    /// With these keys.
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

    /// The identity of a new file, which `identity` makes of key and store, its check, and its cipher.
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

    /// The cipher of a file with such an identity.
    ///
    /// # Errors
    /// A [`key_error`] when there is no key that fits; `InvalidData` for a file of another store.
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

    /// The cipher of a file whose header is damaged: it is taken for one like that which was seen last.
    ///
    /// # Errors
    /// A [`key_error`] when there is no such key any more.
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

/// The error of a key that is needed.
pub fn missing(id: KeyId) -> io::Error {
    key_error(format!("it is encrypted with key {id}, which is not given"))
}
