//! Values that rows refer to.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;

use crate::lsm::files::Files;
use crate::lsm::row::{ValuePlace, value_file};
use crate::lsm::sealed::{self, StoreFile};

/// Maximum number of open files.
const OPEN_MAX: usize = 256;

/// Reader of values in any file.
pub(crate) struct ValueFiles<'f> {
    files: &'f dyn Files,
    open: BTreeMap<u64, Arc<StoreFile>>,
}

impl<'f> ValueFiles<'f> {
    pub(crate) fn new(files: &'f dyn Files) -> Self {
        Self {
            files,
            open: BTreeMap::new(),
        }
    }

    /// Returns a file, numbered as in [`ValuePlace`].
    pub(crate) fn file(&mut self, number: u64) -> io::Result<&Arc<StoreFile>> {
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&number) {
            self.open.clear();
        }
        Ok(match self.open.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let (kind, number) = value_file(number);
                free.insert(sealed::open_any(self.files, kind, number)?)
            }
        })
    }

    /// Reads a value.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if it is not the written value.
    pub(crate) fn read(&mut self, place: ValuePlace) -> io::Result<Vec<u8>> {
        let file = self.file(place.file)?;
        let bytes = u64::from(place.length) + file.seal_bytes() as u64;
        if place.offset.saturating_add(bytes) > file.length()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut value = vec![0; place.length as usize];
        place.read_into(file, &mut value)?;
        Ok(value)
    }
}
