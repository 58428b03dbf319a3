//! Scripts: one operation a line, `verb arguments -> answer`.
//!
//! `#` begins a comment. The first line is a comment that describes the script. Options of an
//! operation follow its arguments as `name=value`: `cas=NAME` (a saved CAS, or a number),
//! `save=NAME`, `expiry=+SECONDS`, `flags=N`, `initial=N`, `items=N`, `history=N`,
//! `level=majority|active|persist`, `timeout=SECONDS`, and the words `preserve` and `snappy`.
//!
//! A document is shown as `key@seqno`, with a mark after the key: `!` for a tombstone, `?` for a
//! prepare, `+` for a commit, `-` for an abort.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use ::collections::SystemEvent;
use engine::{
    Arithmetic, Concat, ConcatPlace, DocumentPart, FetchKey, FlushBatch, FlushBudget, FlushItem,
    GetResult, Mutated, ObserveState, OpError, Outcome, Restored, StoreMode, VBucket, VbConfig,
    Write,
};
use model::{
    Cas, CollectionId, Datatype, Document, Draft, FailoverEntry, Kind, Meta, Now, Seqno, VbId,
    VbState, VbUuid,
};

use crate::store::{ModelStore, TestCodec, reread};
use crate::streams::Stream;

mod collections;
pub(crate) use self::collections::erase;
mod durable;
mod follow;
mod reading;

const START: Now = Now {
    unix_ns: 1_700_000_000_000_000_000,
    mono_ns: 1_000_000_000,
};

struct World {
    vbucket: VBucket,
    config: Arc<VbConfig>,
    store: ModelStore,
    batch: Option<FlushBatch>,
    streams: BTreeMap<String, Stream>,
    now: Now,
    saved: BTreeMap<String, Cas>,
    uuids: u64,
}

/// One parsed line.
struct Line<'a> {
    words: Vec<&'a str>,
    options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Self {
        let (options, words) = text.split_whitespace().partition::<Vec<_>, _>(|word| {
            word.contains('=') && !word.starts_with('{') || matches!(*word, "preserve" | "snappy")
        });
        let options = options
            .into_iter()
            .map(|word| word.split_once('=').unwrap_or((word, "")))
            .collect();
        Self { words, options }
    }

    fn word(&self, index: usize) -> &'a str {
        self.words.get(index).copied().unwrap_or("")
    }

    /// Returns a key: `ID:KEY`, or only the key for the default collection.
    fn key(&self, index: usize) -> Vec<u8> {
        stored_key(self.word(index))
    }

    fn number(&self, index: usize) -> u64 {
        self.word(index)
            .trim_start_matches('+')
            .parse()
            .expect("a number")
    }

    fn option(&self, name: &str) -> Option<u64> {
        self.options
            .get(name)
            .map(|text| text.trim_start_matches('+').parse().expect("a number"))
    }
}

fn stored_key(text: &str) -> Vec<u8> {
    let (id, key) = text.split_once(':').unwrap_or(("0", text));
    let id = CollectionId(id.parse().expect("a collection"));
    model::collection_key(id, key.as_bytes())
}

fn key_shown(key: &[u8]) -> String {
    if SystemEvent::is_key(key) {
        return key[1..].escape_ascii().to_string();
    }
    match model::split_key(key) {
        Some((CollectionId::DEFAULT, key)) => key.escape_ascii().to_string(),
        Some((id, key)) => format!("{}:{}", id.0, key.escape_ascii()),
        None => panic!("a key without a collection: {key:?}"),
    }
}

type Answer = Result<String, OpError>;

fn mutated(outcome: Outcome<Mutated>) -> Outcome<(String, Option<Cas>)> {
    match outcome {
        Outcome::Done(done) => Outcome::Done((format!("seqno {}", done.seqno), Some(done.cas))),
        Outcome::Prepared(done) => {
            Outcome::Done((format!("prepared {}", done.seqno), Some(done.cas)))
        }
        Outcome::NeedsFetch(fetch) => Outcome::NeedsFetch(fetch),
    }
}

