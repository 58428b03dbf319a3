//! What each store is asked to do.

use std::path::Path;

/// Any error of a store: the run ends with it.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A store of values by key.
pub trait Peer {
    /// Opens the directory, or makes one.
    fn open(dir: &Path) -> Result<Self, Failure>
    where
        Self: Sized;

    /// Writes documents, durably: with one sync, in one transaction where the store has such.
    fn commit(&mut self, documents: &[(Key, Vec<u8>)]) -> Result<(), Failure>;

    /// The value of a key.
    fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Failure>;

    /// Reads all there is in an order of the store's; tells how many documents.
    fn walk(&mut self) -> Result<u64, Failure>;

    /// Reads up to `most` documents whose keys follow `from`, in the order of keys; `None` for a store without one.
    fn range(&mut self, from: &Key, most: usize) -> Result<Option<usize>, Failure>;

    /// Ends it, so that opening it again finds a clean stop.
    fn close(self) -> Result<(), Failure>;
}

/// The key of a document.
pub type Key = [u8; 16];
