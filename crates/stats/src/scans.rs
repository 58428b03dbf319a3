//! The group `range-scans`.

use std::fmt::Write as _;

use registry::ServedBucket;

use super::rows::Rows;
use super::scope::StatError;
use super::vbuckets::number;

/// Writes the range scans of one vBucket, or of all.
pub(super) fn collect(
    arguments: &[&str],
    served: &ServedBucket,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let vb = match arguments {
        [] => None,
        [vb] => Some(number(vb)?),
        _ => return Err(StatError::Argument("one vBucket at most")),
    };
    if vb.is_some_and(|vb| served.bucket.with_vbucket(vb, |_| ()).is_none()) {
        return Err(StatError::NoVbucket);
    }
    let mut scans = served.bucket.scan_infos(vb);
    scans.sort_by_key(|scan| scan.ask.vb);
    for scan in scans {
        let mut id = String::with_capacity(32);
        for byte in scan.id.0 {
            let _infallible = write!(id, "{byte:02x}");
        }
        rows.prefix(format_args!("{}:{id}:", scan.ask.vb));
        rows.row("state", scan.stage.name());
        rows.row("name", &scan.ask.name);
        rows.row("collection", format_args!("0x{:x}", scan.ask.collection.0));
        rows.row("type", if scan.ask.keys_only { "key" } else { "value" });
        rows.row("sampling", scan.ask.sampling.is_some());
        rows.row("age_ms", scan.age.as_millis());
        rows.row("items", scan.items);
        rows.row("mem_usage", scan.bytes);
    }
    rows.prefix("");
    Ok(())
}
