//! Extended attributes of a document during changes; each is one JSON text.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{AttributeBytes, Attributes, encode_attributes, is_system};
use wire::Status;

use super::edit::{Edit, apply};
use super::json::find;
use super::path::Path;
use super::span::Span;
use crate::is_json;

/// Maximum bytes of an attribute's name.
const NAME_BYTES_MAX: usize = 15;
/// Prefix of bytes that are stored as a string.
const BINARY: &[u8] = b"cb-content-base64-encoded:";

/// Returns the attribute name at the beginning of a path.
///
/// # Errors
/// `XATTR_EINVAL` if it is no valid name.
pub fn name_of(path: &[u8]) -> Result<&[u8], Status> {
    let end = path.iter().position(|byte| matches!(byte, b'.' | b'['));
    let name = path.get(..end.unwrap_or(path.len())).unwrap_or_default();
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && std::str::from_utf8(name).is_ok();
    let begins_well = match name {
        [b'_' | b'$'] | [] => false,
        [b'_' | b'$', ..] => true,
        [first, ..] => !first.is_ascii_punctuation() && !first.is_ascii_control(),
    };
    if fits && begins_well && !name.contains(&0) {
        Ok(name)
    } else {
        Err(Status::XATTR_EINVAL)
    }
}

/// Whether attributes that were made elsewhere are as changes of sub-documents make them: each name is valid and stands
/// once, each text is JSON.
pub fn are_valid(attributes: Attributes<'_>) -> bool {
    let mut names = HashSet::new();
    attributes
        .iter()
        .all(|(name, text)| name_of(name) == Ok(name) && names.insert(name) && is_json(text))
}

/// Returns the JSON string in which bytes are stored.
pub fn encode_binary(bytes: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(bytes);
    [b"\"", BINARY, text.as_bytes(), b"\""].concat()
}

/// Returns the bytes that are stored in a JSON string.
///
/// # Errors
/// `SUBDOC_FIELD_NOT_BINARY_VALUE` if it stores none.
pub fn decode_binary(text: &[u8]) -> Result<Vec<u8>, Status> {
    text.strip_prefix(b"\"")
        .and_then(|text| text.strip_prefix(BINARY)?.strip_suffix(b"\""))
        .and_then(|text| STANDARD.decode(text).ok())
        .ok_or(Status::SUBDOC_FIELD_NOT_BINARY_VALUE)
}

/// Borrowed bytes of a document, or new ones.
type Bytes<'a> = Cow<'a, [u8]>;

/// Attributes by name, in their order.
#[derive(Clone, Debug, Default)]
pub struct AttributeSet<'a> {
    entries: Vec<(Bytes<'a>, Bytes<'a>)>,
}

impl<'a> AttributeSet<'a> {
    /// Creates the set from the attributes of a document.
    pub fn of(attributes: Attributes<'a>) -> Self {
        let entries = attributes.iter();
        Self {
            entries: entries
                .map(|(name, text)| (name.into(), text.into()))
                .collect(),
        }
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        self.entries.iter().position(|(own, _)| **own == *name)
    }

    /// Returns the value at a path.
    ///
    /// # Errors
    /// The status of the path.
    pub fn find(&self, path: &[u8]) -> Result<&[u8], Status> {
        let at = self.position(name_of(path)?);
        let (_, text) = at
            .and_then(|at| self.entries.get(at))
            .ok_or(Status::SUBDOC_PATH_ENOENT)?;
        Ok(find_in(text, Path::parse(path)?)?.of(text))
    }

    /// Applies a change at its path, which begins with a name. Returns the new number of a counter.
    ///
    /// # Errors
    /// The status of the path.
    pub fn apply(&mut self, edit: &Edit<'_>, name: &[u8]) -> Result<Option<i64>, Status> {
        let at = self.position(name);
        let text = at.and_then(|at| self.entries.get(at)).map(|(_, text)| text);
        // The attribute is changed as the only member of an object.
        let object = match text {
            Some(text) => [b"{\"", name, b"\":", text, b"}"].concat(),
            None => b"{}".to_vec(),
        };
        let (changed, number) = apply(&object, edit)?;
        let whole = Path {
            components: edit.path.components.iter().take(1).cloned().collect(),
        };
        match (at, find(&changed, &whole)) {
            (Some(at), Ok(span)) => {
                if let Some((_, text)) = self.entries.get_mut(at) {
                    *text = span.of(&changed).to_vec().into();
                }
            }
            (None, Ok(span)) => {
                let text = span.of(&changed).to_vec();
                self.entries.push((name.to_vec().into(), text.into()));
            }
            (Some(at), Err(_)) => {
                self.entries.remove(at);
            }
            (None, Err(_)) => {}
        }
        Ok(number)
    }

    /// Removes the attributes of users.
    pub fn keep_system(&mut self) {
        self.entries.retain(|(name, _)| is_system(name));
    }

    /// Encodes the attributes as a section.
    pub fn section(&self) -> Vec<u8> {
        let mut section = Vec::new();
        let entries = self.entries.iter();
        encode_attributes(entries.map(|(name, text)| (&**name, &**text)), &mut section);
        section
    }
}

/// Returns the sizes of the attributes in a section of [`AttributeSet::section`].
pub fn section_bytes(section: &[u8]) -> AttributeBytes {
    Attributes::split(section).map_or(AttributeBytes::default(), |(all, _)| all.bytes())
}

/// Returns the position of a path in the text of its attribute.
pub fn find_in(text: &[u8], path: Path<'_>) -> Result<Span, Status> {
    let mut components = path.components;
    if components.is_empty() {
        return Err(Status::XATTR_EINVAL);
    }
    components.remove(0);
    find(text, &Path { components })
}
