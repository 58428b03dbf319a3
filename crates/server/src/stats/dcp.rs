//! The groups of the change streams: `dcp`, `dcpagg`, `dcp-vbtakeover`.

use std::collections::BTreeMap;

use model::VbId;

use super::StatError;
use super::catalogue::{CONSUMERS, PREFIX_SUMS, PRODUCERS, STREAMS, TOTALS};
use super::rows::Rows;
use super::vbuckets::number;
use crate::served::ServedBucket;
use crate::session::dcp::ProducerFigures;

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
}

/// All producers; what their streams have still to send is asked of one vBucket at a time.
fn producers(served: &ServedBucket) -> Vec<ProducerFigures> {
    let mut found = Vec::new();
    for producer in served.dcp.all() {
        let mut figures = producer.lock().figures();
        for stream in &mut figures.streams {
            let read = stream.stream.read.0;
            let high = served
                .bucket
                .with_vbucket(stream.key.vb, |vb| vb.high_seqno().0);
            let wanted = high.unwrap_or(0).min(stream.stream.end.0);
            stream.items_remaining = wanted.saturating_sub(read);
        }
        found.push(figures);
    }
    found
}

/// One of the groups.
pub(super) fn collect(
    group: &str,
    arguments: &[&str],
    served: &ServedBucket,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    match (group, arguments) {
        // The reference takes a JSON text that narrows the rows; here everything is shown.
        ("dcp", _) => {
            all(served, rows);
            Ok(())
        }
        ("dcpagg", []) => {
            by_prefix(":", served, rows);
            Ok(())
        }
        ("dcpagg", [separator]) => {
            by_prefix(separator, served, rows);
            Ok(())
        }
        ("dcp-vbtakeover", [vb, name]) => takeover(number(vb)?, name, served, rows),
        _ => Err(StatError::Argument("wrong number of arguments")),
    }
}

fn all(served: &ServedBucket, rows: &mut Rows<'_, '_>) {
    let mut totals = DcpTotals {
        running_backfills: served.bucket.running_backfills(),
        ..DcpTotals::default()
    };
    for producer in producers(served) {
        totals.add(&producer);
        rows.prefix(format_args!("{}:", producer.name));
        for row in PRODUCERS {
            rows.value(row.about.name, &(row.value)(&producer));
        }
        for stream in &producer.streams {
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
    }
    for (name, consumer) in served.dcp.consumers() {
        totals.consumers += 1;
        rows.prefix(format_args!("eq_dcpq:{name}:"));
        for row in CONSUMERS {
            rows.value(row.about.name, &(row.value)(&consumer));
        }
    }
    rows.prefix("");
    for row in TOTALS {
        rows.value(row.about.name, &(row.value)(&totals));
    }
}

fn by_prefix(separator: &str, served: &ServedBucket, rows: &mut Rows<'_, '_>) {
    let mut sums: BTreeMap<String, DcpTotals> = BTreeMap::new();
    let mut total = DcpTotals::default();
    for producer in producers(served) {
        total.add(&producer);
        let name = producer.name.strip_prefix("eq_dcpq:").unwrap_or_default();
        if let Some((prefix, _)) = name.split_once(separator) {
            sums.entry(prefix.to_owned()).or_default().add(&producer);
        }
    }
    sums.insert(format!("{separator}total"), total);
    for (name, sums) in &sums {
        rows.prefix(format_args!("{name}:"));
        for row in PREFIX_SUMS {
            rows.value(row.about.name, &(row.value)(sums));
        }
    }
    rows.prefix("");
}

/// What is left to be sent before a vBucket can be handed over.
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
