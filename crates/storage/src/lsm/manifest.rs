//! The manifest: the files of the store, and the states of the vBuckets without those in the logs.
//! Drawn in `docs/format/manifest.md`.
//!
//! It is replaced as a whole: after a crash the old or the new one exists.

use std::io;
use std::sync::Arc;

use model::VbId;
use ring::digest::{self, Digest, SHA256};

use super::bytes::{CRC_BYTES, FileKind, HEADER_BYTES, Reader, damaged, named};
use super::files::Files;
use super::sealed::{self, StoreFile};
use crate::per_vb::PerVb;

pub(crate) const NAME: &str = "MANIFEST";
pub(crate) const DRAFT: &str = "MANIFEST.new";

/// Content of the manifest, without the states of vBuckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestContents {
    /// Number of replacements.
    pub(crate) number: u64,
    /// Number of the next run or file of values.
    pub(crate) next_file: u64,
    /// Number of the next epoch.
    pub(crate) next_epoch: u64,
    /// The first log that is not completely in runs, and the last group in runs.
    pub(crate) first_log: u64,
    pub(crate) flushed_group: u64,
    /// Approximate number of superseded rows and removals.
    pub(crate) dead_rows: u64,
    /// Whether rows of a history were ever written.
    pub(crate) has_history: bool,
    /// The runs, the youngest first, each with its length.
    pub(crate) runs: Vec<(u64, u64)>,
    /// Files with values of rows in runs, numbered as in [`ValuePlace`](super::row::ValuePlace),
    /// ascending, each with its length.
    pub(crate) values: Vec<(u64, u64)>,
}

/// An open manifest: states are read from the file on demand.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) contents: ManifestContents,
    pub(crate) file: Arc<StoreFile>,
    states: PerVb<(u32, u32)>,
    text: Option<(u32, u32)>,
}

/// Encoded states of vBuckets, and the text of the bucket.
#[derive(Debug, Default)]
pub(crate) struct EncodedStates {
    pub(crate) states: Vec<(VbId, Vec<u8>)>,
    pub(crate) text: Option<Vec<u8>>,
}

impl Manifest {
    /// Replaces the manifest durably; `written` is called when the new one is on disk, before it becomes valid.
    ///
    /// # Errors
    /// Those of the system. After a crash either one may exist: no file of either may be removed.
    pub(crate) fn write(
        files: &dyn Files,
        contents: &ManifestContents,
        parts: &EncodedStates,
        written: impl FnOnce(),
    ) -> io::Result<Self> {
        let encode = |file: &StoreFile, header| encode(file, header, contents, parts);
        let replaced = sealed::replace(files, (FileKind::Manifest, DRAFT), encode, written);
        let (file, bytes) = replaced?;
        Self::decoded(file, &bytes)
    }

    /// Reads the manifest.
    ///
    /// # Errors
    /// `NotFound`; those of the system; `InvalidData` if it is damaged.
    pub(crate) fn read(files: &dyn Files) -> io::Result<Self> {
        let file = sealed::open(files, FileKind::Manifest, 0);
        file.and_then(Self::of).map_err(|error| named(NAME, error))
    }

    /// Reads the readable parts of a damaged manifest: the states and the text have checksums of
    /// their own, the rest has none.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if its parts cannot be separated.
    pub(crate) fn read_damaged(files: &dyn Files) -> io::Result<Self> {
        let file = sealed::open_any(files, FileKind::Manifest, 0)?;
        let bytes = file.read_all()?;
        Self::decoded(file, &bytes)
    }

    fn of(file: Arc<StoreFile>) -> io::Result<Self> {
        let bytes = file.read_all()?;
        let split = bytes.split_last_chunk::<CRC_BYTES>();
        let split = split.filter(|(body, _)| body.len() >= HEADER_BYTES + file.seal_bytes());
        let (body, crc) = split.ok_or_else(|| damaged("it is cut"))?;
        if *crc != crc32fast::hash(body).to_be_bytes() {
            return Err(damaged("checksum mismatch"));
        }
        let (body, seal) = body.split_at(body.len() - file.seal_bytes());
        if !seal.is_empty() {
            let about = digest(body);
            file.unseal(&mut seal.to_vec(), 0, (body.len() as u64, about.as_ref()))?;
        }
        Self::decoded(file, &bytes)
    }

    /// Returns the manifest in `file`, whose content is `bytes`.
    fn decoded(file: Arc<StoreFile>, bytes: &[u8]) -> io::Result<Self> {
        let end = bytes.len().saturating_sub(file.seal_bytes() + CRC_BYTES);
        let found = decode(&bytes[..end]).ok_or_else(|| damaged("it makes no sense"))?;
        let (contents, states, text) = found;
        Ok(Self {
            contents,
            file,
            states,
            text,
        })
    }

    /// Iterates over the vBuckets with a state.
    pub(crate) fn vbs(&self) -> impl Iterator<Item = VbId> {
        self.states.keys()
    }

