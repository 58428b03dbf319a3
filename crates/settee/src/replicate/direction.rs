//! One direction of a replication: it reads changes of the source and writes them to the target.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use changes::{Collections, DocumentChange, Names, Position, Streams};
use client::{Client, ClientError, ConnectOptions, KeyForm, Nodes};
use model::{CollectionId, VbId, VbUuid, split_key};
use wire::dcp::{Deletion, Expiration, Mutation, OpenFlags};
use wire::request::{MetaAction, MetaOptions, WithMeta};
use wire::{Frame, Malformed, Message as _, Opcode};

use super::counts::DirectionCounts;
use super::echo::Echo;
use super::state::ReplicateStateFile;
use super::writer::{TargetWriter, Writing};
use crate::exit::{Failure, Sysexit};
use crate::stderr::note;
use crate::stream::{
    Broken, CollectionPart, Source, StreamEvent, StreamOpening, TICK, collections_of, newest,
};
use crate::tail::Interrupt;

/// Longest wait for bytes while writes or a position are pending; [`TICK`] otherwise.
const MOMENT: Duration = Duration::from_millis(1);
/// Shortest interval between two saves of the position. After a kill, changes since the last save are sent again.
const KEEP_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes that a node may send without an acknowledgement.
const STREAM_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// State that both directions share.
pub(super) struct SharedState {
    pub(super) state: ReplicateStateFile,
    pub(super) interrupt: Interrupt,
    /// Whether a direction failed for good.
    pub(super) stops: AtomicBool,
    pub(super) counts: [DirectionCounts; 2],
    /// Changes that each direction has sent.
    pub(super) echoes: [Echo; 2],
    pub(super) filter: Option<CollectionPart>,
    pub(super) until_now: bool,
    pub(super) tells_conflicts: bool,
}

/// One direction, from its first connection to its last.
pub(super) struct Direction<'a> {
    pub(super) shared: &'a SharedState,
    /// Index of the direction: 0 or 1.
    pub(super) index: usize,
    pub(super) from: ConnectOptions,
    pub(super) to: ConnectOptions,
    /// Saved position: the target keeps all changes before it.
    pub(super) position: Option<Position>,
    /// Time limit of retries of a stream that no node grants.
    pub(super) patience: Duration,
}

impl Direction<'_> {
    /// Follows the changes over connections to each side, until there is an end.
    ///
    /// # Errors
    /// Written changes are lost, no node serves a vBucket for too long, or a server refuses.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let shared = self.shared;
        // Values are sent as stored if both sides accept compressed values, else uncompressed.
        let (there, mut target) = Nodes::connect(&compressed(&self.to, true))?;
        let from = compressed(&self.from, target.is_compressed());
        let (mut nodes, mut first) = Nodes::connect(&from)?;
        let by_time = last_write_wins(&mut first)?;
        if by_time != last_write_wins(&mut target)? {
            let reason = "the buckets resolve conflicts in different ways (conflictResolutionType)";
            return Err(Failure::new(Sysexit::Config, reason).into());
        }
        let keyed = first.key_form().collections;
        drop(first);
        let uuids = [&nodes, &there].map(|nodes| nodes.bucket_uuid().map(str::to_owned));
        if !shared.state.meet(self.index, uuids)? {
            let to = &self.to.address;
            note(format_args!("{to} was made anew: everything is sent again"));
            self.position = None;
        }
        let streams = self.streams(&mut nodes)?;
        let source = Source::new(nodes, streams, self.opening())?;
        let writing = Writing {
            compressed: target.is_compressed(),
            tells_conflicts: shared.tells_conflicts,
            patience: self.patience,
        };
        let outlet = TargetSide {
            shared,
            index: self.index,
            to: &self.to,
            keyed,
            there: collections_of(&mut target)?,
            form: target.key_form(),
            prefixes: HashMap::new(),
            options: if by_time {
                MetaOptions::FORCE_ACCEPT.0
            } else {
                0
            },
            writer: TargetWriter::new(there, &shared.counts[self.index], writing),
            moved: false,
        };
        let session = Session {
            outlet,
            keeping: PositionProgress::Nothing,
            kept_at: Instant::now(),
            position: &mut self.position,
        };
        session.run(source)
    }

    /// Returns the streams that continue from the position.
    fn streams(&mut self, nodes: &mut Nodes) -> Result<Streams, Failure> {
        let position = self
            .position
            .get_or_insert_with(|| Position::beginning(nodes.vbuckets()));
        let mut streams = Streams::from(position.clone());
        if self.shared.until_now {
            let now = newest(nodes, self.patience)?;
            streams.end_at(
                (0..)
                    .map(VbId)
                    .zip(now.places.iter().map(|place| place.seqno)),
            );
        }
        Ok(streams)
    }

    fn opening(&self) -> StreamOpening {
        StreamOpening {
            name: "settee-replicate",
            flags: OpenFlags::INCLUDE_XATTRS
                .with(OpenFlags::INCLUDE_DELETE_TIMES)
                .with(OpenFlags::INCLUDE_DELETED_USER_XATTRS),
            switches: &["enable_expiry_opcode"],
            window_bytes: STREAM_WINDOW_BYTES,
            part: self.shared.filter.clone(),
            patience: self.patience,
        }
    }
}

