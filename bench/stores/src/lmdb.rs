//! LMDB: a copy-on-write B-tree in a mapped file.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions};

use crate::peer::{Failure, Key, Peer};

const MAP_BYTES: usize = 256 << 30;

pub struct Lmdb {
    environment: Env,
    database: Database<Bytes, Bytes>,
}

impl Peer for Lmdb {
    fn open(dir: &Path) -> Result<Self, Failure> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        // SAFETY: no other process writes to this directory while the run lasts.
        let environment = unsafe { options.open(dir)? };
        let mut write = environment.write_txn()?;
        let database = environment.create_database(&mut write, None)?;
        write.commit()?;
        Ok(Self {
            environment,
            database,
        })
    }

    fn commit(&mut self, documents: &[(Key, Vec<u8>)]) -> Result<(), Failure> {
        let mut write = self.environment.write_txn()?;
        for (key, value) in documents {
            self.database.put(&mut write, key, value)?;
        }
        Ok(write.commit()?)
    }

    fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Failure> {
        let read = self.environment.read_txn()?;
        let found = self.database.get(&read, key)?;
        Ok(found.map(<[u8]>::to_vec))
    }

    fn walk(&mut self) -> Result<u64, Failure> {
        let read = self.environment.read_txn()?;
        let mut count = 0;
        for row in self.database.iter(&read)? {
            row?;
            count += 1;
        }
        Ok(count)
    }

    fn range(&mut self, from: &Key, most: usize) -> Result<Option<usize>, Failure> {
        let read = self.environment.read_txn()?;
        let from = (Bound::Included(from.as_slice()), Bound::Unbounded);
        let mut count = 0;
        for row in self.database.range(&read, &from)?.take(most) {
            row?;
            count += 1;
        }
        Ok(Some(count))
    }

    fn close(self) -> Result<(), Failure> {
        self.environment.prepare_for_closing().wait();
        Ok(())
    }
}
