//! Admission control: a table with the decision of each purpose at each limit of memory.
//!
//! [`Accounts::reserve`] checks the limits of a purpose in their order. At an exceeded limit the
//! requester waits, up to the patience of that cell. After that the request is granted all the same
//! or refused, as the cell states.

use std::fmt;
use std::time::Duration;

use engine::OpError;

use crate::buffers::Buffers;
use crate::memory::{Memory, Usage};

/// Purpose for which memory is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client's write; the bytes are its additional memory.
    Write,
    /// A client's write of at least [`LARGE_WRITE_BYTES`], for which documents can leave memory.
    LargeWrite,
    /// A client's deletion: it frees memory, but queues a change.
    Removal,
    /// A deletion by the expirer or the compactor. Their next pass finds the remaining documents.
    Expiry,
    /// A value that a client or a stream needs from the store.
    Fetch,
    /// A fetch in progress. Requests without memory are woken and wait by themselves.
    Restore,
    /// A change from the active node: without memory the consumer acknowledges nothing.
    Replication,
    /// The rest of a large request, which can be refused unread; the bytes are its memory including the document.
    Request {
        /// Whether no older large request waits.
        first: bool,
    },
    /// The rest of a large frame that cannot be refused unread: of a change stream, or behind owed answers.
    Frame {
        /// Whether no older large request waits.
        first: bool,
    },
    /// A response that may hold more than [`SMALL_BYTES`](crate::SMALL_BYTES) of a document.
    LargeAnswer,
    /// Any response.
    Answer,
    /// Messages of change streams.
    Stream,
    /// A piece of the body of an HTTP request. The body's own timeout ends the wait.
    Body,
    /// Text or a large value for an HTTP reader of changes.
    Reader,
}

impl Purpose {
    /// Whether an older large request waits.
    fn is_behind(self) -> bool {
        matches!(
            self,
            Self::Request { first: false } | Self::Frame { first: false }
        )
    }

    /// The interval at which a waiting request asks again; zero for workers, which have their own schedule.
    const fn retry(self) -> Duration {
        Duration::from_millis(match self {
            Self::Write | Self::Removal | Self::Fetch => 1,
            // The reliever takes a few milliseconds to free memory, and a peer as long to read a large answer.
            Self::LargeWrite | Self::Request { .. } | Self::Frame { .. } | Self::LargeAnswer => 5,
            Self::Answer | Self::Stream | Self::Body | Self::Reader => 50,
            Self::Expiry | Self::Restore | Self::Replication => 0,
        })
    }
}

/// A limit of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The quota, while documents can leave memory. A shortage also names it when the quota is used up.
    Quota,
    /// The share of the quota for writes.
    Mutation,
    /// The same without the excess of the process, for large writes: most of the excess is memory that the allocator
    /// keeps of large documents, and the next ones use it.
    LargeMutation,
    /// The share of the quota for writes, applied to a single write: it would not fit into an empty bucket.
    OneMutation,
    /// The share of the quota up to which values are read from the store.
    Backfill,
    /// The share of the quota for checkpoints.
    Checkpoints,
    /// The limits of a write, if eviction can free as much.
    Space,
    /// The order of large requests.
    Queue,
    /// The limit of the buffers of all connections; or of this bucket's connections, if it is at its quota.
    Congestion,
    /// Twice the limit of the buffers.
    Overflow,
    /// The share of the buffers for bodies of HTTP requests.
    Bodies,
    /// The share of the quota for HTTP readers of changes.
    Readers,
}

impl Limit {
    /// Returns the error that the client receives.
    fn error(self) -> OpError {
        match self {
            Self::Quota | Self::OneMutation => OpError::OutOfMemory,
            _ => OpError::TemporaryFailure,
        }
    }

    /// Whether the reliever can help.
    pub(crate) fn is_of_bucket(self) -> bool {
        !matches!(
            self,
            Self::Queue | Self::Congestion | Self::Overflow | Self::Bodies | Self::Readers
        )
    }
}

/// Maximum wait of a request at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// No wait.
    None,
    /// [`MemoryWaits::write`] or [`MemoryWaits::write_storing`].
    Write,
    /// [`MemoryWaits::relief`].
    Relief,
    /// [`MemoryWaits::large`].
    Large,
    /// [`MemoryWaits::congestion`].
    Congestion,
    /// Until there is memory.
    Unbounded,
}

/// Bytes of a large write. It waits as long as a large request: few clients make such writes, and one of them may
/// need several documents to leave memory.
pub(crate) const LARGE_WRITE_BYTES: usize = 256 << 10;

/// Time after a refused write within which the connection's next ones do not wait.
const WRITE_PAUSE: Duration = Duration::from_millis(50);
/// `WRITE_PAUSE` while the store commits changes: only for writes that were received behind the refused one.
const WRITE_PAUSE_STORING: Duration = Duration::from_micros(10);

/// Decision after the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterWait {
    Grant,
    Refuse,
}

