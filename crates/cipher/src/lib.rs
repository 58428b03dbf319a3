//! Encryption at rest: the operator's keys, and ciphers for the units of files. The format is drawn
//! in `docs/format/encryption.md`.
//!
//! This crate may not touch files, read a clock, start threads or draw random numbers. It knows
//! neither the content of a unit nor the layout of a header. Offsets, headers and random numbers
//! are parameters.

mod cipher;
mod error;
mod keyring;
mod keys;

pub use cipher::{CHECK_BYTES, Cipher, SEAL_BYTES};
pub use error::{is_key_error, key_error};
pub use keyring::{Encrypted, Keyring, STORE_BYTES, missing};
pub use keys::{EncryptionKeys, KEY_ID_BYTES, KeyId, KeysError};
