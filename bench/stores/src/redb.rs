//! redb: a copy-on-write B-tree.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::peer::{Failure, Key, Peer};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("documents");
/// Size of the cache in bytes, the same for all stores.
const CACHE_BYTES: usize = 64 << 20;

pub struct Redb(Database);

impl Peer for Redb {
    fn open(dir: &Path) -> Result<Self, Failure> {
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = builder.create(dir.join("redb"))?;
        let write = database.begin_write()?;
        write.open_table(TABLE)?;
        write.commit()?;
        Ok(Self(database))
    }

    fn commit(&mut self, documents: &[(Key, Vec<u8>)]) -> Result<(), Failure> {
        let write = self.0.begin_write()?;
        {
            let mut table = write.open_table(TABLE)?;
            for (key, value) in documents {
                table.insert(key.as_slice(), value.as_slice())?;
            }
        }
        Ok(write.commit()?)
    }

    fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Failure> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        let found = table.get(key.as_slice())?;
        Ok(found.map(|value| value.value().to_vec()))
    }

    fn walk(&mut self) -> Result<u64, Failure> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        let mut count = 0;
        for row in table.iter()? {
            row?;
            count += 1;
        }
        Ok(count)
    }

    fn range(&mut self, from: &Key, most: usize) -> Result<Option<usize>, Failure> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        let mut count = 0;
        for row in table.range(from.as_slice()..)?.take(most) {
            row?;
            count += 1;
        }
        Ok(Some(count))
    }

    fn close(self) -> Result<(), Failure> {
        Ok(())
    }
}
