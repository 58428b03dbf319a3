//! Extended attributes: the section before the body of a value with [`Datatype::XATTR`].
//!
//! ```text
//!   section length (u32, without itself) | entry ... | body
//!   entry:  length (u32, without itself) | name 0x00 | text 0x00
//! ```
//!
//! Reads only uncompressed values: a stored value with attributes is never compressed.

use std::borrow::Cow;

use crate::{Datatype, Document};

/// Size of a length field in bytes.
const LENGTH_BYTES: usize = 4;
/// Size of an entry in bytes without name and text, including its length field.
const ENTRY_BYTES: usize = LENGTH_BYTES + 2;

/// The attributes before a body.
///
/// Cost: copies nothing; a look-up reads all entries before the one found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes<'a> {
    entries: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Splits a value into attributes and body; `None` if the value is malformed.
    ///
    /// Cost: reads all entries.
    pub fn split(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (length, rest) = value.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (entries, body) = rest.split_at_checked(length)?;
        let mut left = Entries { rest: entries };
        while left.next().is_some() {}
        left.rest.is_empty().then_some((Self { entries }, body))
    }

    /// Returns the attributes of a document's value; none if its datatype has no `XATTR`.
    pub fn of(value: &'a [u8], datatype: Datatype) -> Self {
        if !datatype.contains(Datatype::XATTR) {
            return Self::default();
        }
        Self::split(value).map_or(Self::default(), |(attributes, _)| attributes)
    }

    /// Names and texts, in stored order.
    pub fn iter(self) -> Entries<'a> {
        Entries { rest: self.entries }
    }

    /// Returns the text of an attribute.
    pub fn get(self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter()
            .find(|(own, _)| *own == name)
            .map(|(_, text)| text)
    }

    /// Whether there are no attributes.
    pub fn is_empty(self) -> bool {
        self.entries.is_empty()
    }

    /// Stored size of the user attributes and of the system attributes.
    pub fn bytes(self) -> AttributeBytes {
        let mut bytes = AttributeBytes::default();
        for (name, text) in self.iter() {
            let of_sort = if is_system(name) {
                &mut bytes.system
            } else {
                &mut bytes.user
            };
            *of_sort += ENTRY_BYTES + name.len() + text.len();
        }
        bytes
    }
}

/// Stored size of attributes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeBytes {
    /// Size of the user attributes.
    pub user: usize,
    /// Size of the system attributes.
    pub system: usize,
}

/// Iterator over names and texts; ends before a malformed entry.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (entry, rest) = rest.split_at_checked(length)?;
        let end = entry.iter().position(|byte| *byte == 0)?;
        let (name, text) = (&entry[..end], entry[end + 1..].strip_suffix(&[0])?);
        if name.is_empty() || text.contains(&0) {
            return None;
        }
        self.rest = rest;
        Some((name, text))
    }
}

/// Whether it is a system attribute: those outlive their document.
pub fn is_system(name: &[u8]) -> bool {
    name.first() == Some(&b'_')
}

/// Attribute that marks a document as stale for clients of memcached's meta protocol. It belongs to
/// the value: every write of a whole value, by any client, removes it.
pub const STALE: &[u8] = b"memcached_stale";

/// Whether a document, whose value is in memory, is stale.
pub fn is_stale(document: &Document) -> bool {
    let attributes = Attributes::of(document.value(), document.datatype());
    attributes.get(STALE).is_some()
}

/// Returns the attribute section of a whole value that replaces a value with this section.
pub fn section_behind(section: &[u8]) -> Cow<'_, [u8]> {
    let attributes = Attributes::of(section, Datatype::XATTR);
    if attributes.get(STALE).is_none() {
        return Cow::Borrowed(section);
    }
    let mut kept = Vec::with_capacity(section.len());
    let others = attributes.iter().filter(|(name, _)| *name != STALE);
    encode_attributes(others, &mut kept);
    Cow::Owned(kept)
}

/// Returns the start of the body of an uncompressed value. If the length is wrong, returns the end
/// of the value; if it is missing, the start.
///
/// Cost: O(1).
pub fn body_at(value: &[u8], datatype: Datatype) -> usize {
    if !datatype.contains(Datatype::XATTR) {
        return 0;
    }
    let Some((length, rest)) = value.split_first_chunk::<LENGTH_BYTES>() else {
        return 0;
    };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    LENGTH_BYTES + length.min(rest.len())
}

