//! Measures how fast a node applies changes as a consumer; this process is the producer.
//!
//! ```text
//! run -- vBuckets become replicas -- Producer (a thread each) -- vBuckets become active again
//! ```
//! First every connection sends its part of the changes as fast as flow control allows, in snapshots of some
//! changes for each vBucket in turn. Then the first connection sends snapshots of one change, one after the
//! other, and waits for the acknowledgement of each.

mod changes;
mod producer;

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::{Client, ClientError, Request};
use model::{Cas, VbId, VbState};
use wire::{Opcode, Status};

use super::cpu::Cpu;
use super::scene::{Scene, join};
use super::sheet::Sheet;
use crate::error::{Cause, Error, refused};
use crate::measure::Latencies;
use crate::numbers::{BYTES_PER_MIB, share, to_f64};
use crate::process::{RESIDENT, RESIDENT_PEAK, status_bytes, threads_cpu};
use crate::random::random_run;
use crate::scenario::ConsumerLoad;
use changes::{MutationEncoder, SnapshotPlan};
use producer::{BenchProducer, CHUNK_BYTES};

/// Number of keys per snapshot of one change, and largest number of these snapshots.
const SINGLE_SNAPSHOTS_SHARE: u64 = 5;
const SINGLE_SNAPSHOTS_MAX: u64 = 20_000;
/// Name of the node's threads that serve consumer connections.
const CONSUMER_THREAD: &str = "consumer";

/// Turns vBuckets into replicas, fills them, and makes them active again.
pub(super) fn run(scene: &mut Scene, load: ConsumerLoad) -> Result<Sheet, Error> {
    let mut client = scene.client()?;
    let Some(vbuckets) = client.key_form().vbuckets else {
        let reason = "--dcp: memcached has no change streams; use couchbase://";
        return Err(Error::usage(reason));
    };
    let streams = load.streams.unwrap_or(vbuckets.into());
    if streams > vbuckets.into() || streams < scene.plan.connections {
        let reason = format!(
            "--streams {streams}: the bucket has {vbuckets} vBuckets, and each of {} connections needs one",
            scene.plan.connections
        );
        return Err(Error::usage(reason));
    }
    let vbuckets: Vec<VbId> = (0..streams).map(|index| VbId(index as u16)).collect();
    set_states(&mut client, &vbuckets, VbState::Replica)?;
    let filled = fill(scene, &vbuckets, load.snapshot);
    // The vBuckets become active again, even after an error.
    let restored = set_states(&mut client, &vbuckets, VbState::Active);
    let sheet = filled?;
    restored?;
    Ok(sheet)
}

fn set_states(client: &mut Client, vbuckets: &[VbId], state: VbState) -> Result<(), Error> {
    let extras = [state as u8];
    let messages: Vec<Request<'_>> = vbuckets
        .iter()
        .map(|&vbucket| Request {
            vbucket,
            extras: &extras,
            ..Request::new(Opcode::SET_VBUCKET)
        })
        .collect();
    for answer in client.request_all(&messages)? {
        if answer.status != Status::SUCCESS {
            return Err(refused(Opcode::SET_VBUCKET, answer.status));
        }
    }
    Ok(())
}

fn fill(scene: &mut Scene, vbuckets: &[VbId], snapshot: u64) -> Result<Sheet, Error> {
    let mut producers = open_all(scene, vbuckets)?;
    scene.show("sending changes");
    let (pid, changes, connections) = (scene.target.pid, scene.plan.keys, scene.plan.connections);
    let cas = newest_cas()?;
    let value_bytes = scene.plan.sizes.least;
    let before = Usage::now(pid);
    let started = Instant::now();
    let bytes = send_all(&mut producers, snapshot, |number| {
        let keys = share(number, connections, changes);
        let part = MutationEncoder::new(value_bytes, keys.start, Cas(cas.0 + keys.start));
        Ok((part.map_err(ClientError::from)?, keys.end - keys.start))
    })?;
    let elapsed = started.elapsed();
    let after = Usage::now(pid);
    scene.show("snapshots of one change");
    let singles = (changes / SINGLE_SNAPSHOTS_SHARE).clamp(1, SINGLE_SNAPSHOTS_MAX);
    let again =
        MutationEncoder::new(value_bytes, 0, Cas(cas.0 + changes)).map_err(ClientError::from)?;
    let acknowledged = single_snapshots(&mut producers[0], again, singles)?;
    let mut sheet = Sheet::new("consumer", &[]);
    sheet.count("connections", "connections", connections.into());
    sheet.count("streams", "streams", vbuckets.len() as u64);
    let window = producers.iter().map(BenchProducer::window_bytes).sum();
    let window_mib = to_f64(window) / BYTES_PER_MIB;
    sheet.figure("window_mib", "flow-control windows, MiB", 1, window_mib);
    let seconds = elapsed.as_secs_f64().max(1e-9);
    sheet.count("changes", "changes", changes);
    sheet.change_rate(to_f64(changes), "seconds", seconds);
    let rate = to_f64(bytes) / seconds / 1e6;
    sheet.figure("mb_per_second", "MB/s", 1, rate);
    after.rows(before, &mut sheet, to_f64(changes));
    sheet.count("single_snapshots", "snapshots of one change", singles);
    let label = "snapshot sent to acknowledged";
    sheet.latencies("snapshot_to_ack", label, &[&acknowledged]);
    Ok(sheet)
}