fn got(outcome: Outcome<GetResult>) -> Outcome<(String, Option<Cas>)> {
    match outcome {
        Outcome::Done(got) | Outcome::Prepared(got) => Outcome::Done((shown(&got), Some(got.cas))),
        Outcome::NeedsFetch(fetch) => Outcome::NeedsFetch(fetch),
    }
}

fn shown(got: &GetResult) -> String {
    let mut text = got.document.value().escape_ascii().to_string();
    if got.document.flags() != 0 {
        write!(text, " flags {}", got.document.flags()).unwrap();
    }
    if got.document.datatype() == Datatype::JSON {
        text.push_str(" json");
    }
    if got.cas == Cas::LOCKED {
        text.push_str(" locked");
    }
    text
}

fn named(document: &Document) -> String {
    let mark = match document.kind() {
        Kind::Mutation => "",
        Kind::Deletion | Kind::Expiration => "!",
        Kind::Prepare => "?",
        Kind::PrepareDeletion => "!?",
        Kind::Commit => "+",
        Kind::CommitDeletion => "!+",
        Kind::Abort => "-",
    };
    format!("{}{mark}@{}", key_shown(document.key()), document.seqno())
}

fn or_nothing(parts: &[String]) -> String {
    if parts.is_empty() {
        "nothing".into()
    } else {
        parts.join("; ")
    }
}

impl World {
    fn new() -> Self {
        let config = Arc::new(VbConfig {
            value_bytes_max: 1000,
            ..VbConfig::default()
        });
        let mut world = Self {
            vbucket: Self::vbucket(&config),
            config,
            store: ModelStore::default(),
            batch: None,
            streams: BTreeMap::new(),
            now: START,
            saved: BTreeMap::new(),
            uuids: 1,
        };
        world.flush();
        world
    }

    fn vbucket(config: &Arc<VbConfig>) -> VBucket {
        let first = FailoverEntry {
            uuid: VbUuid(1),
            seqno: Seqno(0),
        };
        VBucket::new(VbId(0), VbState::Active, first, Arc::clone(config))
    }

    fn cas(&self, line: &Line<'_>) -> Cas {
        let Some(name) = line.options.get("cas") else {
            return Cas::ANY;
        };
        let saved = self.saved.get(*name).copied();
        saved.unwrap_or_else(|| Cas(name.parse().expect("a saved CAS or a number")))
    }

    fn expiry(&self, seconds: Option<u64>) -> u32 {
        seconds.map_or(0, |seconds| {
            self.now.unix_s() + u32::try_from(seconds).unwrap()
        })
    }

    /// Shows an outcome. Saves its CAS under the name given by the line.
    fn show(
        &mut self,
        line: &Line<'_>,
        outcome: Result<Outcome<(String, Option<Cas>)>, OpError>,
    ) -> Answer {
        match outcome? {
            Outcome::Done((text, cas)) | Outcome::Prepared((text, cas)) => {
                if let (Some(name), Some(cas)) = (line.options.get("save"), cas) {
                    self.saved.insert((*name).into(), cas);
                }
                Ok(text)
            }
            Outcome::NeedsFetch(FetchKey { key, wanted }) => Ok(match wanted {
                DocumentPart::Value(seqno) => format!("fetch {}@{seqno}", key_shown(&key)),
                DocumentPart::Row(_) => format!("fetch whole {}", key_shown(&key)),
                DocumentPart::Metadata(_) => format!("fetch metadata of {}", key_shown(&key)),
            }),
        }
    }

