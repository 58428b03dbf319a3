//! `settee tail`: follows the changes of a bucket, from this moment or from an earlier position.
//!
//! One thread reads changes, writes them to standard output, acknowledges them to the nodes, then stores the
//! position. So a reader of standard output that does not read slows the streams down, and a stored position
//! never covers changes that were not written.

mod interrupt;
mod lines;
mod position_writer;
mod session;
mod state;
mod target;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use changes::{Position, PositionError, Streams};
use client::Nodes;
use model::VbId;
use wire::dcp::OpenFlags;

pub(crate) use self::interrupt::Interrupt;
use self::lines::{Format, Lines};
use self::position_writer::PositionWriter;
use self::session::{Ended, Tail};
use self::state::TailStateFile;
use self::target::TailTarget;
use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::stream::{Source, StreamOpening, newest};

/// DCP controls of the connections; the first one is for `--all-versions`.
const SWITCHES: &[&str] = &[
    "change_streams",
    "enable_expiry_opcode",
    "supports_cursor_dropping",
];

/// Follow the changes of documents, one line of JSON each.
///
/// A line has event (mutation, deletion, expiration), key, value, scope, collection, vb, seqno, cas, rev, flags
/// and expiry. Within a vBucket (vb) seqnos ascend; a document stays in its vBucket. A line with event rollback
/// revokes the earlier lines of its vb after its seqno: the server lost these changes in a crash or failover.
/// Changes of a collection that was dropped before the command began may still come: scope and collection are empty.
/// A tail of a scope or collection ends when that is dropped.
///
/// In a cluster all vBuckets of a bucket are followed, on any node: if a vBucket moves or a node dies, its stream
/// goes on at the new node. --connect names any node.
///
/// With --state FILE the position is stored in FILE: a later run continues where this one stopped. After an
/// orderly end (SIGINT, SIGTERM, --count, --until-now) no change is repeated or left out; after a kill the last
/// moment is repeated.
#[derive(Debug, clap::Args)]
pub(crate) struct TailArgs {
    /// BUCKET, BUCKET.SCOPE or BUCKET.SCOPE.COLLECTION; the bucket of --connect when left out
    target: Option<TailTarget>,
    /// Start: now, beginning, or a position. An existing state file has priority
    #[arg(long, env = "SETTEE_FROM", value_name = "WHERE", default_value = "now")]
    from: Start,
    /// Format of a change
    #[arg(long, env = "SETTEE_FORMAT", value_enum, default_value_t = Format::Json)]
    format: Format,
    /// Store the position in this file, and continue from it
    #[arg(long, env = "SETTEE_STATE", value_name = "FILE")]
    state: Option<PathBuf>,
    /// End once all changes were written that existed when the command began
    #[arg(long, env = "SETTEE_UNTIL_NOW")]
    until_now: bool,
    /// End after this number of changes
    #[arg(long, env = "SETTEE_COUNT", value_name = "CHANGES",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Write keys and metadata only; the server does not read values either
    #[arg(long, env = "SETTEE_KEYS_ONLY")]
    keys_only: bool,
    /// Write each version of documents that the server keeps: of collections with history, in a bucket with a
    /// retention. Otherwise a change that was replaced may be left out
    #[arg(long, env = "SETTEE_ALL_VERSIONS")]
    all_versions: bool,
    /// Size of the flow-control window in bytes: so much may the server send ahead
    #[arg(long, env = "SETTEE_WINDOW", value_name = "BYTES", default_value_t = 4 * 1024 * 1024,
          value_parser = clap::value_parser!(u32).range(4096..=256 * 1024 * 1024))]
    window: u32,
    /// Seconds to retry when a connection is lost, or when no node serves a vBucket
    #[arg(long, env = "SETTEE_RETRY", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    retry: u64,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Start of a tail without state.
#[derive(Clone, Debug)]
enum Start {
    Now,
    Beginning,
    Position(Position),
}

impl FromStr for Start {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "now" => Ok(Self::Now),
            "beginning" => Ok(Self::Beginning),
            _ => text
                .parse()
                .map(Self::Position)
                .map_err(|error: PositionError| {
                    format!("use now, beginning or a position ({error})")
                }),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The server cannot be reached or refuses, the state file cannot be used, or standard output cannot be written.
pub(crate) fn run(args: &TailArgs) -> Result<(), Failure> {
    let mut server = args.connect.options()?;
    let Some(login) = &mut server.address.login else {
        return Err(Failure::usage(
            "--connect: memcached has no changes to follow; use couchbase://",
        ));
    };
    let target = args.target.clone().unwrap_or_else(|| TailTarget {
        bucket: login.bucket.clone(),
        part: None,
    });
    login.bucket.clone_from(&target.bucket);
    let file = args
        .state
        .as_deref()
        .map(|path| TailStateFile::new(path, &target));
    let saved = file.as_ref().map_or(Ok(None), TailStateFile::load)?;
    let interrupt = Interrupt::watch()?;
    let opening = opening(args, &target);
    let from = saved.map_or_else(|| args.from.clone(), Start::Position);
    let (mut nodes, _) = Nodes::connect(&server)?;
    let streams = begin(&mut nodes, from, args.until_now, opening.patience)?;
    let mut source = Source::new(nodes, streams, opening)?;
    let mut tail = Tail {
        lines: Lines::new(args.format, &target.bucket),
        position_writer: PositionWriter::new(file),
        interrupt,
        changes_max: args.count.unwrap_or(u64::MAX),
        keys_only: args.keys_only,
    };
    let ended = tail.run(&mut source);
    // A reader that went away did not get the last lines.
    if matches!(ended, Ok(Ended::Interrupted | Ended::Complete)) {
        tail.position_writer.finish(source.streams())?;
    }
    ended.map(drop)
}

/// Returns the parameters of connections.
fn opening(args: &TailArgs, target: &TailTarget) -> StreamOpening {
    let mut flags = OpenFlags::INCLUDE_DELETE_TIMES;
    if args.keys_only {
        flags = flags.with(OpenFlags::NO_VALUE);
    }
    let switches = if args.all_versions {
        SWITCHES
    } else {
        &SWITCHES[1..]
    };
    StreamOpening {
        name: "settee-tail",
        flags,
        switches,
        window_bytes: args.window,
        part: target.part.clone(),
        patience: Duration::from_secs(args.retry),
    }
}

/// Returns the streams at their start positions.
fn begin(
    nodes: &mut Nodes,
    from: Start,
    until_now: bool,
    patience: Duration,
) -> Result<Streams, Failure> {
    let now = match from {
        Start::Now => Some(newest(nodes, patience)?),
        _ if until_now => Some(newest(nodes, patience)?),
        _ => None,
    };
    let position = match (from, &now) {
        (Start::Position(position), _) => position,
        (Start::Now, Some(now)) => now.clone(),
        _ => Position::beginning(nodes.vbuckets()),
    };
    let mut streams = Streams::from(position);
    if let Some(now) = now.filter(|_| until_now) {
        streams.end_at(
            (0..)
                .map(VbId)
                .zip(now.places.iter().map(|place| place.seqno)),
        );
    }
    Ok(streams)
}
