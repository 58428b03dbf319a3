//! A producer between its connection and others that look at it.

use std::sync::Arc;

use model::Now;
use parking_lot::{Mutex, MutexGuard};
use registry::dcp::{ProducerFigures, SharedProducer};

use super::producer::{PREFIX, Producer};

/// A producer, as its connection and statistics share it.
pub struct GuardedProducer(Mutex<Producer>);

impl GuardedProducer {
    /// To be shared.
    pub fn new(producer: Producer) -> Self {
        Self(Mutex::new(producer))
    }

    /// The producer, for one thread at a time.
    pub fn lock(&self) -> MutexGuard<'_, Producer> {
        self.0.lock()
    }

    /// The connection is over.
    pub fn leave(self: &Arc<Self>) {
        let mut producer = self.lock();
        producer.close();
        let name = producer.name.strip_prefix(PREFIX).unwrap_or_default();
        let shared = Arc::clone(self) as SharedProducer;
        producer.served.dcp.leave(name, &shared);
    }
}

impl registry::dcp::Producer for GuardedProducer {
    fn close(&self) {
        self.lock().close();
    }

    fn figures(&self, now: Now) -> ProducerFigures {
        self.lock().figures(now)
    }
}
