//! Files with a header, which states their encryption.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use cipher::{Cipher, SEAL_BYTES, missing};

use super::bytes::{
    FileKind, HEADER_BYTES, IDENTITY_BYTES, check_header, damaged, encrypted_header, header,
    identity, is_plain,
};
use super::files::{Files, RawFile};
use super::pieces::Pieces;

/// Creates a file. Returns it with the header to be written into it.
pub(crate) fn create(
    files: &dyn Files,
    name: &str,
    of: (FileKind, u64),
) -> io::Result<(Arc<StoreFile>, [u8; HEADER_BYTES])> {
    let file = files.create(name)?;
    let Some(keyring) = files.keyring() else {
        return Ok((StoreFile::of(file, None), header(of.0, of.1)));
    };
    let (identity, check, cipher) = keyring.create(|key, store| identity(of, key, store))?;
    let header = encrypted_header(&identity, check);
    Ok((StoreFile::of(file, Some(cipher)), header))
}

/// Replaces a file of which there is one, durably, by what `encode` makes of its header. `written`
/// is called when that is on disk, before it becomes valid.
///
/// # Errors
/// Those of the system. After a crash either one may exist.
///
/// Cost: two syncs.
pub(crate) fn replace(
    files: &dyn Files,
    (kind, draft): (FileKind, &str),
    encode: impl FnOnce(&StoreFile, Vec<u8>) -> io::Result<Vec<u8>>,
    written: impl FnOnce(),
) -> io::Result<(Arc<StoreFile>, Vec<u8>)> {
    let replace = || {
        let (file, header) = create(files, draft, (kind, 0))?;
        let bytes = encode(&file, header.to_vec())?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        written();
        files.rename(draft, &kind.name(0))?;
        files.sync_names()?;
        Ok((file, bytes))
    };
    // A draft takes no space where there may be none.
    replace().or_else(|error| files.remove(draft).and(Err(error)))
}

/// Opens a file, and checks its header.
///
/// # Errors
/// Those of the system; `InvalidData` for the header of another file; a
/// [`key_error`](cipher::key_error).
pub(crate) fn open(files: &dyn Files, kind: FileKind, number: u64) -> io::Result<Arc<StoreFile>> {
    let file = files.open(&kind.name(number))?;
    let mut head = [0; HEADER_BYTES];
    if file.length()? < HEADER_BYTES as u64 {
        return Err(damaged("its header is cut"));
    }
    file.read_at(&mut head, 0)?;
    let Some(found) = check_header(kind, number, &head)? else {
        return Ok(StoreFile::of(file, None));
    };
    let keyring = files.keyring();
    let keyring = keyring.ok_or_else(|| missing(found.key))?;
    let cipher = keyring.open(&head[..IDENTITY_BYTES], &found)?;
    Ok(StoreFile::of(file, Some(cipher)))
}

/// Opens a file whose header may be damaged. If the damaged header does not look plain, the file
/// counts as encrypted with the key of the others.
///
/// # Errors
/// Those of the system; a [`key_error`](cipher::key_error).
pub(crate) fn open_any(
    files: &dyn Files,
    kind: FileKind,
    number: u64,
) -> io::Result<Arc<StoreFile>> {
    match open(files, kind, number) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
        opened => return opened,
    }
    let file = files.open(&kind.name(number))?;
    let Some(keyring) = files.keyring() else {
        return Ok(StoreFile::of(file, None));
    };
    let mut head = [0; HEADER_BYTES];
    let cut = file.read_at(&mut head, 0).is_err();
    let cipher = keyring.guess(|key, store| identity((kind, number), key, store))?;
    let cipher = cipher.filter(|_| !cut && !is_plain(&head));
    Ok(StoreFile::of(file, cipher))
}

/// A file of the store. Reads and writes handle the encrypted bytes of its units.
#[derive(Debug)]
pub(crate) struct StoreFile {
    file: Arc<dyn RawFile>,
    cipher: Option<Arc<Cipher>>,
    pieces: Pieces,
}

impl Deref for StoreFile {
    type Target = dyn RawFile;

    fn deref(&self) -> &Self::Target {
        &*self.file
    }
}

impl StoreFile {
    fn of(file: Arc<dyn RawFile>, cipher: Option<Cipher>) -> Arc<Self> {
        Arc::new(Self {
            file,
            cipher: cipher.map(Arc::new),
            pieces: Pieces::default(),
        })
    }

    /// Returns this file for reading values only: without the positions of pieces.
    pub(crate) fn for_values(&self) -> Arc<Self> {
        Arc::new(Self {
            file: Arc::clone(&self.file),
            cipher: self.cipher.clone(),
            pieces: Pieces::default(),
        })
    }

    /// Returns the cipher of its units; `None` for a plain file.
    pub(crate) fn cipher(&self) -> Option<&Cipher> {
        self.cipher.as_deref()
    }

    /// Returns the positions of an encrypted log's pieces; `None` for a plain file.
    pub(crate) fn pieces(&self) -> Option<&Pieces> {
        self.cipher.as_ref().map(|_| &self.pieces)
    }

    /// Whether its encryption is that of a new file: with the first key, if there are keys.
    pub(crate) fn is_current(&self, files: &dyn Files) -> bool {
        files.keyring().is_none() || self.cipher().is_some_and(Cipher::is_current)
    }

    /// Returns the bytes that sealing adds to a unit.
    pub(crate) fn seal_bytes(&self) -> usize {
        self.cipher().map_or(0, |_| SEAL_BYTES)
    }

    /// Seals the unit that begins at `from` in `bytes`, for offset `at`, and authenticates `of` with it.
    ///
    /// # Errors
    /// The unit is too long.
    pub(crate) fn seal(
        &self,
        bytes: &mut Vec<u8>,
        from: usize,
        (at, of): (u64, &[u8]),
    ) -> io::Result<()> {
        if let Some(cipher) = self.cipher() {
            let seal = cipher.seal(&mut bytes[from..], at, of)?;
            bytes.extend_from_slice(&seal);
        }
        Ok(())
    }

    /// Reads a value, which is a unit, from offset `at` into `value`.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if it was not sealed at this place.
    pub(crate) fn read_value(&self, value: &mut [u8], at: u64) -> io::Result<()> {
        self.read_at(value, at)?;
        let Some(cipher) = self.cipher() else {
            return Ok(());
        };
        let mut seal = [0; SEAL_BYTES];
        self.read_at(&mut seal, at + value.len() as u64)?;
        cipher.open_apart(value, &seal, (at, &[]))
    }

    /// Unseals the unit from `from` to the end of `bytes`, which was read at `at`.
    ///
    /// # Errors
    /// `InvalidData` if it was not sealed at this place.
    pub(crate) fn unseal(
        &self,
        bytes: &mut Vec<u8>,
        from: usize,
        (at, of): (u64, &[u8]),
    ) -> io::Result<()> {
        let length = self.unseal_in_place(&mut bytes[from..], (at, of))?;
        bytes.truncate(from + length);
        Ok(())
    }

    /// Unseals a unit between others, in place. Returns its length.
    ///
    /// # Errors
    /// `InvalidData` if it was not sealed at this place.
    pub(crate) fn unseal_in_place(
        &self,
        unit: &mut [u8],
        (at, of): (u64, &[u8]),
    ) -> io::Result<usize> {
        let cipher = self.cipher();
        cipher.map_or(Ok(unit.len()), |cipher| cipher.open(unit, at, of))
    }
}
