//! `settee tail`: the changes of a bucket as they happen, or since some moment.
//!
//! One connection, one thread: bytes are read, written to standard output, then acknowledged to
//! the server, then the position is kept. So a reader of standard output that does not read slows
//! the server's streams down, and a position never says more than what was written.

mod interrupt;
mod keeper;
mod lines;
mod session;
mod state;
mod target;

use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use changes::{Collections, Position, PositionError, Streams, VbPosition};
use client::{Client, ClientError, ConnectOptions, Feed, Request, SaltedCache};
use model::Seqno;
use wire::dcp::OpenFlags;
use wire::response::FailoverEntries;
use wire::{Opcode, Status};

pub(crate) use self::interrupt::Interrupt;
use self::keeper::Keeper;
use self::lines::{Format, Lines};
use self::session::{Ended, Session, Tail};
use self::state::StateFile;
pub(crate) use self::target::CollectionPart;
use self::target::Target;
use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};
use crate::stream::{Broken, collections_of, is_on_one_node};

/// Follow the changes of documents, one line of JSON each.
///
/// A line has event (mutation, deletion, expiration), key, value, scope, collection, vb, seqno,
/// cas, rev, flags and expiry. Within a vBucket (vb) seqnos ascend; a document stays in its
/// vBucket. A line with event rollback takes back what was told of its vb after its seqno: the
/// server lost it in a crash or failover.
///
/// With --state FILE the position is kept in FILE: a later run goes on where this one stopped.
/// After an orderly end (SIGINT, SIGTERM, --count, --until-now) nothing is told twice or left
/// out; after a kill the last moment is told again.
#[derive(Debug, clap::Args)]
pub(crate) struct TailArgs {
    /// BUCKET, BUCKET.SCOPE or BUCKET.SCOPE.COLLECTION; the bucket of --connect when left out
    target: Option<Target>,
    /// Where to begin: now, beginning, or a position. A state file that exists counts instead
    #[arg(long, env = "SETTEE_FROM", value_name = "WHERE", default_value = "now")]
    from: Start,
    /// How a change is written
    #[arg(long, env = "SETTEE_FORMAT", value_enum, default_value_t = Format::Json)]
    format: Format,
    /// Keep the position in this file, and go on from it
    #[arg(long, env = "SETTEE_STATE", value_name = "FILE")]
    state: Option<PathBuf>,
    /// End once everything was told that there was when the command began
    #[arg(long, env = "SETTEE_UNTIL_NOW")]
    until_now: bool,
    /// End after so many changes
    #[arg(long, env = "SETTEE_COUNT", value_name = "CHANGES",
          value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Tell keys and metadata only; the server does not read values either
    #[arg(long, env = "SETTEE_KEYS_ONLY")]
    keys_only: bool,
    /// How many bytes the server may send ahead
    #[arg(long, env = "SETTEE_WINDOW", value_name = "BYTES", default_value_t = 4 * 1024 * 1024,
          value_parser = clap::value_parser!(u32).range(4096..=256 * 1024 * 1024))]
    window: u32,
    /// How long to try again when the connection is lost, in seconds
    #[arg(long, env = "SETTEE_RETRY", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    retry: u64,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Where a tail without state begins.
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

/// Pauses between attempts to connect: exponential back-off.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Runs the command.
///
/// # Errors
/// The server cannot be reached or refuses, the state file cannot be used, or standard output
/// cannot be written.
pub(crate) fn run(args: &TailArgs) -> Result<(), Failure> {
    let mut server = args.connect.options()?;
    let Some(login) = &mut server.address.login else {
        return Err(Failure::usage(
            "--connect: memcached has no changes to follow; use couchbase://",
        ));
    };
    let target = args.target.clone().unwrap_or_else(|| Target {
        bucket: login.bucket.clone(),
        part: None,
    });
    login.bucket.clone_from(&target.bucket);
    let file = args
        .state
        .as_deref()
        .map(|path| StateFile::new(path, &target));
    let saved = file.as_ref().map_or(Ok(None), StateFile::load)?;
    let interrupt = Interrupt::watch()?;
    let mut dial = Dial {
        server,
        window_bytes: args.window,
        part: target.part.clone(),
        keys_only: args.keys_only,
        cache: SaltedCache::default(),
    };
    let mut connection = dial.connect()?;
    let from = saved.map_or_else(|| args.from.clone(), Start::Position);
    let streams = begin(&mut connection.client, from, args.until_now)?;
    let mut tail = Tail {
        streams,
        lines: Lines::new(args.format, &target.bucket),
        keeper: Keeper::new(file),
        interrupt,
        changes_max: args.count.unwrap_or(u64::MAX),
        window_bytes: args.window,
        keys_only: args.keys_only,
    };
    let ended = follow(
        &mut tail,
        &mut dial,
        connection,
        Duration::from_secs(args.retry),
    );
    // A reader that went away did not get the last lines.
    if matches!(ended, Ok(Ended::Interrupted | Ended::Complete)) {
        tail.keeper.finish(&tail.streams)?;
    }
    ended.map(drop)
}