/// Returns the options, with or without a request for compressed values.
fn compressed(options: &ConnectOptions, compressed: bool) -> ConnectOptions {
    ConnectOptions {
        compressed,
        ..options.clone()
    }
}

/// Progress of a position towards the state file.
enum PositionProgress {
    Nothing,
    /// Waits until the target has answered all writes before this mark.
    Answered(u64, Position),
    /// Waits until the target keeps all changes before the position.
    Kept(Position),
}

/// A run of a direction over one set of connections.
struct Session<'s, 'd> {
    outlet: TargetSide<'d>,
    keeping: PositionProgress,
    kept_at: Instant,
    position: &'s mut Option<Position>,
}

/// The write side of a direction.
struct TargetSide<'d> {
    shared: &'d SharedState,
    index: usize,
    to: &'d ConnectOptions,
    /// Whether keys of the source carry the identifier of their collection.
    keyed: bool,
    /// Collections of the target.
    there: Collections,
    form: KeyForm,
    /// Key prefixes at the target, by collection of the source.
    prefixes: HashMap<CollectionId, Vec<u8>>,
    options: u32,
    writer: TargetWriter<'d>,
    /// Whether the stream sent anything since the last position was taken.
    moved: bool,
}

impl Session<'_, '_> {
    fn run(mut self, mut source: Source) -> Result<(), Broken> {
        let shared = self.outlet.shared;
        loop {
            let ends = shared.interrupt.is_asked()
                || shared.stops.load(Ordering::Relaxed)
                || source.streams().all_done();
            let outlet = &mut self.outlet;
            let room = outlet.writer.has_room() && !ends;
            if room {
                let calm =
                    outlet.writer.is_idle() && matches!(self.keeping, PositionProgress::Nothing);
                let at_most = if calm { TICK } else { MOMENT };
                source.turn(at_most, |message| outlet.take(&message).map(|()| true))?;
                // The writer bounds the pending writes: without room there is no reading.
                source.acknowledge()?;
            } else {
                source.restart_silence();
            }
            let writer = &mut outlet.writer;
            writer.turn(match (writer.is_idle(), room) {
                (true, _) => Duration::ZERO,
                (false, true) => MOMENT,
                (false, false) => TICK,
            })?;
            self.keep(source.streams(), ends)?;
            if ends && !self.outlet.moved && matches!(self.keeping, PositionProgress::Nothing) {
                return Ok(());
            }
        }
    }

    /// Saves the position periodically, after the target keeps all changes before it.
    fn keep(&mut self, streams: &Streams, at_once: bool) -> Result<(), Broken> {
        let TargetSide { writer, moved, .. } = &mut self.outlet;
        self.keeping = match std::mem::replace(&mut self.keeping, PositionProgress::Nothing) {
            PositionProgress::Nothing => {
                let due = at_once || self.kept_at.elapsed() >= KEEP_INTERVAL;
                if !*moved || !due {
                    return Ok(());
                }
                *moved = false;
                PositionProgress::Answered(writer.set_mark(), streams.position())
            }
            PositionProgress::Answered(number, position) if writer.is_done_before(number) => {
                writer.begin_observing();
                PositionProgress::Kept(position)
            }
            PositionProgress::Kept(position) if writer.is_kept() => {
                self.outlet
                    .shared
                    .state
                    .save(self.outlet.index, &position)?;
                *self.position = Some(position);
                self.kept_at = Instant::now();
                PositionProgress::Nothing
            }
            waiting => waiting,
        };
        Ok(())
    }
}

