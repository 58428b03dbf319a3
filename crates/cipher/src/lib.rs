//! Encryption at rest: the keys of an operator, and what seals units of files with them. Drawn in `docs/format/encryption.md`.
//!
//! This crate may not touch files, read a clock, start threads or draw random numbers, and knows neither what a unit
//! holds nor where a header has what. Offsets, headers and random numbers are parameters.

mod cipher;
mod error;
mod keyring;
mod keys;

pub use cipher::{CHECK_BYTES, Cipher, SEAL_BYTES};
pub use error::{is_key_error, key_error};
pub use keyring::{Encrypted, Keyring, STORE_BYTES, missing};
pub use keys::{EncryptionKeys, KEY_ID_BYTES, KeyId, KeysError};
