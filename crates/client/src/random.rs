//! Random numbers of the system.

use std::io;

use crate::error::ClientError;

/// Returns 64 random bits.
///
/// # Errors
/// The operating system returns an error.
pub fn random_u64() -> Result<u64, ClientError> {
    getrandom::u64().map_err(|error| ClientError::Lost {
        during: "drawing random numbers",
        source: io::Error::other(error.to_string()),
    })
}