    /// Returns the bytes of a state.
    pub(crate) fn state(&self, vb: VbId) -> io::Result<Option<Vec<u8>>> {
        let at = self.states.get(vb);
        at.map(|at| self.part(*at, &vb.0.to_be_bytes())).transpose()
    }

    /// Returns the text of the bucket.
    pub(crate) fn text(&self) -> io::Result<Option<Vec<u8>>> {
        self.text.map(|at| self.part(at, &[])).transpose()
    }

    /// Returns the bytes of a part; `of` identifies its owner.
    fn part(&self, (at, length): (u32, u32), of: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length as usize + CRC_BYTES];
        self.file.read_at(&mut bytes, u64::from(at))?;
        let crc = bytes.split_off(length as usize);
        let whole = crc == part_crc(of, &bytes).to_be_bytes();
        let opened = self.file.unseal(&mut bytes, 0, (u64::from(at), of));
        if whole && opened.is_ok() {
            Ok(bytes)
        } else {
            Err(named(NAME, damaged("a part of it is damaged")))
        }
    }
}

/// Returns the checksum of a part. It differs between vBuckets, so that their parts cannot be confused.
fn part_crc(of: &[u8], bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(of);
    crc.update(bytes);
    crc.finalize()
}

/// Offset and length of a part.
type PartAt = (u32, u32);

type Decoded = (ManifestContents, PerVb<PartAt>, Option<PartAt>);

/// Returns the digest of the whole manifest, which its seal covers.
fn digest(bytes: &[u8]) -> Digest {
    digest::digest(&SHA256, bytes)
}

fn encode(
    file: &StoreFile,
    header: Vec<u8>,
    contents: &ManifestContents,
    parts: &EncodedStates,
) -> io::Result<Vec<u8>> {
    let mut out = header;
    let numbers = |out: &mut Vec<u8>, numbers: &[u64]| {
        for number in numbers {
            out.extend_from_slice(&number.to_be_bytes());
        }
    };
    let head = [
        contents.number,
        contents.next_file,
        contents.next_epoch,
        contents.first_log,
        contents.flushed_group,
        contents.dead_rows,
        u64::from(contents.has_history),
        contents.runs.len() as u64,
    ];
    numbers(&mut out, &head);
    for (number, bytes) in &contents.runs {
        numbers(&mut out, &[*number, *bytes]);
    }
    numbers(&mut out, &[contents.values.len() as u64]);
    for (file, bytes) in &contents.values {
        numbers(&mut out, &[*file, *bytes]);
    }
    let part = |out: &mut Vec<u8>, of: &[u8], bytes: &[u8]| {
        let length = (bytes.len() + file.seal_bytes()) as u32;
        out.extend_from_slice(&length.to_be_bytes());
        let from = out.len();
        out.extend_from_slice(bytes);
        file.seal(out, from, (from as u64, of))?;
        let crc = part_crc(of, &out[from..]);
        out.extend_from_slice(&crc.to_be_bytes());
        io::Result::Ok(())
    };
    out.push(u8::from(parts.text.is_some()));
    if let Some(text) = &parts.text {
        part(&mut out, &[], text)?;
    }
    out.extend_from_slice(&(parts.states.len() as u32).to_be_bytes());
    for (vb, bytes) in &parts.states {
        out.extend_from_slice(&vb.0.to_be_bytes());
        part(&mut out, &vb.0.to_be_bytes(), bytes)?;
    }
    if file.cipher().is_some() {
        let (from, about) = (out.len(), digest(&out));
        file.seal(&mut out, from, (from as u64, about.as_ref()))?;
    }
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_be_bytes());
    Ok(out)
}

fn decode(bytes: &[u8]) -> Option<Decoded> {
    let reader = &mut Reader::new(bytes.get(HEADER_BYTES..)?);
    let mut contents = ManifestContents {
        number: reader.u64()?,
        next_file: reader.u64()?,
        next_epoch: reader.u64()?,
        first_log: reader.u64()?,
        flushed_group: reader.u64()?,
        dead_rows: reader.u64()?,
        has_history: reader.u64()? != 0,
        ..ManifestContents::default()
    };
    for _ in 0..reader.u64()? {
        contents.runs.push((reader.u64()?, reader.u64()?));
    }
    for _ in 0..reader.u64()? {
        contents.values.push((reader.u64()?, reader.u64()?));
    }
    let part = |reader: &mut Reader<'_>| {
        let length = reader.u32()?;
        let at = (bytes.len() - reader.rest.len()) as u32;
        reader.bytes(length as usize + CRC_BYTES)?;
        Some((at, length))
    };
    let text = match reader.u8()? {
        0 => None,
        _ => Some(part(reader)?),
    };
    let mut states = PerVb::default();
    for _ in 0..reader.u32()? {
        let vb = VbId(reader.u16()?);
        states.insert(vb, part(reader)?);
    }
    reader.rest.is_empty().then_some((contents, states, text))
}
