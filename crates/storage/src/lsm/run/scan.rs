//! Search for undamaged blocks of a run without its index: the end of a block has its length and its content.

use std::io;

use model::VbId;

use super::format::{BLOCK_ALIGN, BLOCK_END_BYTES, BLOCK_MAGIC};
use super::format::{block_about, block_crc};
use super::open::rows;
use crate::lsm::bytes::{CRC_BYTES, HEADER_BYTES, Reader};
use crate::lsm::row::Row;
use crate::lsm::sealed::StoreFile;

/// Bytes of a search window.
const WINDOW_BYTES: usize = 1 << 20;

/// An undamaged block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundBlock {
    pub(crate) vb: VbId,
    /// Epoch of its rows.
    pub(crate) epoch: u64,
    pub(crate) at: u64,
    pub(crate) length: u32,
}

impl FoundBlock {
    /// Reads its rows.
    pub(crate) fn read(
        &self,
        file: &StoreFile,
        each: &mut dyn FnMut(Row<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = vec![0; self.length as usize - BLOCK_END_BYTES];
        file.read_at(&mut bytes, self.at)?;
        self.unseal(file, &mut bytes)?;
        rows(&bytes).try_for_each(each)
    }

    fn unseal(&self, file: &StoreFile, bytes: &mut Vec<u8>) -> io::Result<()> {
        let about = block_about(self.epoch, self.vb);
        file.unseal(bytes, 0, (self.at, &about))
    }

    /// Returns the block that ends at offset `end` with the bytes `last`.
    fn of_end(last: &[u8; BLOCK_END_BYTES], end: u64) -> Option<Self> {
        let mut reader = Reader::new(last);
        let length = reader.u32()?;
        let epoch = reader.u64()?;
        let vb = VbId(reader.u16()?);
        let bytes_min = BLOCK_END_BYTES.next_multiple_of(BLOCK_ALIGN);
        let fits = length as usize >= bytes_min && (length as usize).is_multiple_of(BLOCK_ALIGN);
        let at = end.checked_sub(u64::from(length))?;
        (reader.rest.starts_with(&BLOCK_MAGIC) && fits && at >= HEADER_BYTES as u64).then_some(
            Self {
                vb,
                epoch,
                at,
                length,
            },
        )
    }

    fn is_whole(&self, file: &StoreFile, number: u64) -> io::Result<bool> {
        let mut bytes = vec![0; self.length as usize];
        file.read_at(&mut bytes, self.at)?;
        let crc = bytes.split_off(bytes.len() - CRC_BYTES);
        let whole = crc == block_crc(number, self.at, &bytes).to_be_bytes();
        bytes.truncate(self.length as usize - BLOCK_END_BYTES);
        Ok(whole && self.unseal(file, &mut bytes).is_ok())
    }
}

/// Returns the undamaged blocks of run `number`, ascending by offset.
///
/// Cost: reads the file twice.
pub(crate) fn scan(file: &StoreFile, number: u64) -> io::Result<Vec<FoundBlock>> {
    let length = file.length()?;
    let mut found: Vec<FoundBlock> = Vec::new();
    let mut free = HEADER_BYTES as u64;
    let mut window = Vec::new();
    // Windows overlap, so that each block's end is completely in one of them.
    let mut at = 0;
    while at < length {
        let left = usize::try_from(length - at).unwrap_or(usize::MAX);
        window.resize(left.min(WINDOW_BYTES + BLOCK_END_BYTES), 0);
        file.read_at(&mut window, at)?;
        let first = BLOCK_END_BYTES.next_multiple_of(BLOCK_ALIGN);
        for end in (first..=window.len()).step_by(BLOCK_ALIGN) {
            let Some(last) = window[..end].last_chunk::<BLOCK_END_BYTES>() else {
                continue;
            };
            let block = FoundBlock::of_end(last, at + end as u64);
            if let Some(block) = block.filter(|block| block.at >= free)
                && block.is_whole(file, number)?
            {
                free = block.at + u64::from(block.length);
                found.push(block);
            }
        }
        at += (WINDOW_BYTES - BLOCK_ALIGN) as u64;
    }
    Ok(found)
}
