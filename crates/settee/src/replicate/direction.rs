//! One direction: the changes of one bucket on their way to another one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use changes::{Collections, Position, StreamMessage, Streams};
use client::{Client, ClientError, ConnectOptions, Feed, KeyForm, Outgoing, Request, SaltedCache};
use model::{CollectionId, split_key};
use wire::dcp::{Deletion, Expiration, Mutation, OpenFlags, flow_bytes_of};
use wire::request::{MetaAction, MetaOptions, WithMeta};
use wire::{Frame, Malformed, Message as _, Opcode};

use super::counts::Counts;
use super::echo::Echo;
use super::state::StateFile;
use super::writer::Writer;
use crate::exit::{Failure, Sysexit};
use crate::stream::{
    Asking, Broken, TICK, Window, collections_of, is_on_one_node, malformed, silent, violation,
};
use crate::tail::{CollectionPart, Interrupt};

/// How long one wait for bytes is while something is under way; [`TICK`] else.
const MOMENT: Duration = Duration::from_millis(1);
/// Without a byte for so long the connection is dead: noops come three times as often.
const SILENCE: Duration = Duration::from_mins(1);
/// Longest age of the position after a kill; later changes are offered again.
const KEEP_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes that the stream may send ahead.
const STREAM_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// What both directions, and all of their connections, know of each other.
pub(super) struct Shared {
    pub(super) state: StateFile,
    pub(super) interrupt: Interrupt,
    /// A direction failed for good.
    pub(super) stops: AtomicBool,
    pub(super) counts: [Counts; 2],
    /// What each direction has sent.
    pub(super) echoes: [Echo; 2],
    pub(super) filter: Option<CollectionPart>,
    pub(super) until_now: bool,
    pub(super) tells_conflicts: bool,
}

/// One direction, from its first connection to its last.
pub(super) struct Direction<'a> {
    pub(super) shared: &'a Shared,
    /// Which of the two.
    pub(super) index: usize,
    pub(super) from: ConnectOptions,
    pub(super) to: ConnectOptions,
    /// Where it is: everything up to here is on disk at the other side.
    pub(super) position: Option<Position>,
    pub(super) caches: [SaltedCache; 2],
}

impl Direction<'_> {
    fn counts(&self) -> &Counts {
        &self.shared.counts[self.index]
    }

    /// Follows the changes over one connection to each side, until there is an end.
    ///
    /// # Errors
    /// A connection broke, or a server refuses.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let shared = self.shared;
        let [source, target] = &mut self.caches;
        // Values go as they are stored where both sides take compressed ones, else plain.
        let mut target = Client::connect(&compressed(&self.to, true), target)?;
        let from = compressed(&self.from, target.is_compressed());
        let mut source = Client::connect(&from, source)?;
        is_on_one_node(&source)?;
        is_on_one_node(&target)?;
        let by_time = last_write_wins(&mut source)?;
        if by_time != last_write_wins(&mut target)? {
            let reason = "the buckets resolve conflicts in different ways (conflictResolutionType)";
            return Err(Failure::new(Sysexit::Config, reason).into());
        }
        let collections = collections_of(&mut source)?;
        let there = collections_of(&mut target)?;
        let part = shared.filter.as_ref();
        let filter = part.map(|part| collections.filter(&part.scope, part.collection.as_deref()));
        let filter = match filter {
            None => String::new(),
            Some(Some(filter)) => filter,
            Some(None) => {
                let reason = format!("{} has no such scope or collection", self.from.address);
                return Err(Failure::new(Sysexit::NoInput, reason).into());
            }
        };
        let vbuckets = source.key_form().vbuckets.unwrap_or(0);
        let position = self
            .position
            .get_or_insert_with(|| Position::beginning(vbuckets));
        if position.places.len() != usize::from(vbuckets) {
            let reason = "the state is of a bucket with another number of vBuckets";
            return Err(Failure::new(Sysexit::Data, reason).into());
        }
        let mut streams = Streams::from(position.clone());
        let flags = OpenFlags::INCLUDE_XATTRS
            .with(OpenFlags::INCLUDE_DELETE_TIMES)
            .with(OpenFlags::INCLUDE_DELETED_USER_XATTRS);
        source.open_streams("settee-replicate", flags, STREAM_WINDOW_BYTES)?;
        let expiry = Request::with(Opcode::DCP_CONTROL, b"enable_expiry_opcode", b"true");
        source.request(&expiry)?;
        if shared.until_now {
            streams.end_at(source.high_seqnos()?);
        }
        let (keyed, form) = (source.key_form().collections, target.key_form());
        let writer = Writer::new(target, &shared.counts[self.index], shared.tells_conflicts)?;
        let session = Session {
            streams,
            collections,
            keyed,
            asking: Asking::new(filter),
            there,
            form,
            prefixes: HashMap::new(),
            options: if by_time {
                MetaOptions::FORCE_ACCEPT.0
            } else {
                0
            },
            writer,
            window: Window::new(STREAM_WINDOW_BYTES as usize / 8),
            moved: false,
            keeping: Keeping::Nothing,
            kept_at: Instant::now(),
            direction: self,
        };
        session.run(&mut Feed::new(source))
    }
}

