//! Ordering of the logs' rows by name.

use std::sync::Arc;

use crate::lsm::writer::Core;

/// Makes the order of the logs' rows, if it lacks so many that looks at ranges would read many rows
/// for few. For an unreadable log there is none: a look that needs its rows returns the error.
pub(crate) fn order_logs(core: &Core) {
    let behind: Vec<_> = {
        let current = core.current.read();
        let behind = current.logs().filter_map(|log| {
            let rows = log.order.lacks(&log.index)?;
            let of = (Arc::clone(&log.file), log.index.len());
            Some((log.order.clone(), of, rows))
        });
        behind.collect()
    };
    for (order, (file, len), rows) in behind {
        if let Err(error) = order.make((&*file, len), rows) {
            tracing::warn!(%error, "the rows of a log could not be ordered");
        }
    }
}
