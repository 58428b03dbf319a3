//! Navigation in a text of valid JSON, without building a tree.

use wire::Status;

use super::path::{Component, Path};
use super::span::{DEPTH_MAX, Span};

/// Result of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    /// The value.
    pub(super) value: Span,
    /// The member or element in its parent, with the name; for the whole document the value itself.
    pub(super) item: Span,
}

/// Follows all steps of a path.
pub(super) fn walk(text: &[u8], path: &[Component<'_>]) -> Result<Located, Status> {
    let root = root(text);
    let mut found = Located {
        value: root,
        item: root,
    };
    for component in path {
        found = step(text, found.value, component)?;
    }
    Ok(found)
}

/// Returns the span of the whole document, without surrounding white space.
pub(super) fn root(text: &[u8]) -> Span {
    let start = skip_space(text, 0);
    let end = text.trim_ascii_end().len().max(start);
    Span { start, end }
}

/// Returns a part of a value.
pub(super) fn step(text: &[u8], value: Span, component: &Component<'_>) -> Result<Located, Status> {
    let mut items = match (component, text.get(value.start)) {
        (Component::Key(_), Some(b'{')) | (Component::Index(_) | Component::Last, Some(b'[')) => {
            Items::of(text, value)
        }
        _ => return Err(Status::SUBDOC_PATH_MISMATCH),
    };
    let found = match component {
        Component::Key(name) => items.find(|found| {
            let quoted = text.get(found.item.start..).unwrap_or_default();
            quoted.get(1..=name.len()) == Some(name) && quoted.get(name.len() + 1) == Some(&b'"')
        }),
        Component::Index(index) => items.nth(*index as usize),
        Component::Last => items.last(),
    };
    found.ok_or(Status::SUBDOC_PATH_ENOENT)
}

/// Iterator over members of an object or elements of an array.
pub(super) struct Items<'a> {
    text: &'a [u8],
    at: usize,
    named: bool,
}

impl<'a> Items<'a> {
    /// Creates an iterator over the items of `value`, which begins with a bracket.
    pub(super) fn of(text: &'a [u8], value: Span) -> Self {
        Self {
            text,
            at: value.start + 1,
            named: text.get(value.start) == Some(&b'{'),
        }
    }
}

impl Iterator for Items<'_> {
    type Item = Located;

    fn next(&mut self) -> Option<Located> {
        let text = self.text;
        let start = skip_space(text, self.at);
        let start = match text.get(start)? {
            b',' => skip_space(text, start + 1),
            b'}' | b']' => return None,
            _ => start,
        };
        let mut value = start;
        if self.named {
            let colon = skip_space(text, skip_value(text, start));
            value = skip_space(text, colon + 1);
        }
        let end = skip_value(text, value);
        // This guarantees an end, also for invalid text.
        if end <= start {
            return None;
        }
        self.at = end;
        Some(Located {
            value: Span { start: value, end },
            item: Span { start, end },
        })
    }
}

/// Returns the number of members or elements; `None` if the value is no object or array.
pub fn count(text: &[u8], value: Span) -> Option<usize> {
    match text.get(value.start) {
        Some(b'{' | b'[') => Some(Items::of(text, value).count()),
        _ => None,
    }
}

fn skip_space(text: &[u8], from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let space = rest.iter().take_while(|byte| byte.is_ascii_whitespace());
    from + space.count()
}

/// Returns the end of the value that starts at `from`.
fn skip_value(text: &[u8], from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    match rest.first() {
        Some(b'{' | b'[') => from + bracketed(rest),
        Some(b'"') => from + string(rest),
        _ => {
            let part = |byte: &&u8| {
                !matches!(byte, b',' | b'}' | b']' | b':') && !byte.is_ascii_whitespace()
            };
            from + rest.iter().take_while(part).count()
        }
    }
}

/// Returns the length of the string at the start.
fn string(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns the length of the object or array at the start.
fn bracketed(text: &[u8]) -> usize {
    let (mut at, mut open) = (0, 0_usize);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at += string(text.get(at..).unwrap_or_default());
                continue;
            }
            b'{' | b'[' => open += 1,
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
        at += 1;
        if open == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the nesting depth of brackets.
pub(crate) fn depth(text: &[u8]) -> usize {
    let (mut at, mut open, mut most) = (0, 0_usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at += string(text.get(at..).unwrap_or_default());
                continue;
            }
            b'{' | b'[' => {
                open += 1;
                most = most.max(open);
            }
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    most
}

/// Whether the nesting of a document is within the limit for changes of its parts.
pub fn is_within_depth(text: &[u8]) -> bool {
    depth(text) <= DEPTH_MAX
}

/// Returns the span of a path in a document.
///
/// # Errors
/// `SUBDOC_PATH_ENOENT`, `SUBDOC_PATH_MISMATCH`.
pub fn find(text: &[u8], path: &Path<'_>) -> Result<Span, Status> {
    walk(text, &path.components).map(|found| found.value)
}
