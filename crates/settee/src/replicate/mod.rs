//! `settee replicate`: applies the changes of one bucket to another one, or in both directions at once.
//!
//! Each direction has one thread. It writes a change with its CAS and revision; the target resolves conflicts. So a
//! change may be sent twice, and the order between documents does not matter. A position is saved only when the target
//! keeps all changes before it: they are on disk at the active nodes, and most copies of the vBuckets have them.

mod batch;
mod counts;
mod direction;
mod echo;
mod outbound;
mod state;
mod unpersisted;
mod write_queues;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::Address;

use self::counts::DirectionCounts;
use self::direction::{Direction, SharedState};
use self::echo::Echo;
use self::state::ReplicateStateFile;
use crate::connect::LoginArgs;
use crate::exit::Failure;
use crate::stderr::note;
use crate::stream::CollectionPart;
use crate::tail::Interrupt;

/// Apply the changes of a bucket to a bucket of another node or cluster, as they happen.
///
/// Each of them may be a bucket of a cluster: any of its nodes is named, and all of them must be reached. Each change is read
/// and written at the node that has its vBucket, also after that moved or its node died. Changes of a vBucket that no node
/// serves wait, and the command ends if that lasts for --retry seconds. The numbers of vBuckets may differ.
///
/// Documents keep CAS, revision, flags, expiry and extended attributes; deletions are applied, too. Of two versions
/// of a document the one that wins by the conflictResolutionType of the buckets (the same on both sides) stays. With
/// --both each side may be written. Collections are found by name; one that is missing there is waited for, for --retry
/// seconds. Values go as they are stored if both sides take compressed ones (Snappy), else plain.
///
/// The position is kept in FILE once the other side has everything on disk, and in a cluster most copies have it: a later
/// run, also after a kill, goes on from there. It may name other nodes of the same buckets. If the bucket that is written
/// was made anew, everything is sent again.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplicateArgs {
    /// Bucket to read: couchbase://USER:PASSWORD@HOST:PORT/BUCKET, or couchbases:// over TLS
    from: Address,
    /// Bucket to write
    to: Address,
    /// Replicate the changes of TO to FROM as well
    #[arg(long, env = "SETTEE_BOTH")]
    both: bool,
    /// Replicate only this scope, or this collection
    #[arg(long, env = "SETTEE_FILTER", value_name = "SCOPE[.COLLECTION]")]
    filter: Option<CollectionPart>,
    /// Keep the position in this file, and go on from it
    #[arg(long, env = "SETTEE_STATE", value_name = "FILE")]
    state: PathBuf,
    /// End once everything was replicated that there was when the command began
    #[arg(long, env = "SETTEE_UNTIL_NOW")]
    until_now: bool,
    /// Tell of each change that was not newer than what was there, on standard error
    #[arg(long, env = "SETTEE_LOG_CONFLICTS")]
    log_conflicts: bool,
    /// Time to keep trying when a connection is lost, or a vBucket or a collection is missing, in seconds
    #[arg(long, env = "SETTEE_RETRY", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    retry: u64,
    #[command(flatten)]
    login: LoginArgs,
}

/// Pauses between attempts to connect: exponential back-off.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Runs the command.
///
/// # Errors
/// A server cannot be reached or refuses, or the state file cannot be used.
pub(crate) fn run(args: &ReplicateArgs) -> Result<(), Failure> {
    if args.from.login.is_none() || args.to.login.is_none() {
        return Err(Failure::usage(
            "memcached has no changes to follow; use couchbase://",
        ));
    }
    let names = [args.from.to_string(), args.to.to_string()];
    if names[0] == names[1] {
        return Err(Failure::usage("FROM and TO are the same bucket"));
    }
    let from = args.login.options_of("FROM", &args.from)?;
    let to = args.login.options_of("TO", &args.to)?;
    let filter = args.filter.as_ref().map(CollectionPart::to_string);
    let state = ReplicateStateFile::open(&args.state, names.clone(), filter.unwrap_or_default())?;
    let shared = SharedState {
        state,
        interrupt: Interrupt::watch()?,
        stops: AtomicBool::new(false),
        counts: Default::default(),
        echoes: [Echo::new(args.both), Echo::new(args.both)],
        filter: args.filter.clone(),
        until_now: args.until_now,
        tells_conflicts: args.log_conflicts,
    };
    let mut directions = vec![(0, from.clone(), to.clone())];
    if args.both {
        directions.push((1, to, from));
    }
    let patience = Duration::from_secs(args.retry);
    let ended: Vec<Result<(), Failure>> = thread::scope(|scope| {
        let running: Vec<_> = directions
            .into_iter()
            .map(|(index, from, to)| {
                let shared = &shared;
                scope.spawn(move || {
                    let position = shared.state.position(index);
                    let ended = position.and_then(|position| {
                        let direction = Direction {
                            shared,
                            index,
                            from,
                            to,
                            position,
                            patience,
                        };
                        follow(direction, patience)
                    });
                    if ended.is_err() {
                        shared.stops.store(true, Ordering::Relaxed);
                    }
                    ended
                })
            })
            .collect();
        let joined = running.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|ended| ended.expect("a thread does not panic"))
            .collect()
    });
    report(&names, &shared.counts, args.both);
    ended.into_iter().collect()
}

fn report(names: &[String; 2], counts: &[DirectionCounts; 2], both: bool) {
    let [from, to] = names;
    note(format_args!("{from} to {to}: {}", counts[0]));
    if both {
        note(format_args!("{to} to {from}: {}", counts[1]));
    }
}

/// Runs a direction, and again after it broke off, until it ends or `patience` passes without progress.
fn follow(mut direction: Direction<'_>, patience: Duration) -> Result<(), Failure> {
    let shared = direction.shared;
    let mut began = Instant::now();
    let mut pause = PAUSE_MIN;
    let mut kept = direction.position.clone();
    loop {
        let broken = match direction.run() {
            Ok(()) => return Ok(()),
            Err(broken) => broken,
        };
        // Progress resets the time limit and the back-off.
        if direction.position != kept {
            kept.clone_from(&direction.position);
            (began, pause) = (Instant::now(), PAUSE_MIN);
        }
        if !broken.again || began.elapsed() >= patience {
            return Err(broken.failure);
        }
        if shared.interrupt.is_asked() || shared.stops.load(Ordering::Relaxed) {
            return Ok(());
        }
        note(format_args!("{}; trying again", broken.failure));
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