/// Appends a section with these attributes; nothing if there are none. Names and texts must not
/// contain zeros.
///
/// # Panics
/// With more than 4 GiB of attributes.
pub fn encode_attributes<'a>(
    attributes: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    out: &mut Vec<u8>,
) {
    let length = |bytes: usize| {
        let bytes = u32::try_from(bytes).expect("attributes are bounded far below 4 GiB");
        bytes.to_be_bytes()
    };
    let start = out.len();
    for (name, text) in attributes {
        if out.len() == start {
            out.extend_from_slice(&[0; LENGTH_BYTES]);
        }
        out.extend_from_slice(&length(name.len() + text.len() + 2));
        out.extend_from_slice(name);
        out.push(0);
        out.extend_from_slice(text);
        out.push(0);
    }
    if let Some(section) = out.get_mut(start..).filter(|section| !section.is_empty()) {
        let bytes = length(section.len() - LENGTH_BYTES);
        section[..LENGTH_BYTES].copy_from_slice(&bytes);
    }
}

/// Returns the section that outlives a document with this uncompressed value: its system
/// attributes. Empty if there are none.
pub fn system_section(value: &[u8], datatype: Datatype) -> Vec<u8> {
    let mut section = Vec::new();
    let attributes = Attributes::of(value, datatype);
    let system = attributes.iter().filter(|(name, _)| is_system(name));
    encode_attributes(system, &mut section);
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"\0\0\0\x15\0\0\0\x06ab\x00\x31\x00\x00";

    fn section(attributes: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        let attributes = attributes
            .iter()
            .map(|(name, text)| (name.as_bytes(), text.as_bytes()));
        encode_attributes(attributes, &mut out);
        out
    }

    #[test]
    fn encode_matches_the_section_of_the_protocol() {
        assert_eq!(section(&[]), b"");
        let bytes = section(&[("_s", "{}"), ("a", "1")]);
        assert_eq!(
            bytes,
            b"\0\0\0\x12\0\0\0\x06_s\0{}\0\0\0\0\x04a\x001\0".as_slice()
        );
        let value = [bytes.as_slice(), b"body"].concat();
        let (attributes, body) = Attributes::split(&value).unwrap();
        assert_eq!(body, b"body");
        assert_eq!(attributes.get(b"a"), Some(b"1".as_slice()));
        assert_eq!(attributes.get(b"b"), None);
        assert_eq!(body_at(&value, Datatype::XATTR), bytes.len());
        assert_eq!(body_at(&value, Datatype::JSON), 0);
        let bytes = attributes.bytes();
        assert_eq!((bytes.system, bytes.user), (10, 8));
        assert_eq!(
            system_section(&value, Datatype::XATTR),
            section(&[("_s", "{}")])
        );
        assert_eq!(system_section(&value, Datatype::JSON), b"");
    }

    #[test]
    fn split_refuses_malformed_sections() {
        let wrong: [&[u8]; 9] = [
            b"",
            b"\0\0\0",
            b"\0\0\0\x01",
            TWO,
            b"\0\0\0\x08\0\0\0\x04a\x00\x31\x00\x00",
            b"\0\0\0\x07\0\0\0\x03\x00\x31\x00",
            b"\0\0\0\x07\0\0\0\x03abc",
            b"\0\0\0\x08\0\0\0\x04a\x00\x31\x32",
            b"\0\0\0\x09\0\0\0\x05a\x001\x00\x00",
        ];
        for value in wrong.iter().filter(|value| **value != wrong[4]) {
            assert!(Attributes::split(value).is_none(), "{value:?}");
        }
        // The byte after the section is the body.
        assert_eq!(Attributes::split(wrong[4]).unwrap().1, b"\0");
    }

    #[test]
    fn wrong_lengths_do_no_harm() {
        assert_eq!(body_at(b"\0\0\0\x09xx", Datatype::XATTR), 6);
        assert_eq!(body_at(b"ab", Datatype::XATTR), 0);
        assert_eq!(body_at(b"\xff\xff\xff\xffab", Datatype::XATTR), 6);
        assert!(Attributes::of(b"\0\0\0\x09xx", Datatype::XATTR).is_empty());
    }
}
