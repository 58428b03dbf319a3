//! Changes of parts of documents.

use wire::Status;

use super::json::{Items, Located, depth, root, step, walk};
use super::path::{Component, Path};
use super::span::{DEPTH_MAX, Span};
use crate::bytes::is_json;

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditKind {
    /// Adds a member, which must not exist.
    DictAdd,
    /// Sets a member, which may exist.
    DictUpsert,
    /// Deletes the part.
    Delete,
    /// Replaces a part, which must exist.
    Replace,
    /// Appends elements to an array.
    PushLast,
    /// Prepends elements to an array.
    PushFirst,
    /// Inserts elements before the one at the path.
    Insert,
    /// Appends an element, which must not exist.
    AddUnique,
    /// Adds to a number.
    Counter,
}

impl EditKind {
    /// Whether the path names an array whose elements change.
    pub fn is_of_elements(self) -> bool {
        matches!(self, Self::PushLast | Self::PushFirst | Self::AddUnique)
    }
}

/// One change.
#[derive(Clone, Copy, Debug)]
pub struct Edit<'a> {
    /// Kind of the change.
    pub kind: EditKind,
    /// Path of the part.
    pub path: &'a Path<'a>,
    /// The new value; for a counter the number to add.
    pub value: &'a [u8],
    /// Whether missing objects of the path are created.
    pub make_path: bool,
}

/// Applies a change. Returns the new text, and the new number of a counter.
///
/// # Errors
/// The status of the path.
pub fn apply(text: &[u8], edit: &Edit<'_>) -> Result<(Vec<u8>, Option<i64>), Status> {
    let components = &edit.path.components;
    if components.is_empty() && !edit.kind.is_of_elements() {
        return Err(Status::SUBDOC_PATH_EINVAL);
    }
    let changed = match edit.kind {
        EditKind::Counter => return counter(text, edit),
        EditKind::Delete => delete(text, &walk(text, components)?),
        EditKind::Replace => {
            check_value(edit)?;
            splice(text, walk(text, components)?.value, edit.value)
        }
        EditKind::DictAdd | EditKind::DictUpsert => {
            check_value(edit)?;
            put_member(text, edit)?
        }
        EditKind::Insert => {
            check_values(edit)?;
            insert(text, edit)?
        }
        EditKind::PushLast | EditKind::PushFirst => {
            check_values(edit)?;
            push(text, edit)?
        }
        EditKind::AddUnique => {
            check_value(edit)?;
            if matches!(edit.value.trim_ascii_start().first(), Some(b'{' | b'[')) {
                return Err(Status::SUBDOC_VALUE_CANTINSERT);
            }
            push(text, edit)?
        }
    };
    Ok((changed, None))
}

fn check_value(edit: &Edit<'_>) -> Result<(), Status> {
    if !is_json(edit.value) {
        return Err(Status::SUBDOC_VALUE_CANTINSERT);
    }
    check_depth(edit)
}

/// Checks a list of values, separated by commas.
fn check_values(edit: &Edit<'_>) -> Result<(), Status> {
    let row = [b"[".as_slice(), edit.value, b"]"].concat();
    if edit.value.trim_ascii().is_empty()
        || !is_json(&row)
        || super::count(&row, root(&row)) == Some(0)
    {
        return Err(Status::SUBDOC_VALUE_CANTINSERT);
    }
    check_depth(edit)
}

fn check_depth(edit: &Edit<'_>) -> Result<(), Status> {
    if edit.path.components.len() + depth(edit.value) > DEPTH_MAX {
        return Err(Status::SUBDOC_VALUE_ETOODEEP);
    }
    Ok(())
}

/// Returns `text` with `value` instead of a part.
fn splice(text: &[u8], part: Span, value: &[u8]) -> Vec<u8> {
    let before = text.get(..part.start).unwrap_or_default();
    let after = text.get(part.end..).unwrap_or_default();
    [before, value, after].concat()
}

/// Returns `text` with `value` inserted at an offset.
fn put_in(text: &[u8], at: usize, value: &[u8]) -> Vec<u8> {
    splice(text, Span { start: at, end: at }, value)
}

/// Removes an item and its separating comma.
fn delete(text: &[u8], found: &Located) -> Vec<u8> {
    let Span { mut start, mut end } = found.item;
    let space = |byte: &u8| byte.is_ascii_whitespace();
    let after = text.get(end..).unwrap_or_default();
    let before = text.get(..start).unwrap_or_default();
    let next = after.iter().position(|byte| !space(byte));
    let last = before.iter().rposition(|byte| !space(byte));
    if let Some(next) = next.filter(|at| after.get(*at) == Some(&b',')) {
        end += next + 1;
    } else if let Some(last) = last.filter(|at| before.get(*at) == Some(&b',')) {
        start = last;
    }
    splice(text, Span { start, end }, b"")
}

/// Returns the last existing value of a path, and the remaining steps.
fn reach<'p, 'c>(
    text: &[u8],
    path: &'p [Component<'c>],
) -> Result<(Span, &'p [Component<'c>]), Status> {
    let (mut at, mut rest) = (root(text), path);
    while let Some((first, others)) = rest.split_first() {
        match step(text, at, first) {
            Ok(found) => (at, rest) = (found.value, others),
            Err(Status::SUBDOC_PATH_ENOENT) => break,
            Err(error) => return Err(error),
        }
    }
    Ok((at, rest))
}

