//! Until it is merged.
use crate::{OpenError, StoreError};
use model::{Seqno, VbId};
use std::io;
use std::path::{Path, PathBuf};
/// x
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// x
    pub vbuckets: u64,
    /// x
    pub last: Option<VbId>,
    /// x
    pub rows: u64,
    /// x
    pub damaged: Vec<(PathBuf, u64)>,
    /// x
    pub rows_damaged: u64,
    /// x
    pub without_record: Vec<VbId>,
    /// x
    pub behind: Vec<(VbId, Seqno, Seqno)>,
    /// x
    pub manifest_lost: bool,
    /// x
    pub history_left: u64,
}
impl Salvaged {
    /// x
    pub fn is_whole(&self) -> bool {
        false
    }
}
/// x
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// x
    #[error("{0}: in use by another process")]
    InUse(PathBuf),
    /// x
    #[error("{0}: {1}")]
    Read(PathBuf, io::Error),
    /// x
    #[error(transparent)]
    Target(#[from] OpenError),
    /// x
    #[error("{0}: there is a store already")]
    Occupied(PathBuf),
    /// x
    #[error(transparent)]
    Write(#[from] StoreError),
}
/// x
pub fn salvage(from: &Path, _to: &Path) -> Result<Salvaged, SalvageError> {
    Err(SalvageError::Occupied(from.to_owned()))
}