    fn run(&mut self, line: &Line<'_>) -> Answer {
        match line.word(0) {
            "set" => self.store(line, StoreMode::Set),
            "add" => self.store(line, StoreMode::Add),
            "replace" => self.store(line, StoreMode::Replace),
            "append" => self.concat(line, ConcatPlace::Append),
            "prepend" => self.concat(line, ConcatPlace::Prepend),
            "incr" => self.count(line, false),
            "decr" => self.count(line, true),
            "get" | "get-replica" | "touch" | "lock" | "delete" | "unlock" | "meta" | "random" => {
                self.document(line)
            }
            "flush" => Ok(self.flush()),
            "flush-begin" => Ok(self.flush_begin(line)),
            "flush-ok" => Ok(self.flush_end(true, true)),
            "flush-fail" => Ok(self.flush_end(false, false)),
            "flush-fail-but-written" => Ok(self.flush_end(false, true)),
            "evict" | "evict-cold" | "restore" | "expire" | "erase" => Ok(self.memory(line)),
            "stream" | "read" | "drop" | "close" | "behind" => Ok(self.stream(line)),
            "marker" | "apply" | "rollback" | "progress" => Ok(self.follow(line)),
            "observe" | "observe-seqno" => self.observe(line),
            "state" | "restart" | "config" | "clock" | "keep" => Ok(self.change_world(line)),
            "collections" | "manifest" => {
                Ok(collections::run(&mut self.vbucket, &line.words, self.now))
            }
            other => match durable::run(&mut self.vbucket, &line.words, self.now) {
                Some(answer) => answer,
                None => Ok(self.figures(other)),
            },
        }
    }

    fn store(&mut self, line: &Line<'_>, mode: StoreMode) -> Answer {
        let expiry = self.expiry(line.option("expiry"));
        let flags = u32::try_from(line.option("flags").unwrap_or(0)).unwrap();
        let snappy = line.options.contains_key("snappy");
        let datatype = if snappy {
            Datatype::SNAPPY
        } else {
            Datatype::RAW
        };
        let meta = Meta {
            expiry,
            flags,
            datatype,
            ..Meta::default()
        };
        let value = match line.word(2).strip_prefix("bytes:") {
            Some(count) => "x".repeat(count.parse().unwrap()),
            None => line.word(2).into(),
        };
        let draft = Some(Draft::new(&line.key(1), value.as_bytes(), &meta));
        let preserve_expiry = line.options.contains_key("preserve");
        let mut write = Write {
            mode,
            draft,
            cas: self.cas(line),
            preserve_expiry,
            durability: durable::requirement(&line.options, self.now),
        };
        let outcome = self.vbucket.store(&mut write, self.now).map(mutated);
        assert_eq!(
            write.draft.is_none(),
            matches!(outcome, Ok(Outcome::Done(_) | Outcome::Prepared(_)))
        );
        self.show(line, outcome)
    }

    fn concat(&mut self, line: &Line<'_>, place: ConcatPlace) -> Answer {
        let concat = Concat {
            key: &line.key(1),
            bytes: line.word(2).as_bytes(),
            place,
            cas: self.cas(line),
            durability: durable::requirement(&line.options, self.now),
        };
        let outcome = self
            .vbucket
            .concat(concat, &TestCodec, self.now)
            .map(mutated);
        self.show(line, outcome)
    }

    fn count(&mut self, line: &Line<'_>, decrement: bool) -> Answer {
        let arithmetic = Arithmetic {
            delta: line.number(2),
            decrement,
            initial: line.option("initial"),
            expiry: self.expiry(line.option("expiry")),
            cas: Cas::ANY,
            touch: None,
            durability: durable::requirement(&line.options, self.now),
        };
        let outcome = self
            .vbucket
            .arithmetic(&line.key(1), arithmetic, &TestCodec, self.now);
        let outcome = outcome.map(|outcome| match outcome {
            Outcome::Done(counted) => {
                Outcome::Done((counted.number.to_string(), Some(counted.mutated.cas)))
            }
            Outcome::Prepared(counted) => {
                let done = counted.mutated;
                let prepared = format!("prepared {} {}", done.seqno, counted.number);
                Outcome::Done((prepared, Some(done.cas)))
            }
            Outcome::NeedsFetch(fetch) => Outcome::NeedsFetch(fetch),
        });
        self.show(line, outcome)
    }

