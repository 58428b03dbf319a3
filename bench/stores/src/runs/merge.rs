//! Rows of several runs in one order; of a key the youngest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::run::{Run, Walk};
use super::{Row, RowKey};
use crate::peer::Failure;

pub(super) struct Merge<'a> {
    walks: Vec<Walk<'a>>,
    rows: Vec<Option<Row>>,
    /// Key and number of a run: the youngest run has the lowest.
    next: BinaryHeap<Reverse<(RowKey, usize)>>,
    last: Option<RowKey>,
}

impl<'a> Merge<'a> {
    /// The youngest run comes first.
    pub(super) fn of(runs: &'a [Run]) -> Result<Self, Failure> {
        let walks = runs.iter().map(|run| run.from(&[0; 18]));
        let mut merge = Self {
            walks: walks.collect::<Result<_, _>>()?,
            rows: runs.iter().map(|_| None).collect(),
            next: BinaryHeap::new(),
            last: None,
        };
        for number in 0..runs.len() {
            merge.refill(number)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, number: usize) -> Result<(), Failure> {
        if let Some(row) = self.walks[number].next() {
            let (key, row) = row?;
            self.rows[number] = Some(row);
            self.next.push(Reverse((key, number)));
        }
        Ok(())
    }
}

impl Iterator for Merge<'_> {
    /// Key, row, and whether a younger row of that key came before.
    type Item = Result<(RowKey, Row, bool), Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((key, number)) = self.next.pop()?;
        let row = self.rows[number].take()?;
        if let Err(error) = self.refill(number) {
            return Some(Err(error));
        }
        let superseded = self.last == Some(key);
        self.last = Some(key);
        Some(Ok((key, row, superseded)))
    }
}
