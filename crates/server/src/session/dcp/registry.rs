//! The producers of a bucket by name: one connection per name.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::SharedProducer;
use crate::connections::ConnectionInfo;

struct Registered {
    producer: SharedProducer,
    connection: Arc<ConnectionInfo>,
}

/// All producers of one bucket.
#[derive(Default)]
pub(crate) struct DcpRegistry {
    producers: Mutex<BTreeMap<String, Registered>>,
}

impl DcpRegistry {
    /// Enters a producer. An older connection of the same name is closed, its streams at once.
    pub(crate) fn enter(
        &self,
        name: &str,
        producer: &SharedProducer,
        connection: &Arc<ConnectionInfo>,
    ) {
        let registered = Registered {
            producer: Arc::clone(producer),
            connection: Arc::clone(connection),
        };
        let old = self.producers.lock().insert(name.to_owned(), registered);
        if let Some(old) = old {
            // Before the new one has a stream: cursors are known by name.
            old.producer.lock().close();
            old.connection.mailbox.shut_down();
        }
    }

    /// Strikes a producer off, unless another one took its name.
    pub(crate) fn leave(&self, name: &str, producer: &SharedProducer) {
        let mut producers = self.producers.lock();
        let same = producers
            .get(name)
            .is_some_and(|known| Arc::ptr_eq(&known.producer, producer));
        if same {
            producers.remove(name);
        }
    }

    /// All of them, sorted by name.
    pub(crate) fn all(&self) -> Vec<SharedProducer> {
        let producers = self.producers.lock();
        producers
            .values()
            .map(|known| Arc::clone(&known.producer))
            .collect()
    }
}
