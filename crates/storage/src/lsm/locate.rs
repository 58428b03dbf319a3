//! Search for the damage of a vBucket.

use std::io;
use std::sync::Arc;

use model::{Seqno, VbId};

use super::flush::value_file_name;
use super::run::Cursor;
use super::view::DiskSnapshot;
use super::writer::Core;
use crate::port::{DamagedRow, Snapshot as _};

/// See `KvStore::locate`.
pub(crate) fn locate(core: &Core, vb: VbId, after: Seqno) -> DamagedRow {
    let mut found = DamagedRow::default();
    let Ok(snapshot) = DiskSnapshot::open(&core.current.read(), vb) else {
        return found;
    };
    let rows = &snapshot.rows;
    for (run, section, _) in rows.sections() {
        let cursor = Cursor::new(Arc::clone(run), *section, &[]);
        let walked = cursor.and_then(|mut cursor| {
            while let Some(row) = cursor.row() {
                if let Some(place) = row.place()
                    && is_damage(&rows.values.document(row).map(drop))
                {
                    let lowest = found.seqno.unwrap_or(row.seqno());
                    found.seqno = Some(lowest.min(row.seqno()));
                    let file = core.files.path_of(&value_file_name(place.file));
                    if !found.files.contains(&file) {
                        found.files.push(file);
                    }
                }
                cursor.advance()?;
            }
            Ok(())
        });
        if is_damage(&walked) {
            found.files.push(core.files.path_of(&run.name()));
        }
    }
    if let Some(Err(_)) = snapshot.by_seqno(after.next()).find(Result::is_err)
        && found.files.is_empty()
    {
        found.files.extend(
            rows.values
                .log_names()
                .map(|name| core.files.path_of(&name)),
        );
    }
    found
}

fn is_damage(result: &io::Result<()>) -> bool {
    let kinds = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];
    matches!(result, Err(error) if kinds.contains(&error.kind()))
}
