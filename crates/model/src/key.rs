//! Stored document keys: the collection's LEB128 identifier, then the user's key.

use crate::CollectionId;

/// Maximum length of a stored key: one byte of collection prefix and 250 bytes of user's key.
pub const KEY_BYTES_MAX: usize = 251;

/// Splits a stored key into its collection and the user's part.
///
/// `None` if the prefix is not a canonical unsigned LEB128 number of at most five bytes that fits
/// 32 bits. The user's part may be empty; the caller decides whether that is allowed.
pub fn split_key(key: &[u8]) -> Option<(CollectionId, &[u8])> {
    let mut id: u64 = 0;
    for (index, &byte) in key.iter().enumerate().take(5) {
        id |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let canonical = byte != 0 || index == 0;
            let id = u32::try_from(id).ok().filter(|_| canonical)?;
            return Some((CollectionId(id), &key[index + 1..]));
        }
    }
    None
}

/// Appends the canonical LEB128 form of a number: 1 to 5 bytes.
pub fn push_leb128(mut number: u32, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns the stored form of a user's key in a collection.
pub fn collection_key(collection: CollectionId, key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(key.len() + 5);
    push_leb128(collection.0, &mut stored);
    stored.extend_from_slice(key);
    stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leb128_vectors() {
        let known: [(u32, &[u8]); 8] = [
            (0, &[0x00]),
            (8, &[0x08]),
            (0x7f, &[0x7f]),
            (0x80, &[0x80, 0x01]),
            (0x555, &[0xd5, 0x0a]),
            (0xffff, &[0xff, 0xff, 0x03]),
            (0x0caf_ef00, &[0x80, 0xde, 0xbf, 0x65]),
            (0xffff_ffff, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ];
        for (id, bytes) in known {
            let mut key = bytes.to_vec();
            key.extend_from_slice(b"k");
            assert_eq!(split_key(&key), Some((CollectionId(id), b"k".as_slice())));
            assert_eq!(collection_key(CollectionId(id), b"k"), key);
        }
    }

    #[test]
    fn split_key_refuses_bad_prefixes() {
        assert_eq!(split_key(b""), None);
        assert_eq!(split_key(&[0x80]), None, "no stop byte");
        assert_eq!(split_key(&[0x80, 0x00, b'k']), None, "not canonical");
        assert_eq!(
            split_key(&[0xff, 0xff, 0xff, 0xff, 0x1f, b'k']),
            None,
            "over 32 bits"
        );
        assert_eq!(
            split_key(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]),
            None,
            "six bytes"
        );
    }
}
