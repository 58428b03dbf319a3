//! Small files that are replaced as a whole: a line with the checksum, then the text.

use std::fs;
use std::io;
use std::path::Path;

use super::names;

/// The text of file `name`, whose first line begins with `words`; `None` when there is no file.
///
/// # Errors
/// `InvalidData` when it is not what was written.
pub(super) fn read(directory: &Path, name: &str, words: &str) -> io::Result<Option<Vec<u8>>> {
    let corrupt = |reason: &'static str| io::Error::new(io::ErrorKind::InvalidData, reason);
    let bytes = match fs::read(directory.join(name)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| corrupt("it has no first line"))?;
    let (head, text) = (&bytes[..end], &bytes[end + 1..]);
    if head == first_line(words, text).as_bytes() {
        Ok(Some(text.to_vec()))
    } else {
        Err(corrupt("checksum mismatch"))
    }
}

/// Replaces the text; after a crash the old or the new one is there.
pub(super) fn write(directory: &Path, name: &str, words: &str, text: &[u8]) -> io::Result<()> {
    let content = [first_line(words, text).as_bytes(), b"\n", text].concat();
    names::replace(&directory.join(name), &content)
}

fn first_line(words: &str, text: &[u8]) -> String {
    format!("{words} {:08x} {}", crc32fast::hash(text), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_damage_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let read = || super::read(path, "file", "words 1");
        assert_eq!(read().unwrap(), None);
        for text in [b"{}".as_slice(), b"", b"line\nline\n"] {
            write(path, "file", "words 1", text).unwrap();
            assert_eq!(read().unwrap().as_deref(), Some(text));
        }
        let file = path.join("file");
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&file, damaged).unwrap();
            assert_eq!(
                read().unwrap_err().kind(),
                io::ErrorKind::InvalidData,
                "{at}"
            );
        }
        fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(read().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
