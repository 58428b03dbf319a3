//! A server, and the connections of a scenario to it.

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use client::{Client, ClientError, Request, SaltedCache};
use model::{Seqno, VbId};
use wire::Opcode;

use super::follower::{CLOSED_WINDOW, Follower};
use crate::console::Progress;
use crate::error::{Cause, Error};
use crate::plan::Plan;
use crate::random::random_run;
use crate::side::{Side, Target};

/// State that all scenarios need.
pub(super) struct Scene {
    pub(super) target: Target,
    pub(super) plan: Plan,
    progress: Progress,
    cache: SaltedCache,
}

impl Scene {
    /// Creates a scene without connections.
    pub(super) fn new(target: Target, plan: Plan, progress: Progress) -> Self {
        Self {
            target,
            plan,
            progress,
            cache: SaltedCache::default(),
        }
    }

    /// Shows the current step to the user.
    pub(super) fn show(&self, line: &str) {
        (self.progress)(line);
    }

    /// Shows the number of the current slice.
    pub(super) fn show_slice(&self, slice: u32) {
        self.show(&format!("slice {slice}/{}", self.plan.slices));
    }

    /// Writes every key once, if the plan says so.
    pub(super) fn load(&self, side: &mut Side) -> Result<(), Error> {
        if self.plan.load_first {
            self.show(&format!("loading {} keys", self.plan.keys));
            side.load()?;
        }
        Ok(())
    }

    /// Opens connections that write and read.
    pub(super) fn side(&self) -> Result<Side, Error> {
        Side::open(self.target.clone(), &self.plan, random_run()?)
    }

    /// Opens a connection for requests.
    pub(super) fn client(&mut self) -> Result<Client, Error> {
        let connected = Client::connect(&self.target.server, &mut self.cache);
        Ok(connected?)
    }

    /// Opens a connection and requests its streams. `window`: size of the flow-control window in bytes, 0 for no limit.
    pub(super) fn follower(&mut self, window: u32) -> Result<Follower, Error> {
        let client = self.client()?;
        Follower::open(client, window, self.plan.timeout)
    }

    /// Opens a connection that receives all present changes and then almost nothing: its cursors pin the log.
    pub(super) fn pinned(&mut self) -> Result<Follower, Error> {
        let mut follower = self.caught_up()?;
        follower.set_window(CLOSED_WINDOW)?;
        Ok(follower)
    }

    /// Opens a connection that has received all present changes.
    pub(super) fn caught_up(&mut self) -> Result<Follower, Error> {
        let mut follower = self.follower(0)?;
        let high = self.high_seqnos()?;
        follower.follow_to(&high)?;
        Ok(follower)
    }

    /// Returns the highest seqno of every active vBucket.
    pub(super) fn high_seqnos(&mut self) -> Result<Vec<(VbId, Seqno)>, Error> {
        Ok(self.client()?.high_seqnos()?)
    }

    /// Waits until everything is in the store.
    pub(super) fn persisted(&mut self) -> Result<(), Error> {
        let mut client = self.client()?;
        let (mut waited_for, mut since) = (u64::MAX, Instant::now());
        loop {
            let left = unpersisted(&mut client)?;
            if left == 0 {
                return Ok(());
            }
            if left < waited_for {
                (waited_for, since) = (left, Instant::now());
            } else if since.elapsed() > PERSIST_PATIENCE {
                let reason = format!("{left} changes are not persisted, and it gets no better");
                return Err(Error::new(Cause::Overload, reason));
            }
            self.show(&format!("{left} changes to persist"));
            std::thread::sleep(PERSIST_PAUSE);
        }
    }

    /// Writes one document in every vBucket.
    pub(super) fn touch_every_vbucket(&mut self) -> Result<(), Error> {
        let mut client = self.client()?;
        let vbuckets = client.key_form().vbuckets.unwrap_or(0);
        let mut untouched = vec![true; usize::from(vbuckets)];
        let mut left = untouched.len();
        for number in 0_u64.. {
            if left == 0 {
                break;
            }
            let key = format!("touch:{number}");
            let VbId(vb) = client.key_form().vbucket(key.as_bytes());
            if std::mem::take(&mut untouched[usize::from(vb)]) {
                left -= 1;
                client.document_request(&Request {
                    extras: &[0; 8],
                    ..Request::with(Opcode::SET, key.as_bytes(), b"touched")
                })?;
            }
        }
        Ok(())
    }
}

/// Longest time without progress of persistence, and pause between two requests.
const PERSIST_PATIENCE: Duration = Duration::from_secs(30);
const PERSIST_PAUSE: Duration = Duration::from_millis(50);

/// Returns the number of changes in all vBuckets that are not in the store.
fn unpersisted(client: &mut Client) -> Result<u64, ClientError> {
    let (mut high, mut persisted) = (0, 0);
    client.stat_numbers("vbucket-seqno", |name, number| {
        if name.ends_with(b":high_seqno") {
            high += number;
        } else if name.ends_with(b":last_persisted_seqno") {
            persisted += number;
        }
    })?;
    Ok(high.saturating_sub(persisted))
}

/// Returns the result of a scenario's thread.
pub(super) fn join<T>(thread: ScopedJoinHandle<'_, Result<T, Error>>) -> Result<T, Error> {
    let ended = |_| Error::new(Cause::Machine, "a thread of the scenario has ended early");
    thread.join().map_err(ended)?
}
