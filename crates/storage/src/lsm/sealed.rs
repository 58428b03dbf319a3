//! Files with a header, which states their encryption.

use std::io;
use std::sync::Arc;

use cipher::{Cipher, SEAL_BYTES, missing};

use super::bytes::{
    FileKind, HEADER_BYTES, IDENTITY_BYTES, check_header, damaged, encrypted_header, header,
    identity, is_plain,
};
use super::files::{Files, StoreFile};
use super::pieces::Pieces;

/// Creates a file. Returns it with the header to be written into it.
pub(crate) fn create(
    files: &dyn Files,
    name: &str,
    of: (FileKind, u64),
) -> io::Result<(Arc<dyn StoreFile>, [u8; HEADER_BYTES])> {
    let file = files.create(name)?;
    let Some(keyring) = files.keyring() else {
        return Ok((file, header(of.0, of.1)));
    };
    let (identity, check, cipher) = keyring.create(|key, store| identity(of, key, store))?;
    let header = encrypted_header(&identity, check);
    Ok((SealedFile::of(file, cipher), header))
}

/// Opens a file, and checks its header.
///
/// # Errors
/// Those of the system; `InvalidData` for the header of another file; a
/// [`key_error`](cipher::key_error).
pub(crate) fn open(
    files: &dyn Files,
    kind: FileKind,
    number: u64,
) -> io::Result<Arc<dyn StoreFile>> {
    let file = files.open(&kind.name(number))?;
    let mut head = [0; HEADER_BYTES];
    if file.length()? < HEADER_BYTES as u64 {
        return Err(damaged("its header is cut"));
    }
    file.read_at(&mut head, 0)?;
    let Some(found) = check_header(kind, number, &head)? else {
        return Ok(file);
    };
    let keyring = files.keyring();
    let keyring = keyring.ok_or_else(|| missing(found.key))?;
    let cipher = keyring.open(&head[..IDENTITY_BYTES], &found)?;
    Ok(SealedFile::of(file, cipher))
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
) -> io::Result<Arc<dyn StoreFile>> {
    match open(files, kind, number) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
        opened => return opened,
    }
    let file = files.open(&kind.name(number))?;
    let Some(keyring) = files.keyring() else {
        return Ok(file);
    };
    let mut head = [0; HEADER_BYTES];
    let cut = file.read_at(&mut head, 0).is_err();
    let cipher = keyring.guess(|key, store| identity((kind, number), key, store))?;
    match cipher.filter(|_| !cut && !is_plain(&head)) {
        Some(cipher) => Ok(SealedFile::of(file, cipher)),
        None => Ok(file),
    }
}

/// Whether the encryption of a file is that of a new one: with the first key, if there are keys.
pub(crate) fn is_current(files: &dyn Files, file: &dyn StoreFile) -> bool {
    files.keyring().is_none() || file.cipher().is_some_and(Cipher::is_current)
}

impl dyn StoreFile + '_ {
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

/// An encrypted file. Reads and writes handle the encrypted bytes.
#[derive(Debug)]
struct SealedFile {
    file: Arc<dyn StoreFile>,
    cipher: Arc<Cipher>,
    pieces: Pieces,
}

impl SealedFile {
    fn of(file: Arc<dyn StoreFile>, cipher: Cipher) -> Arc<dyn StoreFile> {
        Arc::new(Self {
            file,
            cipher: Arc::new(cipher),
            pieces: Pieces::default(),
        })
    }
}

impl StoreFile for SealedFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_at(bytes, at)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        self.file.disk_bytes()
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_length(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn cipher(&self) -> Option<&Cipher> {
        Some(&self.cipher)
    }

    fn pieces(&self) -> Option<&Pieces> {
        Some(&self.pieces)
    }

    fn for_values(&self) -> Option<Arc<dyn StoreFile>> {
        Some(Arc::new(Self {
            file: Arc::clone(&self.file),
            cipher: Arc::clone(&self.cipher),
            pieces: Pieces::default(),
        }))
    }
}
