//! The interface of a store under test.

use std::path::Path;

/// Any error of a store; it ends the run.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A store of values by key.
pub trait Peer {
    /// Opens the directory, or creates it.
    fn open(dir: &Path) -> Result<Self, Failure>
    where
        Self: Sized;

    /// Writes documents durably: with one sync, and in one transaction if the store has transactions.
    fn commit(&mut self, documents: &[(Key, Vec<u8>)]) -> Result<(), Failure>;

    /// Returns the value of a key.
    fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Failure>;

    /// Reads all documents in the store's order; returns their number.
    fn walk(&mut self) -> Result<u64, Failure>;

    /// Reads up to `most` documents from the key `from` on, in key order; `None` if the store has no key order.
    fn range(&mut self, from: &Key, most: usize) -> Result<Option<usize>, Failure>;

    /// Closes the store, so that the next start finds a clean shutdown.
    fn close(self) -> Result<(), Failure>;
}

/// The key of a document.
pub type Key = [u8; 16];