/// Adds a value at `steps` to an object that lacks the first of them.
fn make(
    text: &[u8],
    object: Span,
    steps: &[Component<'_>],
    value: &[u8],
    make_path: bool,
) -> Result<Vec<u8>, Status> {
    if steps.len() > 1 && !make_path {
        return Err(Status::SUBDOC_PATH_ENOENT);
    }
    let mut names = Vec::new();
    for step in steps {
        match step {
            Component::Key(name) => names.push(name),
            _ => return Err(Status::SUBDOC_PATH_ENOENT),
        }
    }
    let mut item = Vec::new();
    if Items::of(text, object).next().is_some() {
        item.push(b',');
    }
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            item.push(b'{');
        }
        item.push(b'"');
        item.extend_from_slice(name);
        item.extend_from_slice(b"\":");
    }
    item.extend_from_slice(value);
    item.extend(std::iter::repeat_n(b'}', names.len().saturating_sub(1)));
    Ok(put_in(text, object.end.saturating_sub(1), &item))
}

fn put_member(text: &[u8], edit: &Edit<'_>) -> Result<Vec<u8>, Status> {
    let components = &edit.path.components;
    if !matches!(components.last(), Some(Component::Key(_))) {
        return Err(Status::SUBDOC_PATH_EINVAL);
    }
    let (at, rest) = reach(text, components)?;
    match rest {
        [] if edit.kind == EditKind::DictAdd => Err(Status::SUBDOC_PATH_EEXISTS),
        [] => Ok(splice(text, at, edit.value)),
        rest => make(text, at, rest, edit.value, edit.make_path),
    }
}

fn insert(text: &[u8], edit: &Edit<'_>) -> Result<Vec<u8>, Status> {
    let Some((Component::Index(index), parents)) = edit.path.components.split_last() else {
        return Err(Status::SUBDOC_PATH_EINVAL);
    };
    let array = walk(text, parents)?.value;
    if text.get(array.start) != Some(&b'[') {
        return Err(Status::SUBDOC_PATH_MISMATCH);
    }
    let index = *index as usize;
    match Items::of(text, array).nth(index) {
        Some(found) => {
            let row = [edit.value, b","].concat();
            Ok(put_in(text, found.item.start, &row))
        }
        None if Items::of(text, array).count() == index => Ok(push_last(text, array, edit.value)),
        None => Err(Status::SUBDOC_PATH_ENOENT),
    }
}

fn push(text: &[u8], edit: &Edit<'_>) -> Result<Vec<u8>, Status> {
    let (array, rest) = reach(text, &edit.path.components)?;
    if !rest.is_empty() {
        if !edit.make_path {
            return Err(Status::SUBDOC_PATH_ENOENT);
        }
        let row = [b"[".as_slice(), edit.value, b"]"].concat();
        return make(text, array, rest, &row, true);
    }
    if text.get(array.start) != Some(&b'[') {
        return Err(Status::SUBDOC_PATH_MISMATCH);
    }
    let first = Items::of(text, array).next();
    match (edit.kind, first) {
        (EditKind::PushFirst, Some(first)) => {
            let row = [edit.value, b","].concat();
            return Ok(put_in(text, first.item.start, &row));
        }
        (EditKind::AddUnique, _) => {
            for item in Items::of(text, array) {
                let element = item.value.of(text);
                if matches!(element.first(), Some(b'{' | b'[')) {
                    return Err(Status::SUBDOC_PATH_MISMATCH);
                }
                if element == edit.value.trim_ascii() {
                    return Err(Status::SUBDOC_PATH_EEXISTS);
                }
            }
        }
        _ => {}
    }
    Ok(push_last(text, array, edit.value))
}

fn push_last(text: &[u8], array: Span, value: &[u8]) -> Vec<u8> {
    let row = if Items::of(text, array).next().is_some() {
        [b",", value].concat()
    } else {
        value.to_vec()
    };
    put_in(text, array.end.saturating_sub(1), &row)
}

fn counter(text: &[u8], edit: &Edit<'_>) -> Result<(Vec<u8>, Option<i64>), Status> {
    let delta = std::str::from_utf8(edit.value)
        .ok()
        .and_then(|digits| digits.parse::<i64>().ok())
        .filter(|delta| *delta != 0)
        .ok_or(Status::SUBDOC_DELTA_EINVAL)?;
    let (at, rest) = reach(text, &edit.path.components)?;
    if !rest.is_empty() {
        let changed = make(text, at, rest, delta.to_string().as_bytes(), edit.make_path)?;
        return Ok((changed, Some(delta)));
    }
    let digits = at.of(text);
    let whole = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
    if digits.is_empty() || !digits.iter().all(whole) {
        return Err(Status::SUBDOC_PATH_MISMATCH);
    }
    let number: i64 = std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok())
        .ok_or(Status::SUBDOC_NUM_ERANGE)?;
    let number = number
        .checked_add(delta)
        .ok_or(Status::SUBDOC_VALUE_CANTINSERT)?;
    let changed = splice(text, at, number.to_string().as_bytes());
    Ok((changed, Some(number)))
}