/// A cell of the table: the limit, the maximum wait, and the decision after it.
#[derive(Clone, Copy, Debug)]
struct Cell(Limit, Patience, AfterWait);

/// Returns the cells of a purpose, in the order in which they are checked.
const fn cells(purpose: Purpose) -> &'static [Cell] {
    use AfterWait::{Grant, Refuse};
    use Limit::{Backfill, Bodies, Checkpoints, Congestion, LargeMutation, Mutation};
    use Limit::{OneMutation, Overflow, Queue, Quota, Readers, Space};
    use Patience::{Large, None, Relief, Unbounded, Write};
    match purpose {
        Purpose::Write => &[
            Cell(Checkpoints, Write, Refuse),
            Cell(OneMutation, None, Refuse),
            Cell(Mutation, Write, Refuse),
        ],
        Purpose::LargeWrite => &[
            Cell(Checkpoints, Large, Refuse),
            Cell(OneMutation, None, Refuse),
            Cell(LargeMutation, Large, Refuse),
        ],
        Purpose::Removal => &[Cell(Checkpoints, Write, Refuse)],
        Purpose::Expiry => &[Cell(Checkpoints, Unbounded, Refuse)],
        Purpose::Fetch => &[Cell(Backfill, Large, Refuse), Cell(Quota, Relief, Grant)],
        Purpose::Restore => &[Cell(Backfill, Unbounded, Refuse)],
        Purpose::Replication => &[
            Cell(Checkpoints, Unbounded, Refuse),
            Cell(Mutation, Unbounded, Refuse),
        ],
        Purpose::Request { .. } => &[
            Cell(Congestion, Patience::Congestion, Refuse),
            Cell(Queue, Large, Refuse),
            Cell(Space, Large, Refuse),
        ],
        Purpose::Frame { .. } => &[
            Cell(Congestion, Unbounded, Refuse),
            Cell(Queue, Large, Grant),
            Cell(Space, Large, Grant),
        ],
        Purpose::LargeAnswer => &[Cell(Congestion, Patience::Congestion, Refuse)],
        Purpose::Answer => &[Cell(Overflow, Unbounded, Refuse)],
        Purpose::Stream => &[Cell(Congestion, Unbounded, Refuse)],
        Purpose::Body => &[
            Cell(Congestion, Unbounded, Refuse),
            Cell(Bodies, Unbounded, Refuse),
        ],
        Purpose::Reader => &[Cell(Readers, Unbounded, Refuse)],
    }
}

/// The answer to a request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// The memory is available.
    Granted,
    /// The memory is not available yet.
    Wait {
        /// Interval until the next attempt.
        retry: Duration,
        /// The exceeded limit.
        limit: Limit,
    },
    /// The memory is not available, and the request has waited long enough.
    Refused {
        /// The exceeded limit.
        shortage: Shortage,
        /// Period in which further requests of the requester should be refused without a wait.
        pause: Duration,
    },
}

impl Reservation {
    /// Whether the memory was granted.
    pub fn is_granted(&self) -> bool {
        *self == Self::Granted
    }
}

/// An exceeded limit. `Display` is one line for the error context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Purpose of the request.
    pub purpose: Purpose,
    /// The limit.
    pub limit: Limit,
    /// Usage of the limit; for [`Limit::OneMutation`], the bytes of the write.
    pub usage: Usage,
}

impl Shortage {
    /// Returns the error that the client receives: `TemporaryFailure` or `OutOfMemory`.
    pub fn error(&self) -> OpError {
        self.limit.error()
    }
}

impl From<Shortage> for OpError {
    fn from(shortage: Shortage) -> Self {
        shortage.error()
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, setting) = match self.limit {
            Limit::Quota => ("the memory quota is used up", "ep_max_size"),
            Limit::Mutation | Limit::LargeMutation | Limit::Space => (
                "memory is above the limit for writes",
                "ep_mutation_mem_ratio",
            ),
            Limit::OneMutation => (
                "the write takes more than the limit for all of them",
                "ep_mutation_mem_ratio",
            ),
            Limit::Backfill => (
                "memory is above the limit for reading from the store",
                "ep_backfill_mem_threshold",
            ),
            Limit::Checkpoints => (
                "checkpoints are above their share of memory",
                "ep_checkpoint_memory_ratio",
            ),
            Limit::Queue => {
                return f.write_str("others have waited longer for room for large requests");
            }
            _ if matches!(self.purpose, Purpose::Request { .. }) => {
                return f.write_str("connections hold too much for a request of this size");
            }
            _ => return f.write_str("connections hold too many answers that are not read"),
        };
        let Usage { used, allowed } = self.usage;
        write!(f, "{what}: {used} of {allowed} bytes ({setting})")
    }
}