    fn document(&mut self, line: &Line<'_>) -> Answer {
        let (key, now) = (&line.key(1), self.now);
        let cas = self.cas(line);
        let vbucket = &mut self.vbucket;
        let outcome = match line.word(0) {
            "get" => vbucket.get(key, now).map(got),
            "get-replica" => vbucket.get_replica(key, false, now).map(got),
            "delete" => {
                let durability = durable::requirement(&line.options, now);
                let outcome = vbucket.delete(key, cas, durability, now);
                outcome.map(mutated)
            }
            "lock" => {
                let seconds = line.words.get(2).map_or(0, |text| text.parse().unwrap());
                vbucket.get_locked(key, seconds, now).map(got)
            }
            "touch" => {
                let seconds = Some(line.number(2)).filter(|&seconds| seconds != 0);
                let expiry = self.expiry(seconds);
                self.vbucket
                    .touch(key, expiry, now)
                    .map(|outcome| match outcome {
                        Outcome::Done(got) | Outcome::Prepared(got) => {
                            let text = format!("{} seqno {}", shown(&got), got.document.seqno());
                            Outcome::Done((text, Some(got.cas)))
                        }
                        Outcome::NeedsFetch(fetch) => Outcome::NeedsFetch(fetch),
                    })
            }
            "unlock" => return vbucket.unlock(key, cas, now).map(|_| "unlocked".into()),
            "random" => {
                let found = vbucket.random_document(CollectionId::DEFAULT, line.number(1), now)?;
                return Ok(found.map_or("none".into(), |got| named(&got.document)));
            }
            _ => return self.meta(key),
        };
        self.show(line, outcome)
    }

    fn meta(&mut self, key: &[u8]) -> Answer {
        let Outcome::Done(found) = self.vbucket.get_meta(key, self.now)? else {
            return Ok("fetch".into());
        };
        let meta = found.meta;
        let mut text = format!("seqno {} rev {} flags {}", meta.seqno, meta.rev, meta.flags);
        if meta.expiry != 0 {
            let seconds = i64::from(meta.expiry) - i64::from(self.now.unix_s());
            write!(text, " expiry {seconds:+}").unwrap();
        }
        if found.deleted {
            text.push_str(" deleted");
        }
        if found.cas == Cas::LOCKED {
            text.push_str(" locked");
        }
        Ok(text)
    }

    fn flush(&mut self) -> String {
        while let Some(batch) = self
            .vbucket
            .begin_flush(FlushBudget::ALL, &mut engine::SpareBuffers::default())
        {
            self.store.commit(&batch);
            drop(self.vbucket.finish_flush(batch.done(true)));
        }
        format!("persisted {}", self.vbucket.persisted_seqno())
    }

    fn flush_begin(&mut self, line: &Line<'_>) -> String {
        let items = line
            .option("items")
            .map_or(usize::MAX, |items| items as usize);
        let budget = FlushBudget {
            items,
            bytes: usize::MAX,
        };
        let Some(batch) = self
            .vbucket
            .begin_flush(budget, &mut engine::SpareBuffers::default())
        else {
            return "none".into();
        };
        let mut parts = Vec::new();
        batch.for_each(&mut |item| {
            parts.push(match item {
                FlushItem::Put {
                    document,
                    supersedes: Seqno::ZERO,
                } => named(document),
                FlushItem::Put {
                    document,
                    supersedes,
                } => {
                    format!("{} for {supersedes}", named(document))
                }
                FlushItem::Remove { seqno, .. } => format!("remove {seqno}"),
                FlushItem::Keep(document) => format!("keep {}", named(document)),
            });
        });
        let record = &batch.record;
        let range = record.snapshot;
        let text = format!(
            "{} | {}, {}..{}",
            or_nothing(&parts),
            record.high_seqno,
            range.start,
            range.end
        );
        self.batch = Some(batch);
        text
    }

    fn flush_end(&mut self, ok: bool, written: bool) -> String {
        let batch = self.batch.take().expect("a flush under way");
        if written {
            self.store.commit(&batch);
        }
        drop(self.vbucket.finish_flush(batch.done(ok)));
        format!("persisted {}", self.vbucket.persisted_seqno())
    }

    fn memory(&mut self, line: &Line<'_>) -> String {
        if line.word(0) == "erase" {
            return collections::erase(&mut self.vbucket, &mut self.store);
        }
        if line.word(0) != "restore" && line.word(0) != "evict" {
            return self.pass(line);
        }
        let key = &line.key(1);
        match line.word(0) {
            "evict" if self.vbucket.evict(key, self.now) => "evicted".into(),
            "evict" => "kept".into(),
            _ => {
                let Some(row) = self.store.row(key).map(reread) else {
                    return "no row".into();
                };
                let asked = FetchKey {
                    wanted: DocumentPart::Value(row.seqno()),
                    key: key.as_slice().into(),
                };
                match self.vbucket.restore(&asked, Some(row)) {
                    Restored::Done => "restored".into(),
                    _ => "ignored".into(),
                }
            }
        }
    }

