//! An unfinished file, which is removed unless it is kept.

use std::io;
use std::sync::Arc;

use super::bytes::{FileKind, HEADER_BYTES};
use super::files::Files;
use super::sealed::{self, StoreFile};

/// A file that nothing refers to yet. It is removed if it is dropped before [`FileDraft::keep`].
#[derive(Debug)]
pub(crate) struct FileDraft {
    files: Arc<dyn Files>,
    name: String,
    pub(crate) file: Arc<StoreFile>,
    kept: bool,
}

impl FileDraft {
    /// Creates an empty file. Returns its header; its name is not durable yet.
    pub(crate) fn create(
        files: &Arc<dyn Files>,
        kind: FileKind,
        number: u64,
    ) -> io::Result<(Self, [u8; HEADER_BYTES])> {
        let name = kind.name(number);
        let (file, header) = sealed::create(&**files, &name, (kind, number))?;
        let made = Self {
            files: Arc::clone(files),
            name,
            file,
            kept: false,
        };
        Ok((made, header))
    }

    /// Keeps the file, because something may refer to it from here on.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for FileDraft {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = self.files.remove(&self.name)
        {
            let name = &self.name;
            tracing::warn!(%error, name, "cannot remove a file that was begun");
        }
    }
}
