//! The summary: collections of all vBuckets, each as of a seqno, as one text. With it a restart
//! need not read the events. Drawn in `docs/format/events.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{CollectionId, ManifestUid, Reader, ScopeId, Seqno, VbId};

use crate::VbCollections;
use crate::seqnos::StepSeqnos;
use crate::table::{CollectionTable, Open};

const VERSION: u8 = 1;

/// Flags of a table.
const DEFAULT_OPEN: u8 = 1;
const DEFAULT_HISTORY: u8 = 2;
const ANY_HISTORY: u8 = 4;

/// Position of a vBucket to which its part of a summary belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryPoint {
    /// The vBucket.
    pub vb: VbId,
    /// Epoch of the vBucket in the store.
    pub epoch: u64,
    /// Seqno up to which all events are included; none above it is.
    pub seqno: Seqno,
    /// Number of end events that can be purged.
    pub purgeable_ends: u32,
}

/// Writer of a summary.
#[derive(Debug, Default)]
pub struct SummaryWriter {
    tables: Vec<(ManifestUid, Arc<CollectionTable>)>,
    vbs: Vec<u8>,
    count: u32,
}

impl SummaryWriter {
    /// Whether there is no vBucket in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the collections of a vBucket.
    ///
    /// Cost: O(1), if an earlier vBucket has the same table.
    pub fn add(&mut self, at: SummaryPoint, collections: &VbCollections) {
        let (uid, table, seqnos) = collections.for_summary();
        let known = self.tables.iter().position(|(known, there)| {
            *known == uid && (Arc::ptr_eq(there, table) || there == table)
        });
        let number = known.unwrap_or_else(|| {
            self.tables.push((uid, Arc::clone(table)));
            self.tables.len() - 1
        });
        let out = &mut self.vbs;
        out.extend(at.vb.0.to_be_bytes());
        out.extend(at.epoch.to_be_bytes());
        out.extend(at.seqno.0.to_be_bytes());
        put(out, [at.purgeable_ends, number as u32]);
        seqnos.encode(out);
        self.count += 1;
    }

    /// Returns the text, with the ids of dropped collections and scopes.
    pub fn finish(
        self,
        collections: impl ExactSizeIterator<Item = CollectionId>,
        scopes: impl ExactSizeIterator<Item = ScopeId>,
    ) -> Vec<u8> {
        let mut out = vec![VERSION];
        put(&mut out, [collections.len() as u32]);
        put(&mut out, collections.map(|id| id.0));
        put(&mut out, [scopes.len() as u32]);
        put(&mut out, scopes.map(|id| id.0));
        put(&mut out, [self.tables.len() as u32]);
        for (uid, table) in &self.tables {
            out.extend(uid.0.to_be_bytes());
            put_table(&mut out, table);
        }
        put(&mut out, [self.count]);
        out.extend(self.vbs);
        out
    }
}

/// A summary that was read.
#[derive(Debug, Default)]
pub struct EventsSummary {
    /// Ids of dropped collections.
    pub dropped: Vec<CollectionId>,
    /// Ids of dropped scopes.
    pub dropped_scopes: Vec<ScopeId>,
    /// Number of different tables.
    pub tables: usize,
    vbs: BTreeMap<VbId, VbSummary>,
}

/// A vBucket's part of a summary.
#[derive(Debug)]
pub struct VbSummary {
    /// Its position.
    pub at: SummaryPoint,
    /// Number of its table. vBuckets with the same one have the same collections.
    pub table: usize,
    /// Its collections, without statistics.
    pub collections: VbCollections,
}

impl EventsSummary {
    /// Parses a text; `None` if it has another version or makes no sense.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (VERSION, rest) = text.split_first().map(|(version, rest)| (*version, rest))? else {
            return None;
        };
        let input = &mut Reader::new(rest);
        let dropped = input.list(|input| input.u32().map(CollectionId))?;
        let dropped_scopes = input.list(|input| input.u32().map(ScopeId))?;
        let tables = input.list(|input| {
            let uid = ManifestUid(input.u64()?);
            Some((uid, Arc::new(table(input)?)))
        })?;
        let vbs = input.list(|input| vb_summary(input, &tables))?;
        input.rest.is_empty().then(|| Self {
            dropped,
            dropped_scopes,
            tables: tables.len(),
            vbs: vbs.into_iter().map(|one| (one.at.vb, one)).collect(),
        })
    }

    /// Returns a vBucket's part.
    pub fn of(&self, vb: VbId) -> Option<&VbSummary> {
        self.vbs.get(&vb)
    }
}

fn put(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    out.extend(numbers.into_iter().flat_map(u32::to_be_bytes));
}

fn put_table(out: &mut Vec<u8>, table: &CollectionTable) {
    let flag = |set, flag| if set { flag } else { 0 };
    out.push(
        flag(table.default_open, DEFAULT_OPEN)
            | flag(table.default_history, DEFAULT_HISTORY)
            | flag(table.any_history, ANY_HISTORY),
    );
    put(out, [table.default_ttl, table.default_modified]);
    put(out, [table.steps, table.open.len() as u32]);
    for open in &table.open {
        let history = u32::from(open.history);
        put(out, [open.id, open.scope, open.ttl]);
        put(out, [open.begun, open.modified, history]);
    }
    put(out, [table.scopes.len() as u32]);
    put(out, table.scopes.iter().flat_map(|(id, step)| [*id, *step]));
}

fn table(input: &mut Reader<'_>) -> Option<CollectionTable> {
    let flags = input.u8()?;
    Some(CollectionTable {
        default_open: flags & DEFAULT_OPEN != 0,
        default_history: flags & DEFAULT_HISTORY != 0,
        any_history: flags & ANY_HISTORY != 0,
        default_ttl: input.u32()?,
        default_modified: input.u32()?,
        steps: input.u32()?,
        open: input.list(|input| {
            Some(Open {
                id: input.u32()?,
                scope: input.u32()?,
                ttl: input.u32()?,
                begun: input.u32()?,
                modified: input.u32()?,
                history: input.u32()? != 0,
            })
        })?,
        scopes: input.list(|input| Some((input.u32()?, input.u32()?)))?,
    })
}

fn vb_summary(
    input: &mut Reader<'_>,
    tables: &[(ManifestUid, Arc<CollectionTable>)],
) -> Option<VbSummary> {
    let at = SummaryPoint {
        vb: VbId(input.u16()?),
        epoch: input.u64()?,
        seqno: Seqno(input.u64()?),
        purgeable_ends: input.u32()?,
    };
    let number = input.u32()? as usize;
    let (uid, table) = tables.get(number)?;
    let seqnos = StepSeqnos::decode(input)?;
    Some(VbSummary {
        at,
        table: number,
        collections: VbCollections::of_summary(*uid, table, seqnos),
    })
}
