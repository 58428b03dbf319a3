//! Has the logs know the order of their rows.

use std::sync::Arc;

use crate::lsm::writer::Core;

/// Finds the order of what the logs have, as far as it lacks so much that looks at ranges would read many rows for few. A log that
/// cannot be read has none: a look that needs its rows meets the error.
pub(crate) fn order_logs(core: &Core) {
    let behind: Vec<_> = {
        let current = core.current.read();
        let sealed = current.sealed.as_deref();
        let logs = [sealed, Some(&current.active)].into_iter().flatten();
        let behind = logs.filter_map(|log| {
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