/// Streams over one connection after the other until there is an end.
fn follow(
    tail: &mut Tail,
    dial: &mut Dial,
    mut connection: Connection,
    patience: Duration,
) -> Result<Ended, Failure> {
    loop {
        let began = tail.lines.changes();
        let broken = match connection.stream(tail) {
            Ok(ended) => return Ok(ended),
            Err(broken) => broken,
        };
        match tail.lines.flush() {
            Ok(()) => {}
            Err(lines::Unwritten::ReaderGone) => return Ok(Ended::ReaderGone),
            Err(lines::Unwritten::Failed(failure)) => return Err(failure),
        }
        tail.keeper.finish(&tail.streams)?;
        if !broken.again {
            return Err(broken.failure);
        }
        eprintln!("settee: {}; trying again", broken.failure);
        let deadline = Instant::now() + patience;
        let mut pause = if tail.lines.changes() > began {
            Duration::ZERO
        } else {
            PAUSE_MIN
        };
        connection = loop {
            if tail.interrupt.is_asked() {
                return Ok(Ended::Interrupted);
            }
            if Instant::now() >= deadline {
                return Err(broken.failure);
            }
            thread::sleep(pause);
            pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            match dial.connect() {
                Ok(connection) => break connection,
                Err(failure) if failure.again => {}
                Err(failure) => return Err(failure.failure),
            }
        };
    }
}

/// How to get a connection.
struct Dial {
    server: ConnectOptions,
    window_bytes: u32,
    part: Option<CollectionPart>,
    keys_only: bool,
    cache: SaltedCache,
}

/// A connection that is open for streams, before any was asked for.
struct Connection {
    client: Client,
    collections: Collections,
    filter: String,
}

impl Dial {
    fn connect(&mut self) -> Result<Connection, Broken> {
        let mut client = Client::connect(&self.server, &mut self.cache)?;
        is_on_one_node(&client)?;
        let collections = collections_of(&mut client)?;
        let filter = match &self.part {
            None => String::new(),
            Some(part) => {
                let filter = collections.filter(&part.scope, part.collection.as_deref());
                filter.ok_or_else(|| {
                    Failure::new(
                        Sysexit::NoInput,
                        "the bucket has no such scope or collection",
                    )
                })?
            }
        };
        open(&mut client, self.window_bytes, self.keys_only)?;
        Ok(Connection {
            client,
            collections,
            filter,
        })
    }
}

impl Connection {
    fn stream(self, tail: &mut Tail) -> Result<Ended, Broken> {
        let vbuckets = vbuckets(&self.client);
        if usize::from(vbuckets) != tail.streams.vbuckets() {
            return Err(other_bucket(tail.streams.vbuckets(), vbuckets).into());
        }
        let keyed = self.client.key_form().collections;
        let mut feed = Feed::new(self.client);
        Session::new(tail, self.collections, keyed, self.filter).run(&mut feed)
    }
}

fn vbuckets(client: &Client) -> u16 {
    client.key_form().vbuckets.unwrap_or(0)
}

fn other_bucket(of_position: usize, of_bucket: u16) -> Failure {
    let reason = format!(
        "the position is of a bucket with {of_position} vBuckets, this one has {of_bucket}"
    );
    Failure::new(Sysexit::Data, reason)
}

/// Makes a connection one for streams.
fn open(client: &mut Client, window_bytes: u32, keys_only: bool) -> Result<(), ClientError> {
    let mut flags = OpenFlags::INCLUDE_DELETE_TIMES;
    if keys_only {
        flags = flags.with(OpenFlags::NO_VALUE);
    }
    client.open_streams("settee-tail", flags, window_bytes)?;
    // A server that does not know one of these tells the same with fewer words.
    for name in ["enable_expiry_opcode", "supports_cursor_dropping"] {
        client.request(&Request::with(
            Opcode::DCP_CONTROL,
            name.as_bytes(),
            b"true",
        ))?;
    }
    Ok(())
}

/// The streams as they are to begin.
fn begin(client: &mut Client, from: Start, until_now: bool) -> Result<Streams, Failure> {
    let vbuckets = vbuckets(client);
    let position = match from {
        Start::Beginning => Position::beginning(vbuckets),
        Start::Position(position) if position.places.len() == usize::from(vbuckets) => position,
        Start::Position(position) => return Err(other_bucket(position.places.len(), vbuckets)),
        Start::Now => now(client)?,
    };
    let mut streams = Streams::from(position);
    if until_now {
        streams.end_at(client.high_seqnos()?);
    }
    Ok(streams)
}

/// Where every vBucket is now.
fn now(client: &mut Client) -> Result<Position, ClientError> {
    let mut position = Position::beginning(vbuckets(client));
    let high = client.high_seqnos()?;
    let asked: Vec<Request<'_>> = high
        .iter()
        .map(|(vbucket, _)| Request {
            vbucket: *vbucket,
            ..Request::new(Opcode::GET_FAILOVER_LOG)
        })
        .collect();
    let logs = client.request_all(&asked)?;
    for ((vbucket, seqno), log) in high.into_iter().zip(logs) {
        // A vBucket that moved away meanwhile is told about when its stream is refused.
        let known = FailoverEntries::parse(&log.value).ok();
        let known = known.filter(|_| log.status == Status::SUCCESS);
        let newest = known.and_then(|log| log.iter().next());
        let place = position.places.get_mut(usize::from(vbucket.0));
        if let (Some(place), Some(newest)) = (place, newest)
            && seqno > Seqno(0)
        {
            *place = VbPosition::at(newest.uuid, seqno);
        }
    }
    Ok(position)
}