impl TargetSide<'_> {
    fn take(&mut self, message: &StreamEvent<'_>) -> Result<(), Broken> {
        self.moved = true;
        match *message {
            StreamEvent::Change {
                change,
                names,
                history,
                frame,
            } => self.write(frame, change, names, history),
            StreamEvent::System => Ok(()),
            // The target may still have the lost changes; the other direction, if any, sends them back.
            StreamEvent::Rollback(..) => {
                DirectionCounts::add(&self.shared.counts[self.index].rollbacks);
                Ok(())
            }
        }
    }

    fn write(
        &mut self,
        frame: &Frame<'_>,
        message: DocumentChange<'_>,
        names: Names<'_>,
        history: VbUuid,
    ) -> Result<(), Broken> {
        let (shared, index) = (self.shared, self.index);
        let malformed = |error| ClientError::broken("streaming", &error);
        let change = change_of(frame, self.options).map_err(malformed)?;
        let user_key = if self.keyed {
            split_key(change.key).map_or(change.key, |(_, key)| key)
        } else {
            change.key
        };
        let vbucket = self.form.vbucket(user_key);
        if let Some((history, seqno)) = shared.echoes[1 - index].take(&change, user_key) {
            self.writer.skip(vbucket, history, seqno);
            DirectionCounts::add(&shared.counts[index].echoes);
            return Ok(());
        }
        let at = (history, message.named(names).seqno);
        shared.echoes[index].note(&change, user_key, at);
        let mut key = self.prefix_of(message.collection, names)?.to_vec();
        key.extend_from_slice(user_key);
        let change = WithMeta {
            key: &key,
            ..change
        };
        self.writer.write(&change, vbucket, frame.header.datatype)?;
        Ok(())
    }

    /// Returns the key prefix of the target's collection of the same name.
    ///
    /// # Errors
    /// There was none when the session began. The next session may find it.
    fn prefix_of(&mut self, collection: CollectionId, names: Names<'_>) -> Result<&[u8], Broken> {
        if !self.prefixes.contains_key(&collection) {
            let Some(id) = self.there.id_of(names) else {
                let reason = format!(
                    "{} has no collection {}.{}",
                    self.to.address, names.scope, names.collection
                );
                return Err(Broken {
                    failure: Failure::new(Sysexit::NoInput, reason),
                    again: true,
                });
            };
            let mut prefix = Vec::new();
            if self.form.collections {
                model::push_leb128(id.0, &mut prefix);
            }
            self.prefixes.insert(collection, prefix);
        }
        Ok(self.prefixes.get(&collection).map_or(&[], Vec::as_slice))
    }
}

/// Converts a change of a stream to a write; the key keeps the prefix of the source.
fn change_of<'f>(frame: &Frame<'f>, options: u32) -> Result<WithMeta<'f>, Malformed> {
    let some = |options: u32| (options != 0).then_some(MetaOptions(options));
    let known = WithMeta {
        action: MetaAction::Delete,
        quiet: true,
        key: &[],
        value: &[],
        flags: 0,
        expiry: 0,
        rev: 0,
        cas: frame.header.cas,
        options: some(options),
        extended: None,
    };
    Ok(match frame.header.opcode {
        Opcode::DCP_DELETION => {
            let message = Deletion::parse(frame)?;
            WithMeta {
                key: message.key,
                value: message.value,
                expiry: message.delete_time.unwrap_or(0),
                rev: message.rev,
                ..known
            }
        }
        Opcode::DCP_EXPIRATION => {
            let message = Expiration::parse(frame)?;
            WithMeta {
                key: message.key,
                value: message.value,
                expiry: message.delete_time,
                rev: message.rev,
                options: some(options | MetaOptions::IS_EXPIRATION.0),
                ..known
            }
        }
        _ => {
            let message = Mutation::parse(frame)?;
            WithMeta {
                action: MetaAction::Set,
                key: message.key,
                value: message.value,
                flags: message.flags,
                expiry: message.expiry,
                rev: message.rev,
                ..known
            }
        }
    })
}

/// Returns whether the bucket resolves conflicts by last write wins.
fn last_write_wins(client: &mut Client) -> Result<bool, ClientError> {
    let mut by_time = false;
    client.stat("config", |name, value| {
        if name == b"ep_conflict_resolution_type" {
            by_time = value == b"lww";
        }
        Ok::<(), ClientError>(())
    })?;
    Ok(by_time)
}