/// The accounts to which the limits apply.
pub(crate) struct Accounts<'a> {
    /// The node's account.
    pub(crate) buffers: &'a Buffers,
    /// The bucket's account, if there is a bucket.
    pub(crate) memory: Option<&'a Memory>,
    /// Whether the bucket's policy allows eviction.
    pub(crate) evicts: bool,
    /// Whether any document can be evicted at present.
    pub(crate) evictable: bool,
    /// Whether a commit is pending that frees memory. Checked under pressure only.
    pub(crate) is_storing: &'a dyn Fn() -> bool,
}

impl Buffers {
    /// Reserves memory for a connection without a bucket; see [`Bucket::reserve`](crate::Bucket::reserve).
    pub fn reserve(&self, purpose: Purpose, bytes: usize, waited: Duration) -> Reservation {
        let accounts = Accounts {
            buffers: self,
            memory: None,
            evicts: false,
            evictable: false,
            is_storing: &|| false,
        };
        accounts.reserve(purpose, bytes, waited)
    }
}

impl Accounts<'_> {
    /// Reserves `bytes` for a request that has waited for `waited`. Books nothing: the account of
    /// the bytes counts them once they are allocated.
    ///
    /// Cost: without pressure the loads of one or two accounts.
    pub(crate) fn reserve(&self, purpose: Purpose, bytes: usize, waited: Duration) -> Reservation {
        for &Cell(limit, patience, then) in cells(purpose) {
            let Some(shortage) = self.shortage(limit, purpose, bytes as u64) else {
                continue;
            };
            let is_storing = patience == Patience::Write && (self.is_storing)();
            if waited < self.longest_wait(patience, is_storing) {
                let retry = purpose.retry();
                return Reservation::Wait { retry, limit };
            }
            if then == AfterWait::Refuse {
                let pause = match patience {
                    Patience::Write if is_storing => WRITE_PAUSE_STORING,
                    Patience::Write => WRITE_PAUSE,
                    _ => Duration::ZERO,
                };
                return Reservation::Refused { shortage, pause };
            }
        }
        Reservation::Granted
    }

    fn longest_wait(&self, patience: Patience, is_storing: bool) -> Duration {
        let waits = self.buffers.waits();
        match patience {
            Patience::None => Duration::ZERO,
            Patience::Write if is_storing => waits.write_storing,
            Patience::Write => waits.write,
            Patience::Relief => waits.relief,
            Patience::Large => waits.large,
            Patience::Congestion => waits.congestion,
            Patience::Unbounded => Duration::MAX,
        }
    }

    /// Returns the usage of a limit that `bytes` more would exceed.
    fn shortage(&self, limit: Limit, purpose: Purpose, bytes: u64) -> Option<Shortage> {
        let buffers = self.buffers;
        let usage = match limit {
            Limit::Congestion if buffers.is_congested(self.memory) => buffers.usage(),
            Limit::Overflow if buffers.overflows() => buffers.usage(),
            Limit::Congestion | Limit::Overflow => return None,
            Limit::Bodies => buffers.bodies_exceeded(bytes)?,
            Limit::Queue if !purpose.is_behind() => return None,
            // A lack of memory in the bucket is the more useful reason.
            Limit::Queue => match self.write_shortage(purpose, bytes) {
                Some(shortage) => return Some(shortage),
                None => buffers.usage(),
            },
            Limit::Space => {
                let can_make_space = self.evicts && bytes <= self.memory?.low_mark();
                let shortage = can_make_space.then(|| self.write_shortage(purpose, bytes));
                return shortage.flatten();
            }
            Limit::Quota => self.memory?.quota_exceeded(self.evictable)?,
            Limit::Readers => self.memory?.readers_exceeded()?,
            Limit::Checkpoints => self.memory?.checkpoints_exceeded()?,
            Limit::OneMutation => self.memory?.one_mutation_exceeded(bytes)?,
            Limit::Mutation => self.memory?.mutation_exceeded(bytes)?,
            Limit::LargeMutation => self.memory?.large_mutation_exceeded(bytes)?,
            Limit::Backfill => self.memory?.backfill_exceeded()?,
        };
        let mut shortage = Shortage {
            purpose,
            limit,
            usage,
        };
        // Names the quota instead of its share if documents and connections use up the quota. The
        // overhead of the process is not counted here: it is an estimate that varies, also while
        // the store is slow.
        if matches!(
            limit,
            Limit::Mutation | Limit::LargeMutation | Limit::Backfill
        ) {
            let memory = self.memory?;
            let (used, allowed) = (memory.booked() + memory.transit(), memory.quota());
            if used >= allowed {
                shortage.limit = Limit::Quota;
                shortage.usage = Usage { used, allowed };
            }
        }
        Some(shortage)
    }

    /// Returns the first limit that a large write of so many bytes exceeds.
    fn write_shortage(&self, purpose: Purpose, bytes: u64) -> Option<Shortage> {
        let mut cells = cells(Purpose::LargeWrite).iter();
        cells.find_map(|&Cell(limit, ..)| self.shortage(limit, purpose, bytes))
    }
}

#[cfg(test)]
mod tests;
