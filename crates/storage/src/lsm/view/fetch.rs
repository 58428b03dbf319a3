//! The row of one key, as it is now.

use std::io;

use model::{Document, Seqno, VbId};

use crate::lsm::row::{self, Row};
use crate::lsm::writer::Core;
use crate::port::Want;

/// The document of a key.
///
/// # Errors
/// Those of reading it.
pub(crate) fn fetch(core: &Core, vb: VbId, want: &Want<'_>) -> io::Result<Option<Document>> {
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

fn of_tag(core: &Core, vb: VbId, tag: u8, key: &[u8]) -> io::Result<Option<Document>> {
    let name = row::name(tag, key);
    let hash = row::hash(vb, &name);
    let mut bytes = Vec::new();
    let current = core.current.read();
    let Some(state) = current.states.get(vb) else {
        return Ok(None);
    };
    let found = current.find_in_logs(vb, (&name, hash), &state.lineage, &mut bytes)?;
    let values = current.values();
    if found {
        drop(current);
        let row = Row::of(&bytes)?;
        if !row.is_gone() {
            return values.document(row).map(Some);
        }
        // What is older than the row that is gone is so, too; a run may still have a newer one.
        return older(&values, vb, core, (&name, hash), row.seqno());
    }
    drop(current);
    older(&values, vb, core, (&name, hash), Seqno::ZERO)
}

/// The newest row in runs above seqno `gone`.
fn older(
    values: &crate::lsm::current::Values,
    vb: VbId,
    core: &Core,
    (name, hash): (&[u8], u64),
    mut gone: Seqno,
) -> io::Result<Option<Document>> {
    let lineage = core
        .current
        .read()
        .states
        .get(vb)
        .map(|state| state.lineage.clone());
    let Some(lineage) = lineage else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    for (run, section, limit) in values.version.sections(vb, &lineage) {
        let Some(row) = run.get(section, (name, hash), &mut bytes)? else {
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
