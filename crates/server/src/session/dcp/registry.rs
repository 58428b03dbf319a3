//! The producers and consumers of a bucket by name: one connection per name.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::SharedProducer;
use super::settings::DcpSettings;
use crate::connections::ConnectionInfo;
use crate::replication::Progress;

struct Registered {
    producer: SharedProducer,
    /// None for those behind which no KV connection stands.
    connection: Option<Arc<ConnectionInfo>>,
}

impl Registered {
    /// Another one takes its name.
    fn end(&self) {
        // Before the new one has a stream: cursors are known by name.
        self.producer.lock().close();
        if let Some(connection) = &self.connection {
            connection.mailbox.shut_down();
        }
    }
}

/// A consumer as statistics see it.
#[derive(Clone)]
pub(crate) struct RegisteredConsumer {
    pub(crate) connection: Arc<ConnectionInfo>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) created_s: u32,
}

/// All producers and consumers of one bucket.
#[derive(Default)]
pub(crate) struct DcpRegistry {
    producers: Mutex<BTreeMap<String, Registered>>,
    consumers: Mutex<BTreeMap<String, RegisteredConsumer>>,
    /// What can be changed while the node runs.
    pub(crate) settings: DcpSettings,
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
            connection: Some(Arc::clone(connection)),
        };
        self.end_consumer(name);
        let old = self.producers.lock().insert(name.to_owned(), registered);
        if let Some(old) = old {
            old.end();
        }
    }

    /// Enters a producer of this process, under a name that nobody else of it has.
    pub(crate) fn enter_feed(&self, name: &str, producer: &SharedProducer) {
        let registered = Registered {
            producer: Arc::clone(producer),
            connection: None,
        };
        let old = self.producers.lock().insert(name.to_owned(), registered);
        if let Some(old) = old {
            old.end();
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

    /// Enters a consumer. An older connection of the same name is closed; gives the number of one
    /// that was a consumer, too.
    pub(crate) fn enter_consumer(&self, name: &str, consumer: RegisteredConsumer) -> Option<u64> {
        let old = self.producers.lock().remove(name);
        if let Some(old) = old {
            old.end();
        }
        let old = self.consumers.lock().insert(name.to_owned(), consumer)?;
        old.connection.mailbox.shut_down();
        Some(old.connection.id)
    }

    fn end_consumer(&self, name: &str) {
        let old = self.consumers.lock().remove(name);
        if let Some(old) = old {
            old.connection.mailbox.shut_down();
        }
    }

    /// Strikes a consumer off, unless another one took its name.
    pub(crate) fn leave_consumer(&self, name: &str, connection: u64) {
        let mut consumers = self.consumers.lock();
        let same = consumers
            .get(name)
            .is_some_and(|known| known.connection.id == connection);
        if same {
            consumers.remove(name);
        }
    }

    /// How many consumers there are.
    pub(crate) fn consumer_count(&self) -> usize {
        self.consumers.lock().len()
    }

    /// All consumers, sorted by name.
    pub(crate) fn consumers(&self) -> Vec<(String, RegisteredConsumer)> {
        let consumers = self.consumers.lock();
        let named = consumers.iter();
        named
            .map(|(name, known)| (name.clone(), known.clone()))
            .collect()
    }

    /// All producers, sorted by name.
    pub(crate) fn all(&self) -> Vec<SharedProducer> {
        let producers = self.producers.lock();
        producers
            .values()
            .map(|known| Arc::clone(&known.producer))
            .collect()
    }
}
