//! Rows of an answer that are held until all, or enough, have arrived.

use std::thread;

use super::natural;

/// Number of rows from which a second thread speeds up sorting.
const MANY: usize = 100_000;

/// Names and values in one buffer, in order of arrival.
///
/// Cost: 16 bytes per row, in addition to its text.
#[derive(Debug, Default)]
pub(super) struct RowBuffer {
    text: Vec<u8>,
    rows: Vec<Span>,
}

/// Position of a row in the buffer; its value follows its name.
#[derive(Clone, Copy, Debug)]
struct Span {
    at: usize,
    name: u32,
    value: u32,
}

impl RowBuffer {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn push(&mut self, name: &[u8], value: &[u8]) {
        let at = self.text.len();
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        // A frame has at most 4 GiB, and a name or value is a part of it.
        let [name, value] = [name, value].map(|part| u32::try_from(part.len()).unwrap_or(u32::MAX));
        self.rows.push(Span { at, name, value });
    }

    /// Sorts the rows by name in natural order; rows with equal names keep their order.
    ///
    /// Cost: O(n log n), with two threads if there are many.
    pub(super) fn sort(&mut self) {
        let text = &self.text;
        let sort = |rows: &mut [Span]| {
            rows.sort_by(|a, b| natural::compare(a.parts(text).0, b.parts(text).0));
        };
        if self.rows.len() >= MANY {
            let half = self.rows.len() / 2;
            let (first, second) = self.rows.split_at_mut(half);
            thread::scope(|scope| {
                scope.spawn(|| sort(first));
                sort(second);
            });
        }
        // The two sorted halves are merged.
        sort(&mut self.rows);
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.rows.iter().map(|row| row.parts(&self.text))
    }

    /// Length of the longest name.
    pub(super) fn width(&self) -> usize {
        let longest = self.rows.iter().map(|row| row.name).max();
        longest.unwrap_or(0) as usize
    }

    /// Whether there are rows, and none has a name.
    pub(super) fn is_nameless(&self) -> bool {
        !self.rows.is_empty() && self.width() == 0
    }
}

impl Span {
    fn parts<'t>(&self, text: &'t [u8]) -> (&'t [u8], &'t [u8]) {
        let row = &text[self.at..][..self.name as usize + self.value as usize];
        row.split_at(self.name as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_are_sorted_stably() {
        let mut held = RowBuffer::default();
        for row in 0..2 * MANY {
            let name = format!("row {}", (row * 7919) % MANY);
            held.push(name.as_bytes(), row.to_string().as_bytes());
        }
        held.sort();
        let value = |row: (&[u8], &[u8])| String::from_utf8_lossy(row.1).parse::<usize>().unwrap();
        let names: Vec<String> = held
            .rows()
            .map(|row| String::from_utf8_lossy(row.0).into_owned())
            .collect();
        assert!((0..2 * MANY).all(|at| names[at] == format!("row {}", at / 2)));
        let values: Vec<usize> = held.rows().map(value).collect();
        assert!(values.chunks_exact(2).all(|two| two[0] < two[1]));
    }
}
