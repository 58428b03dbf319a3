//! The text of `node.json`: a line with the checksum, then JSON.

use std::path::Path;

/// The name of the file in a data directory.
pub(super) const NAME: &str = "node.json";
/// The first words of the first line, `settee node 1 CRC LENGTH`.
const WORDS: &str = "settee node 1";

/// What a file holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text<'a> {
    pub(super) json: &'a [u8],
    /// Whether a checksum vouches for it: earlier releases wrote none.
    pub(super) sealed: bool,
}

/// The bytes of a file.
pub(super) fn seal(json: &[u8]) -> Vec<u8> {
    [first_line(json).as_bytes(), b"\n", json].concat()
}

/// What the bytes of a file say.
///
/// # Errors
/// They are not what was written; why.
pub(super) fn unseal(bytes: &[u8]) -> Result<Text<'_>, &'static str> {
    if bytes.starts_with(b"{") {
        return Ok(Text {
            json: bytes,
            sealed: false,
        });
    }
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or("it has no first line")?;
    let (head, json) = (&bytes[..end], &bytes[end + 1..]);
    if head != first_line(json).as_bytes() {
        return Err("checksum mismatch");
    }
    Ok(Text { json, sealed: true })
}

fn first_line(json: &[u8]) -> String {
    format!("{WORDS} {:08x} {}", crc32fast::hash(json), json.len())
}

/// The advice for a start without a usable file in the data directory `path`.
pub(super) fn hint(path: &Path) -> String {
    format!(
        "put the right {NAME} back, or copy what the directory holds into a new one with \
         settee salvage --data-dir {} --to NEW",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_byte_and_every_cut_is_seen() {
        let json = br#"{"version":1,"node_uuid":"0f"}"#;
        let whole = seal(json);
        let text = unseal(&whole).unwrap();
        assert_eq!((text.json, text.sealed), (json.as_slice(), true));
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let seen = unseal(&damaged).map_or(true, |text| !text.sealed);
                assert!(seen, "byte {at}, bit {bit}");
            }
            assert!(unseal(&whole[..at]).is_err(), "cut to {at}");
        }
    }

    #[test]
    fn a_file_without_a_checksum_is_one_of_an_earlier_release() {
        let text = unseal(br#"{"version":1}"#).unwrap();
        assert!(!text.sealed);
    }
}
