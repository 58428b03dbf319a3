//! The verifier of a user's password.

use std::fmt;

use crate::hash::Hash;
use crate::scram::Keys;

/// The verifier of a password that was set while the node runs: the SCRAM keys for each hash, not the password.
///
/// Shape: for SHA-512, SHA-256 and SHA-1, the stored key and the server's key; 232 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier([u8; Verifier::BYTES]);

impl Verifier {
    /// Length of a verifier, bytes.
    pub const BYTES: usize = 2 * (64 + 32 + 20);

    /// Reads a stored verifier; `None` if the length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns the bytes to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Derives the verifier of a password. Cost: some 10 ms for each hash.
    pub(crate) fn derive(
        password: &[u8],
        iterations: u32,
        salt: impl Fn(Hash) -> [u8; 16],
    ) -> Self {
        let mut bytes = [0; Self::BYTES];
        for hash in Hash::ALL {
            let keys = Keys::derive(hash, password, &salt(hash), iterations);
            let (stored, server) = (Self::place(hash), hash.output_bytes());
            bytes[stored..stored + server].copy_from_slice(&keys.stored);
            bytes[stored + server..stored + 2 * server].copy_from_slice(&keys.server);
        }
        Self(bytes)
    }

    /// Returns the keys for one hash.
    pub(crate) fn keys(&self, hash: Hash) -> Keys {
        let (at, length) = (Self::place(hash), hash.output_bytes());
        Keys {
            stored: self.0[at..at + length].to_vec(),
            server: self.0[at + length..at + 2 * length].to_vec(),
        }
    }

    fn place(hash: Hash) -> usize {
        match hash {
            Hash::Sha512 => 0,
            Hash::Sha256 => 2 * 64,
            Hash::Sha1 => 2 * (64 + 32),
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}
