//! The values that rows refer to.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;

use crate::lsm::bytes::damaged;
use crate::lsm::files::{Files, StoreFile};
use crate::lsm::flush::value_file_name;
use crate::lsm::row::ValuePlace;

/// So many files are open at a time.
const OPEN_MAX: usize = 256;

/// Reads values, whatever file they are in.
pub(crate) struct ValueFiles<'f> {
    files: &'f dyn Files,
    open: BTreeMap<u64, Arc<dyn StoreFile>>,
}

impl<'f> ValueFiles<'f> {
    pub(crate) fn new(files: &'f dyn Files) -> Self {
        Self {
            files,
            open: BTreeMap::new(),
        }
    }

    /// A file, as [`ValuePlace`] numbers them.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn file(&mut self, number: u64) -> io::Result<&Arc<dyn StoreFile>> {
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&number) {
            self.open.clear();
        }
        Ok(match self.open.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(self.files.open(&value_file_name(number))?),
        })
    }

    /// Reads a value.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` when it is not what was written.
    pub(crate) fn read(&mut self, place: ValuePlace) -> io::Result<Vec<u8>> {
        let file = self.file(place.file)?;
        let length = file.length()?;
        if place.offset.saturating_add(u64::from(place.length)) > length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut value = vec![0; place.length as usize];
        file.read_at(&mut value, place.offset)?;
        if crc32fast::hash(&value) == place.crc {
            Ok(value)
        } else {
            Err(damaged("a value is damaged"))
        }
    }
}
