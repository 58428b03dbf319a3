//! Share of some collections in a vBucket.

use model::CollectionId;

use super::VBucket;

impl VBucket {
    /// Whether all these collections exist here, and together have at most one of `sparse`
    /// documents; zero allows any share.
    pub fn are_sparse(&self, collections: &[CollectionId], sparse: u64) -> bool {
        let here = |id: &CollectionId| self.collections.rows_of(*id).is_some();
        let items: u64 = collections.iter().map(|id| self.items_of(*id)).sum();
        let few = sparse == 0 || items.saturating_mul(sparse) <= self.table.counts().items;
        few && collections.iter().all(here)
    }
}