    /// Runs a pass over all documents.
    fn pass(&mut self, line: &Line<'_>) -> String {
        if line.word(0) == "expire" {
            let progress = self.vbucket.expire_due(usize::MAX, self.now);
            assert!(progress.finished);
            return format!("expired {}", progress.changed);
        }
        let slots = line.number(1) as usize;
        let progress = self
            .vbucket
            .evict_cold(slots, usize::MAX, self.now, &mut Vec::new());
        format!("evicted {}", progress.changed)
    }

    fn observe(&mut self, line: &Line<'_>) -> Answer {
        if line.word(0) == "observe" {
            let outcome = self.vbucket.observe(&line.key(1), self.now)?;
            let Outcome::Done(observed) = outcome else {
                return Ok("fetch".into());
            };
            return Ok(match observed.state {
                ObserveState::FoundPersisted => "persisted".into(),
                ObserveState::FoundNotPersisted => "not persisted".into(),
                ObserveState::NotFound => "not found".into(),
                ObserveState::Deleted => "deleted".into(),
            });
        }
        let uuid = line
            .option("history")
            .unwrap_or(self.vbucket.failover_log().newest().uuid.0);
        let seen = self.vbucket.observe_seqno(VbUuid(uuid))?;
        let mut text = format!("persisted {} current {}", seen.persisted, seen.current);
        if let Some(old) = seen.failover {
            write!(text, ", history {} until {}", old.uuid.0, old.seqno).unwrap();
        }
        Ok(text)
    }

    fn change_world(&mut self, line: &Line<'_>) -> String {
        match line.word(0) {
            "clock" => {
                let nanoseconds = line.number(1) * 1_000_000_000;
                self.now.unix_ns += nanoseconds;
                self.now.mono_ns += nanoseconds;
                "set".into()
            }
            "keep" => {
                self.vbucket.set_keeps_history(line.word(1) == "on");
                line.word(1).into()
            }
            "state" => {
                let state = (1..=4).filter_map(VbState::from_wire);
                let state = state.into_iter().find(|state| state.name() == line.word(1));
                self.uuids += 1;
                let topology = line.words.get(2).map(|text| (*text).into());
                self.vbucket
                    .set_state(state.expect("a state"), topology, VbUuid(self.uuids));
                line.word(1).into()
            }
            "config" => {
                let mut config = (*self.config).clone();
                config.max_ttl_s = line.option("max_ttl").unwrap_or(0) as u32;
                config.durability_min = durable::level(&line.options, "least");
                let most = durable::level(&line.options, "most");
                config.durability_max = most.unwrap_or(config.durability_max);
                config.keeps_history = line.words.contains(&"history");
                let bytes = line.option("checkpoint_bytes");
                config.checkpoint_bytes_max = bytes.unwrap_or(1 << 20) as usize;
                self.config = Arc::new(config);
                self.vbucket = Self::vbucket(&self.config);
                self.store = ModelStore::default();
                self.flush();
                "set".into()
            }
            _ => {
                let unclean = line.word(1) == "unclean";
                self.uuids += u64::from(unclean);
                let history = unclean.then_some(VbUuid(self.uuids));
                let restarted = self.store.warm_up(Arc::clone(&self.config), history);
                let (vbucket, stale) = restarted.expect("a record in the store");
                self.vbucket = vbucket;
                self.batch = None;
                format!("items {}, stale {stale}", self.vbucket.items())
            }
        }
    }

