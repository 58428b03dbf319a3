//! `settee bench --dcp`: what change streams cost and how fast they are.
//!
//! ```text
//! Side -- connections that write and read      (as in every other run)
//! Follower -- one connection with a stream of every vBucket, read by one thread
//! Producer -- one connection that brings changes to the node, in scenario `consumer`
//! ```
//! A scenario gives both their turns and fills a [`Sheet`].

mod consumer;
mod drain;
mod dropped;
mod follower;
mod front;
mod idle;
mod latency;
mod sheet;
mod times;

use std::time::{Duration, Instant};

use client::{Client, ClientError, Message, SaltedCache};
use model::{Seqno, VbId};
use wire::Opcode;
use wire::response::VbSeqnos;

use super::options::{Args, Plan};
use super::side::{Side, Target};
use super::{random_run, targets};
use crate::exit::{Failure, Sysexit};
use crate::output::{self, Progress, Style};
use follower::Follower;
use sheet::Sheet;

pub(crate) use consumer::Load;
pub(crate) use times::{TIMES_BYTES, Times};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// How fast all documents come over one connection
    Drain,
    /// How long after a write its change arrives on another connection, at --rate writes a
    /// second [default of --rate: 20000]
    Latency,
    /// What readers and writers notice of a connection that streams all changes: slices with
    /// and without it take turns
    Front,
    /// What streams cost that have nothing to say; --server-pid is needed
    Idle,
    /// How fast the node takes changes as a consumer, of --keys documents in snapshots of
    /// --snapshot-changes, and how soon it acknowledges snapshots of one change. The vBuckets
    /// become replicas, then active again; use a bucket without documents of your own
    Consumer,
    /// How soon a connection that did not read has everything, after memory pressure made the node
    /// drop its cursors: --keys documents must not fit the bucket's memory
    Dropped,
}

impl Scenario {
    /// How many connections there are unless the user says otherwise.
    pub(crate) fn connections(self) -> u32 {
        match self {
            Self::Idle => 100,
            _ => 1,
        }
    }
}

/// Where documents are when they are drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Origin {
    /// In the log of changes that the streams follow
    Memory,
    /// In the store
    Disk,
}

/// Writes a second unless the user says otherwise.
const RATE: f64 = 20_000.0;

/// Measures one scenario and prints what came out.
///
/// # Errors
/// As every run: a server that cannot be reached or breaks, that refuses, or stands still.
pub(super) fn run(scenario: Scenario, args: &Args, plan: Plan) -> Result<(), Failure> {
    let progress = Progress::new(args.json);
    let mut bench = Bench {
        target: targets(args, None)?.swap_remove(0),
        plan,
        progress,
        cache: SaltedCache::default(),
    };
    let sheet = match scenario {
        Scenario::Drain => drain::run(&mut bench, args.from)?,
        Scenario::Latency => latency::run(&mut bench)?,
        Scenario::Front => front::run(&mut bench)?,
        Scenario::Idle => idle::run(&mut bench)?,
        Scenario::Dropped => dropped::run(&mut bench)?,
        Scenario::Consumer => consumer::run(&mut bench, args.load())?,
    };
    drop(bench);
    if args.json {
        output::print_json(&sheet.to_json())
    } else {
        output::print(sheet.to_text(Style::of_stdout()).as_bytes())
    }
}

/// What all scenarios need.
struct Bench {
    target: Target,
    plan: Plan,
    progress: Progress,
    cache: SaltedCache,
}

impl Bench {
    /// Connections that write and read.
    fn side(&self) -> Result<Side, Failure> {
        Side::open(self.target.clone(), &self.plan, random_run()?)
    }

    /// A connection for requests.
    fn client(&mut self) -> Result<Client, Failure> {
        let connected = Client::connect(&self.target.server, &mut self.cache);
        Ok(connected?)
    }

    /// A connection for streams; none was asked for yet. `window`: bytes that the server may
    /// send without an acknowledgement, 0 for any number.
    fn follower(&mut self, window: u32) -> Result<Follower, Failure> {
        let client = self.client()?;
        Follower::open(client, window, self.plan.timeout)
    }

    /// One that has every change that there is now.
    fn caught_up(&mut self) -> Result<Follower, Failure> {
        let mut follower = self.follower(0)?;
        follower.request_all()?;
        let high = self.high_seqnos()?;
        follower.follow_to(&high)?;
        Ok(follower)
    }

    /// The highest seqno of every active vBucket.
    fn high_seqnos(&mut self) -> Result<Vec<(VbId, Seqno)>, Failure> {
        let active = 1_u32.to_be_bytes();
        let answer = self.client()?.expect_success(&Message {
            extras: &active,
            ..Message::new(Opcode::GET_ALL_VB_SEQNOS)
        })?;
        let seqnos = VbSeqnos::parse(&answer.value)
            .map_err(|error| ClientError::broken("GET_ALL_VB_SEQNOS", &error))?;
        Ok(seqnos.iter().collect())
    }

    /// Waits until everything is in the store.
    fn persisted(&mut self) -> Result<(), Failure> {
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
                return Err(Failure::new(Sysexit::TempFail, reason));
            }
            self.progress.show(&format!("{left} changes to persist"));
            std::thread::sleep(PERSIST_PAUSE);
        }
    }
}

/// How long nothing may be persisted, and the pause between two looks.
const PERSIST_PATIENCE: Duration = Duration::from_secs(30);
const PERSIST_PAUSE: Duration = Duration::from_millis(50);

/// How many changes of all vBuckets are not in the store.
fn unpersisted(client: &mut Client) -> Result<u64, ClientError> {
    let (mut high, mut persisted) = (0, 0);
    client.stat("vbucket-seqno", |name, value| {
        let number = || str::from_utf8(value).ok()?.parse::<u64>().ok();
        if name.ends_with(b":high_seqno") {
            high += number().unwrap_or(0);
        } else if name.ends_with(b":last_persisted_seqno") {
            persisted += number().unwrap_or(0);
        }
        Ok::<_, ClientError>(())
    })?;
    Ok(high.saturating_sub(persisted))
}
