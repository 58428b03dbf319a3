//! Where threads that serve leave events: a bounded queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

use crate::event::Event;
use crate::line::{Line, Origin, User};
use crate::settings::{Settings, UserId};
use crate::stamp::Stamp;

/// Bytes that wait to be written at most; what does not fit is dropped and counted.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// What waits is written at once when it has so many bytes.
const GATHERED_BYTES: usize = 256 << 10;
/// Set beside the events when users matter.
const BY_USER: u64 = 1 << 63;

/// What waits for the writer.
#[derive(Debug)]
pub(crate) enum Item {
    /// Whole lines, and how many.
    Lines(Vec<u8>, u64),
    /// Another configuration holds from here on.
    Settings(Arc<Settings>),
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    closed: bool,
}

/// Takes events without waiting for anything.
#[derive(Debug)]
pub struct Recorder {
    /// A bit for each event that is recorded; none while the audit is off.
    events: AtomicU64,
    settings: RwLock<Arc<Settings>>,
    /// What the node is called.
    host: String,
    queue: Mutex<Queue>,
    filled: Condvar,
    dropped: AtomicU64,
}

impl Recorder {
    /// A recorder of a host, off.
    pub fn new(host: String, settings: Settings) -> Self {
        let off = Settings {
            enabled: false,
            ..settings
        };
        Self {
            events: AtomicU64::new(0),
            settings: RwLock::new(Arc::new(off)),
            host,
            queue: Mutex::default(),
            filled: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    /// What the host is called.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Whether anything is recorded. Cost: one load.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.events.load(Ordering::Relaxed) != 0
    }

    /// Whether an event is recorded, of some users at least. Cost: one load.
    #[inline]
    pub fn wants(&self, event: Event) -> bool {
        self.events.load(Ordering::Relaxed) & event.bit() != 0
    }

    /// Whether an event of a user is recorded.
    pub fn wants_of(&self, event: Event, domain: &str, name: &str) -> bool {
        let events = self.events.load(Ordering::Relaxed);
        if events & event.bit() == 0 {
            return false;
        }
        if events & BY_USER == 0 || !event.descriptor().filterable {
            return true;
        }
        let user = UserId {
            domain: domain.to_owned(),
            user: name.to_owned(),
        };
        !self.settings.read().leaves_out(&user)
    }

    /// The configuration that holds.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// Events that were dropped: the queue was full, or they could not be written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn count_dropped(&self, events: u64) {
        self.dropped.fetch_add(events, Ordering::Relaxed);
    }

    /// Hands whole lines on to be written, or drops them.
    pub fn submit(&self, lines: Vec<u8>, events: u64) {
        if lines.is_empty() {
            return;
        }
        let bytes = lines.len();
        let mut queue = self.queue.lock();
        if queue.bytes + bytes > QUEUE_BYTES_MAX || queue.closed {
            drop(queue);
            return self.count_dropped(events);
        }
        let before = queue.bytes;
        queue.bytes += bytes;
        queue.items.push_back(Item::Lines(lines, events));
        let filled = before < GATHERED_BYTES && queue.bytes >= GATHERED_BYTES;
        drop(queue);
        if before == 0 || filled {
            self.filled.notify_one();
        }
    }

    /// From now on another configuration holds. Events about it are recorded, if it is on, or was.
    pub fn configure(&self, settings: Settings, unix_ns: u64) {
        let settings = Arc::new(settings);
        let mut held = self.settings.write();
        let was_on = self.is_on();
        if was_on && !settings.enabled {
            self.note(Event::AuditStopped, &held, unix_ns);
        }
        self.push(Item::Settings(Arc::clone(&settings)));
        *held = Arc::clone(&settings);
        self.events.store(events_of(&settings), Ordering::Relaxed);
        if settings.enabled {
            self.note(Event::AuditConfigured, &settings, unix_ns);
        }
    }

    /// Nothing is recorded any more, and the writer ends once all is written.
    pub fn close(&self, unix_ns: u64) {
        if self.is_on() {
            self.note(Event::AuditStopped, &self.settings(), unix_ns);
        }
        self.events.store(0, Ordering::Relaxed);
        self.queue.lock().closed = true;
        self.filled.notify_one();
    }

    /// Records an event of the audit itself.
    fn note(&self, event: Event, settings: &Settings, unix_ns: u64) {
        if !settings.records(event) {
            return;
        }
        let own = User {
            domain: "internal",
            name: "settee",
        };
        let mut out = Vec::new();
        let origin = Origin::new((None, None), own, None);
        let line = Line::begin(&mut out, event, (&mut Stamp::default(), unix_ns), &origin);
        let mut line = line.text("hostname", self.host.as_bytes());
        if let (Event::AuditConfigured, Some(fields)) = (event, settings.about().as_object()) {
            for (name, value) in fields {
                line = line.value(name, value);
            }
        }
        line.end();
        self.submit(out, 1);
    }

    fn push(&self, item: Item) {
        self.queue.lock().items.push_back(item);
        self.filled.notify_one();
    }

    /// Waits until there is something to write, or for so long. Where events may be gathered it waits a moment
    /// longer, unless they are many.
    pub fn wait(&self, at_most: Option<Duration>, gather: Duration) {
        let mut queue = self.queue.lock();
        let idle = |queue: &mut Queue| queue.items.is_empty() && !queue.closed;
        match at_most {
            Some(limit) => drop(self.filled.wait_while_for(&mut queue, idle, limit)),
            None => self.filled.wait_while(&mut queue, idle),
        }
        if gather.is_zero() || queue.items.is_empty() {
            return;
        }
        let few = |queue: &mut Queue| queue.bytes < GATHERED_BYTES && !queue.closed;
        let _timed_out = self.filled.wait_while_for(&mut queue, few, gather);
    }

    /// Takes what waits; `None` once it is closed and nothing waits.
    pub(crate) fn take(&self) -> Option<VecDeque<Item>> {
        let mut queue = self.queue.lock();
        if queue.closed && queue.items.is_empty() {
            return None;
        }
        queue.bytes = 0;
        Some(std::mem::take(&mut queue.items))
    }
}

fn events_of(settings: &Settings) -> u64 {
    if !settings.enabled {
        return 0;
    }
    let recorded = Event::all()
        .iter()
        .filter(|one| settings.records(one.event));
    let events = recorded.fold(0, |bits, one| bits | one.event.bit());
    // The bit of the audit's own start: the set of an audit that is on is never empty.
    let users = if settings.looks_at_users() {
        BY_USER
    } else {
        0
    };
    events | Event::AuditConfigured.bit() | users
}
