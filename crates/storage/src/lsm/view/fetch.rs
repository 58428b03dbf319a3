//! Current row of one key, and whether there may be one.

use std::io;

use model::{Document, Seqno, VbId};

use crate::lsm::row::{self, Row};
use crate::lsm::writer::Core;
use crate::port::DocumentRequest;

/// Returns the document of a key.
pub(crate) fn fetch(
    core: &Core,
    vb: VbId,
    want: &DocumentRequest<'_>,
) -> io::Result<Option<Document>> {
    let document = of_tag(core, vb, row::DOCUMENT, want.key)?;
    match (want.seqno, &document) {
        (None, _) => Ok(document),
        (Some(wanted), Some(found)) if found.seqno() == wanted => Ok(document),
        // A prepare has a row of its own.
        (Some(wanted), _) => {
            let prepared = of_tag(core, vb, row::PREPARED, want.key)?;
            Ok(prepared.filter(|found| found.seqno() == wanted))
        }
    }
}

/// Whether a document of a key may exist.
///
/// Cost: no read; a lookup in the index of each log and in a filter of each run. While a commit
/// changes the index the answer is `true`: this must not wait, because it is called under the lock
/// of a vBucket.
pub(crate) fn may_have(core: &Core, vb: VbId, key: &[u8]) -> bool {
    let name = row::name(row::DOCUMENT, key);
    let hash = row::hash(vb, &name);
    let Some(current) = core.current.try_read() else {
        return true;
    };
    let Some(state) = current.states.get(vb) else {
        return false;
    };
    let mut sections = current.version.sections(vb, &state.lineage);
    current.may_have_in_logs(vb, hash)
        || sections.any(|(run, section, _)| run.may_have(section, &name, hash).is_some())
}

fn of_tag(core: &Core, vb: VbId, tag: u8, key: &[u8]) -> io::Result<Option<Document>> {
    let name = row::name(tag, key);
    let hash = row::hash(vb, &name);
    let mut bytes = Vec::new();
    let current = core.current.read();
    let Some(state) = current.states.get(vb) else {
        return Ok(None);
    };
    let lineage = state.lineage.clone();
    let found = current.find_in_logs(vb, (&name, hash), &lineage, &mut bytes)?;
    let values = current.values();
    drop(current);
    let mut gone = Seqno::ZERO;
    if found {
        let row = Row::of(&bytes)?;
        if !row.is_gone() {
            return values.document(row).map(Some);
        }
        // Rows older than the removed one are invalid, too; a run may still have a newer one.
        gone = row.seqno();
    }
    for (run, section, limit) in values.version.sections(vb, &lineage) {
        let Some(row) = run.get(section, (&name, hash), &mut bytes)? else {
            continue;
        };
        if row.seqno() > limit || row.seqno() <= gone {
            continue;
        }
        if !row.is_gone() {
            return values.document(row).map(Some);
        }
        gone = row.seqno();
    }
    Ok(None)
}