    fn figures(&mut self, what: &str) -> String {
        let stats = self.vbucket.stats();
        let checkpoints = self.vbucket.checkpoint_stats();
        match what {
            "rows" => or_nothing(&self.store.rows.values().map(named).collect::<Vec<_>>()),
            "history" => or_nothing(&self.store.history.values().map(named).collect::<Vec<_>>()),
            "histories" => {
                let entries = self.vbucket.failover_log().entries().iter();
                let parts: Vec<_> = entries
                    .map(|entry| format!("{}@{}", entry.uuid.0, entry.seqno))
                    .collect();
                or_nothing(&parts)
            }
            "checkpoints" => format!(
                "open {} from {} to {}, {} in all, items {}, dirty {}",
                checkpoints.open_id,
                checkpoints.snapshot_start,
                checkpoints.snapshot_end,
                checkpoints.checkpoints,
                checkpoints.items,
                checkpoints.dirty_items,
            ),
            "counts" => format!(
                "items {}, tombstones {}, non-resident {}, de-duplicated {}",
                stats.items, stats.tombstones, stats.non_resident, checkpoints.deduplicated,
            ),
            "pressure" => {
                let pressure = self.vbucket.checkpoint_pressure();
                let name = |cursor| {
                    let mut named = self.streams.iter();
                    named
                        .find(|(_, stream)| stream.cursor == Some(cursor))
                        .map(|(name, _)| name.clone())
                };
                match pressure.slowest {
                    Some(slowest) => format!("slowest {}", name(slowest.cursor).expect("a stream")),
                    None => "none to drop".into(),
                }
            }
            "outbox" => {
                let outbox = self.vbucket.take_outbox();
                let mut parts = Vec::new();
                if outbox.needs_flush {
                    parts.push("flush".into());
                }
                if outbox.changed {
                    parts.push("changed".into());
                }
                parts.extend(outbox.persisted.map(|seqno| format!("persisted {seqno}")));
                or_nothing(&parts)
            }
            other => panic!("no such verb: {other}"),
        }
    }
}

fn run_script(name: &str, text: &str) {
    assert!(
        text.starts_with("# "),
        "{name}: the first line says what the script shows"
    );
    let mut world = World::new();
    world.vbucket.take_outbox();
    let mut checked = 0;
    for (index, line) in text.lines().enumerate() {
        let line = line
            .split_once('#')
            .map_or(line, |(before, _)| before)
            .trim();
        if line.is_empty() {
            continue;
        }
        let (operation, expected) = line
            .split_once("->")
            .unwrap_or_else(|| panic!("{name}:{}: no answer", index + 1));
        let answer = world.run(&Line::parse(operation));
        let answer = answer.unwrap_or_else(|error| error.to_string());
        assert_eq!(answer, expected.trim(), "{name}:{}: {operation}", index + 1);
        checked += 1;
    }
    assert!(checked > 0, "{name}: nothing in it");
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run_script(
                stringify!($name),
                include_str!(concat!("../scripts/", stringify!($name), ".txt")),
            );
        })*

        #[test]
        #[expect(clippy::disallowed_methods, reason = "looks for scripts that nobody runs")]
        fn every_script_is_run() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/scripts");
            let names = [$(stringify!($name)),*];
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap();
                assert!(names.contains(&name), "{} is not in the list", path.display());
            }
        }
    };
}

scripts! {
    cas_and_modes
    checkpoints_roll
    collections_come_and_go
    collections_dropped_while_prepared
    collections_are_erased
    collections_follow
    collections_ttl
    counters
    deduplication
    disk_snapshots_stay_apart
    durable_acknowledgements
    durable_checkpoints
    durable_failover
    durable_flush
    durable_histories
    durable_levels
    durable_restart
    durable_replica
    durable_timeouts
    durable_topologies
    durable_visibility
    expiry
    failed_flush
    flush_and_restart
    get_and_lock
    histories
    history_is_kept
    history_of_replicas
    history_of_replicas_in_parts
    late_times
    joining
    metadata
    non_resident
    observe
    partial_flush
    states
    stream_cursor_dropped
    replica_checkpoints
    replica_promoted_in_a_snapshot
    replica_refuses
    replica_resumes_a_snapshot
    replica_restarted_in_a_snapshot
    rollback
    streams_de_duplicate
    streams_are_told_once
    streams_of_a_checkpoint
    streams_read_whole_snapshots
    touch
    ttl_limit
    whole_tables
}
