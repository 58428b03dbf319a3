//! Paths as clients write them: `a.b[3]`, `a.b.[3]`, `` `a.b`[-1] ``.

use std::borrow::Cow;

use wire::Status;

use super::span::DEPTH_MAX;
use crate::bytes::is_json;

/// Maximum bytes of a path.
const PATH_BYTES_MAX: usize = 1024;

/// One step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Component<'a> {
    /// Member of an object; its name is escaped as in JSON, without quotes.
    Key(Cow<'a, [u8]>),
    /// Element of an array.
    Index(u32),
    /// Last element of an array: `[-1]`.
    Last,
}

/// A parsed path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path<'a> {
    /// Its steps, from the whole document on.
    pub components: Vec<Component<'a>>,
}

impl<'a> Path<'a> {
    /// Parses a path; the empty one is the whole document.
    ///
    /// # Errors
    /// `SUBDOC_PATH_EINVAL` if it is invalid, `SUBDOC_PATH_E2BIG` with too many steps, `EINVAL` if it is too long.
    pub fn parse(text: &'a [u8]) -> Result<Self, Status> {
        if text.len() > PATH_BYTES_MAX {
            return Err(Status::EINVAL);
        }
        if simdutf8::basic::from_utf8(text).is_err() {
            return Err(Status::SUBDOC_PATH_EINVAL);
        }
        let mut components = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if components.len() == DEPTH_MAX {
                return Err(Status::SUBDOC_PATH_E2BIG);
            }
            let (component, after) = match rest.first() {
                Some(b'[') => index(rest)?,
                Some(b'`') => quoted(rest)?,
                _ => plain(rest)?,
            };
            components.push(component);
            rest = match after {
                [] | [b'[', ..] => after,
                // A path may not end with a dot. `a.[0]` means `a[0]`.
                [b'.', _, ..] => &after[1..],
                _ => return Err(Status::SUBDOC_PATH_EINVAL),
            };
        }
        Ok(Self { components })
    }
}

type Step<'a> = Result<(Component<'a>, &'a [u8]), Status>;

fn index(text: &[u8]) -> Step<'_> {
    let end = position(text, b']').ok_or(Status::SUBDOC_PATH_EINVAL)?;
    let (digits, after) = (&text[1..end], &text[end + 1..]);
    if digits == b"-1" {
        return Ok((Component::Last, after));
    }
    let number = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .ok_or(Status::SUBDOC_PATH_EINVAL)?;
    Ok((Component::Index(number), after))
}

fn plain(text: &[u8]) -> Step<'_> {
    let end = text.iter().position(|byte| matches!(byte, b'.' | b'['));
    let (name, after) = text.split_at(end.unwrap_or(text.len()));
    let stray = |byte: &u8| matches!(byte, b']' | b'`');
    if name.is_empty() || name.iter().any(stray) {
        return Err(Status::SUBDOC_PATH_EINVAL);
    }
    Ok((Component::Key(as_in_json(name)?), after))
}

/// Parses a name between backticks; two backticks stand for one.
fn quoted(text: &[u8]) -> Step<'_> {
    let mut name = Vec::new();
    let mut rest = &text[1..];
    loop {
        let end = position(rest, b'`').ok_or(Status::SUBDOC_PATH_EINVAL)?;
        name.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        if rest.first() != Some(&b'`') {
            break;
        }
        name.push(b'`');
        rest = &rest[1..];
    }
    let name = as_in_json(&name)?.into_owned();
    Ok((Component::Key(name.into()), rest))
}

/// Returns a name as it is between quotes; it must be escaped already, or need no escapes.
fn as_in_json(name: &[u8]) -> Result<Cow<'_, [u8]>, Status> {
    let valid = if name.contains(&b'\\') {
        is_json(&[b"\"", name, b"\""].concat())
    } else {
        !name.iter().any(|byte| *byte == b'"' || *byte < 0x20)
    };
    if !valid {
        return Err(Status::SUBDOC_PATH_EINVAL);
    }
    Ok(Cow::Borrowed(name))
}

fn position(text: &[u8], wanted: u8) -> Option<usize> {
    text.iter().position(|byte| *byte == wanted)
}
