//! The groups of change streams: `dcp`, `dcpagg`, `dcp-vbtakeover`.

use std::collections::BTreeMap;

use model::VbId;
use registry::ServedBucket;
use registry::dcp::{ProducerFigures, SharedProducer};

use super::catalogue::{CONSUMERS, PREFIX_SUMS, PRODUCERS, STREAMS, TOTALS};
use super::rows::{PART_BYTES, Rows};
use super::scope::StatError;
use super::vbuckets::number;

/// Sums over connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DcpTotals {
    pub(super) count: u64,
    pub(super) consumers: u64,
    pub(super) bytes: u64,
    pub(super) items_sent: u64,
    pub(super) items_remaining: u64,
    pub(super) running_backfills: usize,
}

impl DcpTotals {
    fn add(&mut self, producer: &ProducerFigures) {
        self.count += 1;
        self.bytes += producer.totals.bytes;
        self.items_sent += producer.totals.items;
        self.items_remaining += producer.items_remaining();
    }

    /// Subtracts some connections that are part of the sums.
    pub(super) fn subtract(&mut self, part: &Self) {
        self.count -= part.count;
        self.bytes -= part.bytes;
        self.items_sent -= part.items_sent;
        self.items_remaining -= part.items_remaining;
    }
}

/// Returns the figures of all producers.
fn producers(served: &ServedBucket) -> Vec<ProducerFigures> {
    let all = served.dcp.all();
    all.iter()
        .map(|producer| figures(producer, served))
        .collect()
}

/// Returns the figures of a producer. Locks one vBucket at a time to count the changes still to send.
fn figures(producer: &SharedProducer, served: &ServedBucket) -> ProducerFigures {
    let mut figures = producer.figures(served.bucket.clock().now());
    for stream in &mut figures.streams {
        let read = stream.stream.read.0;
        let high = served
            .bucket
            .with_vbucket(stream.key.vb, |vb| vb.high_seqno().0);
        let wanted = high.unwrap_or(0).min(stream.stream.end.0);
        stream.items_remaining = wanted.saturating_sub(read);
    }
    figures
}

/// Writes one of the short groups.
pub(super) fn collect(
    group: &str,
    arguments: &[&str],
    served: &ServedBucket,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    match (group, arguments) {
        ("dcpagg", []) => by_prefix(":", served, rows),
        ("dcpagg", [separator]) => by_prefix(separator, served, rows),
        ("dcp-vbtakeover", [vb, name]) => return takeover(number(vb)?, name, served, rows),
        _ => return Err(StatError::Argument("wrong number of arguments")),
    }
    Ok(())
}

/// Position in the group `dcp`. The reference takes a JSON filter as argument; this node shows all rows.
pub struct DcpWalk {
    /// Producers that are still to be written.
    left: std::vec::IntoIter<SharedProducer>,
    /// The producer that is being written, and the number of its streams written.
    current: Option<(ProducerFigures, usize)>,
    totals: DcpTotals,
}

impl DcpWalk {
    /// Starts at the beginning.
    pub(super) fn new(served: &ServedBucket) -> Self {
        Self {
            left: served.dcp.all().into_iter(),
            current: None,
            totals: DcpTotals {
                running_backfills: served.bucket.running_backfills(),
                ..DcpTotals::default()
            },
        }
    }

    /// Writes the next part; returns the next position.
    pub(super) fn part(mut self, served: &ServedBucket, rows: &mut Rows<'_, '_>) -> Option<Self> {
        if let Some((producer, done)) = self.current.take() {
            let done = streams(&producer, done, rows);
            if done < producer.streams.len() {
                self.current = Some((producer, done));
            }
            return Some(self);
        }
        let Some(producer) = self.left.next() else {
            self.end(served, rows);
            return None;
        };
        let producer = figures(&producer, served);
        self.totals.add(&producer);
        rows.prefix(format_args!("{}:", producer.name));
        for row in PRODUCERS {
            rows.value(row.about.name, &(row.value)(&producer));
        }
        self.current = Some((producer, 0));
        Some(self)
    }

    fn end(mut self, served: &ServedBucket, rows: &mut Rows<'_, '_>) {
        for (name, consumer) in served.dcp.consumers() {
            self.totals.consumers += 1;
            rows.prefix(format_args!("eq_dcpq:{name}:"));
            for row in CONSUMERS {
                rows.value(row.about.name, &(row.value)(&consumer));
            }
        }
        rows.prefix("");
        for row in TOTALS {
            rows.value(row.about.name, &(row.value)(&self.totals));
        }
    }
}

/// Writes the rows of further streams; returns the number of streams written in all.
fn streams(producer: &ProducerFigures, mut done: usize, rows: &mut Rows<'_, '_>) -> usize {
    let full = rows.bytes() + PART_BYTES;
    for stream in producer.streams.iter().skip(done) {
        if rows.bytes() >= full {
            break;
        }
        done += 1;
        let (vb, id) = (stream.key.vb.0, stream.key.id);
        if id == 0 {
            rows.prefix(format_args!("{}:stream_{vb}_", producer.name));
        } else {
            rows.prefix(format_args!("{}:stream_{vb}_{id}_", producer.name));
        }
        for row in STREAMS {
            rows.value(row.about.name, &(row.value)(stream));
        }
    }
    done
}

/// Sums over connections by the text of their names before the separator, and over all.
pub(super) fn sums_by_prefix(
    separator: &str,
    served: &ServedBucket,
) -> (BTreeMap<String, DcpTotals>, DcpTotals) {
    let mut sums: BTreeMap<String, DcpTotals> = BTreeMap::new();
    let mut total = DcpTotals::default();
    for producer in producers(served) {
        total.add(&producer);
        let name = producer.name.strip_prefix("eq_dcpq:").unwrap_or_default();
        if let Some((prefix, _)) = name.split_once(separator) {
            sums.entry(prefix.to_owned()).or_default().add(&producer);
        }
    }
    (sums, total)
}

fn by_prefix(separator: &str, served: &ServedBucket, rows: &mut Rows<'_, '_>) {
    let (mut sums, total) = sums_by_prefix(separator, served);
    sums.insert(format!("{separator}total"), total);
    for (name, sums) in &sums {
        rows.prefix(format_args!("{name}:"));
        for row in PREFIX_SUMS {
            rows.value(row.about.name, &(row.value)(sums));
        }
    }
    rows.prefix("");
}

/// Writes the number of changes that must be sent before a vBucket can be handed over.
fn takeover(
    vb: VbId,
    name: &str,
    served: &ServedBucket,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let known = served.bucket.with_vbucket(vb, |vb| vb.high_seqno().0);
    let high = known.ok_or(StatError::NoVbucket)?;
    let full_name = format!("eq_dcpq:{name}");
    let producers = producers(served);
    let stream = producers
        .iter()
        .filter(|producer| producer.name == full_name || producer.name == name)
        .flat_map(|producer| &producer.streams)
        .find(|stream| stream.key.vb == vb);
    let (status, estimate) = match stream {
        Some(stream) => (stream.stream.state, stream.items_remaining),
        None => ("does_not_exist", high),
    };
    rows.row("status", status);
    rows.row("estimate", estimate);
    rows.row("vb_items", high);
    Ok(())
}
