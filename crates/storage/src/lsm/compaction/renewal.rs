//! Renewal of encryption: data that is not encrypted with the first key is written again.

use std::collections::BTreeSet;
use std::io;

use crate::lsm::current::Version;
use crate::lsm::files::Files;
use crate::lsm::flush::ManifestChange;
use crate::lsm::writer::Core;

/// Next step of a renewal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// Wait for a log that is being written to runs.
    Waits,
    /// Merge all runs, and empty these files of values.
    Merge(BTreeSet<u64>),
    /// Finished.
    Over,
}

impl Core {
    /// Whether any data is not encrypted as new data would be.
    pub(crate) fn has_stale(&self) -> bool {
        let files = &*self.files;
        if files.keyring().is_none() {
            return false;
        }
        let current = self.current.read();
        let version = &current.version;
        current.logs().any(|log| !log.file.is_current(files))
            || !version.manifest.file.is_current(files)
            || version.runs.iter().any(|run| !run.file.is_current(files))
            || !stale_values(files, version).is_empty()
    }

    /// Continues a renewal: the log becomes a run, then all runs are merged.
    pub(super) fn renew(&self) -> io::Result<Renewal> {
        self.seal_stale()?;
        let (files, current) = (&*self.files, self.current.read());
        if current.sealed.is_some() {
            return Ok(Renewal::Waits);
        }
        let version = &current.version;
        let values = stale_values(files, version);
        if !values.is_empty() || version.runs.iter().any(|run| !run.file.is_current(files)) {
            return Ok(Renewal::Merge(values));
        }
        let is_current = version.manifest.file.is_current(files);
        drop(current);
        if !is_current {
            self.switch(ManifestChange::default(), |_| {})?;
        }
        Ok(Renewal::Over)
    }
}

fn stale_values(files: &dyn Files, version: &Version) -> BTreeSet<u64> {
    let values = version.values.iter();
    let stale = values.filter(|(_, value)| !value.file.is_current(files));
    stale.map(|(number, _)| *number).collect()
}