/// How to connect where compressed values may be asked for.
fn compressed(options: &ConnectOptions, compressed: bool) -> ConnectOptions {
    ConnectOptions {
        compressed,
        ..options.clone()
    }
}

/// How far a position is on its way into the state file.
enum Keeping {
    Nothing,
    /// The other side has yet to answer everything before this batch.
    Answered(u64, Position),
    /// The other side has yet to have it on disk.
    Persisted(Position),
}

/// One pair of connections.
struct Session<'s, 'd> {
    direction: &'s mut Direction<'d>,
    streams: Streams,
    /// Of the bucket that is read.
    collections: Collections,
    keyed: bool,
    asking: Asking,
    /// Of the bucket that is written.
    there: Collections,
    form: KeyForm,
    /// What stands before a user's key over there, by the collection here.
    prefixes: HashMap<CollectionId, Vec<u8>>,
    options: u32,
    writer: Writer<'d>,
    window: Window,
    /// Something came since the position was kept.
    moved: bool,
    keeping: Keeping,
    kept_at: Instant,
}

impl Session<'_, '_> {
    fn run(mut self, feed: &mut Feed) -> Result<(), Broken> {
        let shared = self.direction.shared;
        let mut heard = Instant::now();
        loop {
            let ends = shared.interrupt.is_asked()
                || shared.stops.load(Ordering::Relaxed)
                || self.streams.all_done();
            self.asking.ask(&mut self.streams, feed.output())?;
            feed.flush()?;
            let room = self.writer.has_room() && !ends;
            if room {
                let calm = self.writer.is_idle() && matches!(self.keeping, Keeping::Nothing);
                if feed.wait(if calm { TICK } else { MOMENT })? {
                    heard = Instant::now();
                } else if heard.elapsed() > SILENCE {
                    return Err(silent(SILENCE));
                }
                while feed.take(|frame, out| self.on_frame(frame, out))?.is_some() {}
            } else {
                heard = Instant::now();
            }
            self.writer.send()?;
            if !self.writer.is_idle() {
                self.writer.receive(if room { MOMENT } else { TICK })?;
            }
            self.window.add(self.writer.take_acknowledged());
            self.window
                .acknowledge(feed.output(), self.writer.is_idle())?;
            self.keep(ends)?;
            if ends && !self.moved && matches!(self.keeping, Keeping::Nothing) {
                return Ok(());
            }
        }
    }

    /// Keeps the position from time to time, once the other side has everything on disk.
    fn keep(&mut self, at_once: bool) -> Result<(), Broken> {
        self.keeping = match std::mem::replace(&mut self.keeping, Keeping::Nothing) {
            Keeping::Nothing => {
                let due = at_once || self.kept_at.elapsed() >= KEEP_INTERVAL;
                if !self.moved || !due {
                    return Ok(());
                }
                self.moved = false;
                self.writer.send()?;
                Keeping::Answered(self.writer.batch(), self.streams.position())
            }
            Keeping::Answered(number, position) if self.writer.is_done_before(number) => {
                self.writer.begin_observing();
                Keeping::Persisted(position)
            }
            Keeping::Persisted(position) if self.writer.is_persisted() => {
                let direction = &mut *self.direction;
                direction.shared.state.save(direction.index, &position)?;
                direction.position = Some(position);
                self.kept_at = Instant::now();
                Keeping::Nothing
            }
            waiting => waiting,
        };
        Ok(())
    }

