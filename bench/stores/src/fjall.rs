//! fjall: a log-structured merge tree over `lsm-tree`.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::peer::{Failure, Key, Peer};

const CACHE_BYTES: u64 = 64 << 20;

pub struct Fjall {
    database: Database,
    rows: Keyspace,
}

impl Peer for Fjall {
    fn open(dir: &Path) -> Result<Self, Failure> {
        let database = Database::builder(dir).cache_size(CACHE_BYTES).open()?;
        let rows = database.keyspace("documents", KeyspaceCreateOptions::default)?;
        Ok(Self { database, rows })
    }

    fn commit(&mut self, documents: &[(Key, Vec<u8>)]) -> Result<(), Failure> {
        let mut batch = self.database.batch();
        for (key, value) in documents {
            batch.insert(&self.rows, key, value.as_slice());
        }
        batch.commit()?;
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.rows.get(key)?.map(|value| value.to_vec()))
    }

    fn walk(&mut self) -> Result<u64, Failure> {
        let mut count = 0;
        for row in self.rows.iter() {
            row.into_inner()?;
            count += 1;
        }
        Ok(count)
    }

    fn range(&mut self, from: &Key, most: usize) -> Result<Option<usize>, Failure> {
        let mut count = 0;
        for row in self.rows.range(*from..).take(most) {
            row.into_inner()?;
            count += 1;
        }
        Ok(Some(count))
    }

    fn close(self) -> Result<(), Failure> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}
