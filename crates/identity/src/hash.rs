//! The hashes of the SCRAM mechanisms that Couchbase clients use.

use hmac::{EagerHash, Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

/// The hash of one SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-512.
    Sha512,
    /// SHA-256.
    Sha256,
    /// SHA-1.
    Sha1,
}

impl Hash {
    /// All hashes, strongest first, which is also the order in which clients try them.
    pub const ALL: [Self; 3] = [Self::Sha512, Self::Sha256, Self::Sha1];

    /// Returns the name of the mechanism: without a dash between SHA and digits, unlike the IANA names.
    pub fn mechanism(self) -> &'static str {
        match self {
            Self::Sha512 => "SCRAM-SHA512",
            Self::Sha256 => "SCRAM-SHA256",
            Self::Sha1 => "SCRAM-SHA1",
        }
    }

    pub(super) fn label(self) -> &'static [u8] {
        match self {
            Self::Sha512 => b"sha512",
            Self::Sha256 => b"sha256",
            Self::Sha1 => b"sha1",
        }
    }

    pub(super) fn output_bytes(self) -> usize {
        match self {
            Self::Sha512 => 64,
            Self::Sha256 => 32,
            Self::Sha1 => 20,
        }
    }

    pub(super) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
        }
    }

    pub(super) fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        fn with<D: EagerHash>(key: &[u8], message: &[u8]) -> Vec<u8> {
            let mut mac = Hmac::<D>::new_from_slice(key).expect("HMAC takes a key of any length");
            mac.update(message);
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Self::Sha512 => with::<Sha512>(key, message),
            Self::Sha256 => with::<Sha256>(key, message),
            Self::Sha1 => with::<Sha1>(key, message),
        }
    }

    pub(super) fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut out = vec![0; self.output_bytes()];
        match self {
            Self::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut out),
            Self::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut out),
            Self::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut out),
        }
        out
    }
}
