//! Content of a file: pages shared between copies.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Bytes of a page of memory.
pub(super) const PAGE: usize = 4096;

/// A page; a missing page counts as zeros.
type Page = [u8; PAGE];

/// The bytes of a file. Cost of a copy: a pointer a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    length: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Content {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the bytes of the existing pages.
    pub(super) fn held_bytes(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }

    /// Returns all bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// Fills `bytes` with the content from `at` on, and with zeros after the end.
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) {
        in_pages(at, bytes.len(), |page, inside, part| {
            let target = &mut bytes[part];
            match self.pages.get(&page) {
                Some(held) => target.copy_from_slice(&held[inside]),
                None => target.fill(0),
            }
        });
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        in_pages(at, bytes.len(), |page, inside, part| {
            let held = self.pages.entry(page);
            let held = held.or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(held)[inside].copy_from_slice(&bytes[part]);
        });
        self.length = self.length.max(at + bytes.len() as u64);
    }

    /// Truncates the content, or adds a hole.
    pub(super) fn set_length(&mut self, length: u64) {
        if length < self.length {
            let (last, inside) = (length / PAGE as u64, length as usize % PAGE);
            let kept = last + u64::from(inside > 0);
            self.pages.split_off(&kept);
            if inside > 0
                && let Some(page) = self.pages.get_mut(&last)
            {
                Arc::make_mut(page)[inside..].fill(0);
            }
        }
        self.length = length;
    }
}

impl Hash for Content {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.length.hash(hasher);
        for (number, page) in &self.pages {
            number.hash(hasher);
            crc32fast::hash(&page[..]).hash(hasher);
        }
    }
}

/// Calls `f` with each page of `length` bytes from `at` on: the number of the page, the range in
/// the page, and the range of the bytes.
fn in_pages(
    at: u64,
    length: usize,
    mut f: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < length {
        let place = at + done as u64;
        let inside = place as usize % PAGE;
        let count = (PAGE - inside).min(length - done);
        f(
            place / PAGE as u64,
            inside..inside + count,
            done..done + count,
        );
        done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_equals_a_vector() {
        let mut random = super::super::random::Random(1);
        let (mut content, mut bytes) = (Content::default(), Vec::<u8>::new());
        for round in 0..2_000_u64 {
            let at = random.next(20_000) as usize;
            if random.one_in(4) {
                bytes.resize(at, 0);
                content.set_length(at as u64);
            } else {
                let part = vec![round as u8 | 1; random.next(9_000) as usize];
                if !part.is_empty() && bytes.len() < at + part.len() {
                    bytes.resize(at + part.len(), 0);
                }
                bytes[at..at + part.len()].copy_from_slice(&part);
                content.write(at as u64, &part);
            }
            assert_eq!(content.bytes(), bytes);
        }
        assert_eq!(Content::of(&bytes).bytes(), bytes);
    }
}
