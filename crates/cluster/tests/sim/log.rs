//! Writes in the order of their seqnos, and the failover log.

use cluster::Position;

/// A write: its number in the run, whether a client waits for a majority, and whether for its disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) number: u64,
    pub(crate) durable: bool,
    pub(crate) to_disk: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) writes: Vec<Write>,
    /// Term and seqno of each failover entry.
    pub(crate) entries: Vec<(u64, u64)>,
}

impl Log {
    pub(crate) fn high(&self) -> u64 {
        self.writes.len() as u64
    }

    pub(crate) fn position(&self) -> Position {
        let prepared = self.writes.iter().rposition(|write| write.durable);
        Position {
            branch: self.entries.last().map_or(0, |(term, _)| *term),
            prepared: prepared.map_or(0, |at| at as u64 + 1),
            seqno: self.high(),
        }
    }

    pub(crate) fn failover_seqno(&self, term: u64) -> u64 {
        let entry = self.entries.iter().find(|(of, _)| *of == term);
        entry.map_or(0, |(_, seqno)| *seqno)
    }

    pub(crate) fn truncate(&mut self, high: u64) {
        self.writes.truncate(high as usize);
        let high = self.high();
        self.entries.retain(|(_, seqno)| *seqno <= high);
    }

    /// Removes what `of` does not have, and takes its failover log as far as this log reaches.
    pub(crate) fn roll_back_to(&mut self, of: &Log) {
        let pairs = self.writes.iter().zip(&of.writes);
        let common = pairs.take_while(|(ours, theirs)| ours == theirs).count() as u64;
        self.truncate(common);
        self.entries.clone_from(&of.entries);
        self.truncate(common);
    }

    /// Takes the next `count` changes of `of`, of which this is a prefix.
    pub(crate) fn follow(&mut self, of: &Log, count: usize) {
        let from = self.writes.len().min(of.writes.len());
        let to = (from + count).min(of.writes.len());
        self.writes.extend_from_slice(&of.writes[from..to]);
        self.entries.clone_from(&of.entries);
        let high = self.high();
        self.entries.retain(|(_, seqno)| *seqno <= high);
    }
}