    fn on_frame(&mut self, frame: &Frame<'_>, out: &mut Outgoing) -> Result<(), Broken> {
        let magic = frame.header.magic;
        if magic.is_client_response() {
            return self.on_answer(frame);
        }
        if !magic.is_client_request() {
            return Ok(());
        }
        self.on_message(frame, out)?;
        self.writer.count_flow(flow_bytes_of(frame));
        Ok(())
    }

    fn on_answer(&mut self, frame: &Frame<'_>) -> Result<(), Broken> {
        if self.asking.on_answer(frame, &mut self.streams)?.is_some() {
            // What it lost the other side may still have: that is offered back, if it may be.
            Counts::add(&self.direction.counts().rollbacks);
            self.moved = true;
        }
        Ok(())
    }

    fn on_message(&mut self, frame: &Frame<'_>, out: &mut Outgoing) -> Result<(), Broken> {
        let told = changes::take(frame, &mut self.streams, self.keyed).map_err(violation)?;
        match told {
            StreamMessage::Change(change) => {
                self.moved = true;
                self.on_change(change.collection, frame)?;
            }
            StreamMessage::System(event) => {
                self.moved = true;
                self.collections.learn(&event);
            }
            other => self.asking.on_other(&other, frame, out)?,
        }
        Ok(())
    }

    fn on_change(&mut self, collection: CollectionId, frame: &Frame<'_>) -> Result<(), Broken> {
        let (shared, index) = (self.direction.shared, self.direction.index);
        let change = change_of(frame, self.options).map_err(malformed)?;
        let user_key = if self.keyed {
            split_key(change.key).map_or(change.key, |(_, key)| key)
        } else {
            change.key
        };
        let vbucket = self.form.vbucket(user_key);
        let there = self.writer.history(vbucket);
        if shared.echoes[1 - index].take(&change, user_key, there) {
            self.writer.skip(vbucket);
            Counts::add(&self.direction.counts().echoes);
            return Ok(());
        }
        let here = self.streams.history(frame.vbucket());
        shared.echoes[index].note(&change, user_key, here);
        let mut key = self.prefix_of(collection)?.to_vec();
        key.extend_from_slice(user_key);
        let change = WithMeta {
            key: &key,
            ..change
        };
        self.writer.write(&change, vbucket, frame.header.datatype)?;
        Ok(())
    }

    /// What stands before a user's key in the collection of the same name.
    fn prefix_of(&mut self, collection: CollectionId) -> Result<&[u8], Broken> {
        if !self.prefixes.contains_key(&collection) {
            let names = self.collections.names(collection);
            let Some(id) = self.there.id_of(names) else {
                let reason = format!(
                    "{} has no collection {}.{}",
                    self.direction.to.address, names.scope, names.collection
                );
                return Err(Failure::new(Sysexit::NoInput, reason).into());
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

/// The change of a stream as a write; the key is as it came.
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
            let told = Deletion::parse(frame)?;
            WithMeta {
                key: told.key,
                value: told.value,
                expiry: told.delete_time.unwrap_or(0),
                rev: told.rev,
                ..known
            }
        }
        Opcode::DCP_EXPIRATION => {
            let told = Expiration::parse(frame)?;
            WithMeta {
                key: told.key,
                value: told.value,
                expiry: told.delete_time,
                rev: told.rev,
                options: some(options | MetaOptions::IS_EXPIRATION.0),
                ..known
            }
        }
        _ => {
            let told = Mutation::parse(frame)?;
            WithMeta {
                action: MetaAction::Set,
                key: told.key,
                value: told.value,
                flags: told.flags,
                expiry: told.expiry,
                rev: told.rev,
                ..known
            }
        }
    })
}

/// Whether the last write wins in the bucket.
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