fn open_all(scene: &mut Scene, vbuckets: &[VbId]) -> Result<Vec<BenchProducer>, Error> {
    scene.show("opening streams");
    let (run, connections, timeout) = (random_run()?, scene.plan.connections, scene.plan.timeout);
    let mut producers = Vec::new();
    for number in 0..connections {
        // Each part takes every n-th vBucket, so that the sizes of parts differ by one at most.
        let of_it = vbuckets.iter().skip(number as usize);
        let part: Vec<VbId> = of_it.step_by(connections as usize).copied().collect();
        let client = scene.client()?;
        producers.push(BenchProducer::open(client, &part, run, number, timeout)?);
    }
    Ok(producers)
}

/// Resources that the node's process has used so far, where they can be read.
#[derive(Clone, Copy, Debug)]
struct Usage {
    cpu: Cpu,
    consumer_threads: Option<Duration>,
    resident: Option<u64>,
    resident_peak: Option<u64>,
}

impl Usage {
    fn now(pid: Option<u32>) -> Self {
        let memory = |field| pid.and_then(|pid| status_bytes(pid, field));
        Self {
            cpu: Cpu::now(pid),
            consumer_threads: pid.and_then(|pid| threads_cpu(pid, CONSUMER_THREAD)),
            resident: memory(RESIDENT),
            resident_peak: memory(RESIDENT_PEAK),
        }
    }

    /// Adds the resources used since `before`, per change.
    fn rows(self, before: Self, sheet: &mut Sheet, changes: f64) {
        self.cpu.since(before.cpu).rows(sheet, changes, "change");
        if let Some((after, before)) = self.consumer_threads.zip(before.consumer_threads) {
            let us = after.saturating_sub(before).as_secs_f64() * 1e6 / changes;
            let label = "of it consumer threads, us/change";
            sheet.figure("consumer_threads_cpu_us_per_change", label, 3, us);
        }
        if let Some((after, before)) = self.resident.zip(before.resident) {
            let bytes = to_f64(after.saturating_sub(before)) / changes;
            let label = "resident bytes/change";
            sheet.figure("resident_bytes_per_change", label, 0, bytes);
        }
        if let Some(peak) = self.resident_peak {
            let mib = to_f64(peak) / BYTES_PER_MIB;
            sheet.figure("resident_peak_mib", "most resident ever, MiB", 1, mib);
        }
    }
}

/// Returns a CAS as a node would assign it, from the clock. Higher ones are unused for a while.
fn newest_cas() -> Result<Cas, Error> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.map_err(|_| Error::new(Cause::Machine, "the clock is before 1970"))?;
    Ok(Cas(since.as_nanos() as u64))
}

/// Lets every producer send its part on its own thread; returns the number of bytes.
fn send_all(
    producers: &mut [BenchProducer],
    snapshot: u64,
    part: impl Fn(u32) -> Result<(MutationEncoder, u64), Error>,
) -> Result<u64, Error> {
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, producer) in producers.iter_mut().enumerate() {
            let (changes, count) = part(number as u32)?;
            threads.push(scope.spawn(move || send_part(producer, changes, count, snapshot)));
        }
        threads.into_iter().map(join).sum()
    })
}

/// Sends `count` changes, `each` per stream in turn, and waits until the node has the last one.
fn send_part(
    producer: &mut BenchProducer,
    mut changes: MutationEncoder,
    count: u64,
    each: u64,
) -> Result<u64, Error> {
    let (mut left, mut bytes) = (count, 0);
    while left > 0 {
        let snapshot = SnapshotPlan {
            changes: each.min(left),
            ack: left <= each,
        };
        left -= snapshot.changes;
        producer.push(&mut changes, snapshot)?;
        if producer.unsent() >= CHUNK_BYTES || left == 0 {
            bytes += producer.unsent() as u64;
            producer.send()?;
        }
    }
    if count > 0 {
        producer.await_acknowledged(1)?;
    }
    Ok(bytes)
}

/// Returns the times from sending a snapshot to the acknowledgement of its end.
fn single_snapshots(
    producer: &mut BenchProducer,
    mut changes: MutationEncoder,
    count: u64,
) -> Result<Latencies, Error> {
    let mut latencies = Latencies::default();
    for _ in 0..count {
        let single = SnapshotPlan {
            changes: 1,
            ack: true,
        };
        producer.push(&mut changes, single)?;
        let started = Instant::now();
        producer.send()?;
        producer.await_acknowledged(producer.acknowledged() + 1)?;
        latencies.record(started.elapsed().as_nanos() as u64);
    }
    Ok(latencies)
}
