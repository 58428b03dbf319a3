//! Range scans: create, continue, cancel.

mod answers;
mod ask;

use std::sync::Arc;
use std::time::Duration;

use bucket::{ScanError, ScanId, ScanNext, ScanRequest, ScanRun};
use engine::OpError;
use model::{Datatype, Seqno, VbId, VbState, VbUuid};
use registry::{BucketKind, ServedBucket};
use wire::request::{RangeScanCancel, RangeScanContinue, RangeScanCreate};
use wire::{Feature, Frame, Header, Message, Status};

use crate::context::Context;
use crate::outcome::{CommandOutcome, CommandResult, Refusal};
use crate::reply::Reply;
use crate::scanning::{ContinuingScan, OPEN_WAIT, OpeningScan, RequiredSeqno, Scanning, active};
use answers::Answers;

/// Interval at which a wait for rows checks that the scan still exists.
const ROWS_WAIT: Duration = Duration::from_secs(10);
/// Rows that are taken out of a scan at a time. The scan is locked meanwhile.
const ROWS_AT_ONCE: usize = 256;
/// Bytes of output that are sent before more is added.
const OUTPUT_BYTES: usize = 256 << 10;

/// RANGE_SCAN_CREATE: answered with the UUID of the scan once its view is open, see `settle.rs`.
pub(super) fn create(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let bucket = context.bucket()?;
    let registered = match context.session.scan.take().map(|scan| *scan) {
        Some(Scanning::Awaiting(needs)) => Some(needs),
        _ => None,
    };
    let request = RangeScanCreate::read(frame)?;
    let wrong = |reason: &'static str| Refusal::invalid(reason);
    if !frame.header.datatype.contains(Datatype::JSON) {
        return Err(wrong("the datatype must be JSON"));
    }
    let (ask, asked) = ask::read(frame.vbucket(), request.json).map_err(wrong)?;
    if ask.attributes && !context.session.has(Feature::XATTR) {
        return Err(wrong("extended attributes were not negotiated"));
    }
    if bucket.kind() == BucketKind::Ephemeral {
        return Err(Refusal::because(
            Status::NOT_SUPPORTED,
            "buckets in memory have no range scans",
        ));
    }
    if !bucket.bucket.knows_collection(ask.collection) {
        return Err(Refusal::UnknownCollection);
    }
    let session = &context.session;
    session.check_collection(ask.collection, context.privileges)?;
    if let Some(parked) = await_view(context, &bucket, ask.vb, (asked, registered))? {
        return Ok(parked);
    }
    begin(context, (&bucket, ask), frame.header)
}

/// Waits until the view can contain what was asked for: by default every change that was acknowledged before the
/// request. `None` once it can. A vBucket that is emptied meanwhile has another history, and the default begins anew.
fn await_view(
    context: &mut Context<'_>,
    bucket: &ServedBucket,
    vb: VbId,
    (asked, mut registered): (Option<RequiredSeqno>, Option<RequiredSeqno>),
) -> Result<Option<CommandOutcome>, Refusal> {
    let waker = context.session.waker();
    loop {
        let point = point(bucket, vb)?;
        if registered.is_some_and(|needs| needs.uuid != point.uuid) {
            bucket.bucket.forget_waiter(&waker);
            registered = None;
        }
        let needs = asked.or(registered).unwrap_or(RequiredSeqno {
            uuid: point.uuid,
            seqno: point.high,
            wait: OPEN_WAIT,
        });
        if needs.uuid != point.uuid {
            return Err(Refusal::because(
                Status::VB_UUID_NOT_EQUAL,
                "the vBucket has another history",
            ));
        }
        if point.persisted >= needs.seqno {
            return Ok(None);
        }
        if registered == Some(needs) {
            return park(context, bucket, needs).map(Some);
        }
        // The next round finds what happened before the wait was added.
        bucket
            .bucket
            .await_persisted(vb, needs.seqno, Arc::clone(&waker));
        registered = Some(needs);
    }
}

/// History of an active vBucket, and its ends in memory and on disk.
struct Point {
    uuid: VbUuid,
    high: Seqno,
    persisted: Seqno,
}

fn point(bucket: &ServedBucket, vb: VbId) -> Result<Point, Refusal> {
    let point = bucket.bucket.run(vb, |vbucket| match vbucket.state() {
        VbState::Active => Ok(Point {
            uuid: vbucket.failover_log().newest().uuid,
            high: vbucket.high_seqno(),
            persisted: vbucket.persisted_seqno(),
        }),
        _ => Err(OpError::NotMyVbucket),
    })?;
    Ok(point)
}

/// Parks a request whose wait is registered, within its limit.
fn park(
    context: &mut Context<'_>,
    bucket: &ServedBucket,
    needs: RequiredSeqno,
) -> Result<CommandOutcome, Refusal> {
    let park = context.park();
    let waited = Duration::from_nanos(context.now.mono_ns.saturating_sub(park.since_ns));
    let limit = needs.wait.min(context.session.node.waits.persistence);
    if waited >= limit {
        bucket.bucket.forget_waiter(&context.session.waker());
        return Err(Refusal::not_now("the seqno is not durable yet"));
    }
    context.session.scan = Some(Box::new(Scanning::Awaiting(needs)));
    Ok(CommandOutcome::Parked(limit.saturating_sub(waited)))
}

/// Begins a scan. Its answer is owed until its view is open, so that the scans of a pipeline are opened together.
fn begin(
    context: &mut Context<'_>,
    (bucket, ask): (&Arc<ServedBucket>, ScanRequest),
    header: Header,
) -> CommandResult {
    let mut id = ScanId([0; 16]);
    let session = &mut *context.session;
    session.node.env.fill_random(&mut id.0);
    let scan = match bucket.bucket.begin_scan(id, ask, session.waker())? {
        Ok(scan) => scan,
        // Scans of this pipeline that are not open yet may turn out to be empty, and free their slots.
        Err(ScanError::Busy) if !session.opening.is_empty() => {
            return Err(Refusal::Parked(OPEN_WAIT));
        }
        Err(error) => return Err(error.into()),
    };
    session.opening.push_back(OpeningScan {
        header,
        bucket: Arc::clone(bucket),
        scan,
        since_ns: context.now.mono_ns,
        is_answered: false,
    });
    Ok(CommandOutcome::Owed)
}

/// RANGE_SCAN_CONTINUE: answers with rows, then a last answer.
pub(super) fn go_on(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = RangeScanContinue::read(frame)?;
    let bucket = context.bucket()?;
    let vb = frame.vbucket();
    let mut continuing = match context.session.scan.take().map(|scan| *scan) {
        Some(Scanning::Continuing(continuing)) => continuing,
        _ => start(context, &bucket, vb, ScanId(request.id))?,
    };
    let collection = continuing.run.scan().ask().collection;
    let session = &context.session;
    session.check_collection(collection, context.privileges)?;
    let done = answer(context, frame, &request, &mut continuing)?;
    if done == CommandOutcome::Next {
        continuing.run.pause();
    } else {
        context.park();
        context.session.scan = Some(Box::new(Scanning::Continuing(continuing)));
    }
    Ok(done)
}

fn start(
    context: &Context<'_>,
    bucket: &ServedBucket,
    vb: VbId,
    id: ScanId,
) -> Result<ContinuingScan, Refusal> {
    active(bucket, vb)?;
    let gone = || Refusal::because(Status::KEY_ENOENT, "there is no such range scan");
    let scan = bucket.bucket.scan(vb, id).ok_or_else(gone)?;
    match scan.opened() {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            bucket.bucket.cancel_scan(vb, id);
            return Err(error.into());
        }
        // The client does not have the UUID of this scan yet.
        None => return Err(gone()),
    }
    let run = ScanRun::begin(&bucket.bucket, &scan).ok_or_else(|| {
        Refusal::because(
            Status::EBUSY,
            "somebody goes on with this range scan already",
        )
    })?;
    Ok(ContinuingScan {
        run,
        items: 0,
        bytes: 0,
        since_ns: context.now.mono_ns,
    })
}

/// Answers with as many rows as are ready and fit.
fn answer(
    context: &mut Context<'_>,
    frame: &Frame<'_>,
    request: &RangeScanContinue,
    continuing: &mut ContinuingScan,
) -> CommandResult {
    let unlimited = |limit: u32| {
        if limit == 0 {
            usize::MAX
        } else {
            limit as usize
        }
    };
    let (items_max, bytes_max) = (unlimited(request.items_max), unlimited(request.bytes_max));
    let waker = context.session.waker();
    let mut answers = Answers::new(continuing.run.scan().ask());
    let mut added = 0;
    loop {
        let items = items_max.saturating_sub(continuing.items).min(ROWS_AT_ONCE);
        let bytes = bytes_max.saturating_sub(continuing.bytes).min(OUTPUT_BYTES);
        let taken = continuing.run.take(items, bytes, &waker);
        for row in &taken.rows {
            let bytes = answers.add(context, frame, row)?;
            continuing.bytes = continuing.bytes.saturating_add(bytes);
            added += bytes;
        }
        continuing.items = continuing.items.saturating_add(taken.rows.len());
        let late = request.time_ms_max > 0 && {
            let since_ns = context
                .session
                .node
                .clock
                .mono_ns()
                .saturating_sub(continuing.since_ns);
            since_ns / 1_000_000 >= u64::from(request.time_ms_max)
        };
        let enough = continuing.items >= items_max || continuing.bytes >= bytes_max || late;
        match taken.next {
            ScanNext::Complete => {
                return Ok(answers.last(context, frame, Status::RANGE_SCAN_COMPLETE));
            }
            ScanNext::Ended(error) => {
                answers.flush(context, frame);
                let bucket = context.bucket()?;
                active(&bucket, frame.vbucket())?;
                return Err(match error {
                    ScanError::CollectionGone => Refusal::UnknownCollection,
                    _ => Status::RANGE_SCAN_CANCELLED.into(),
                });
            }
            ScanNext::More | ScanNext::Wait if enough => {
                return Ok(answers.last(context, frame, Status::RANGE_SCAN_MORE));
            }
            ScanNext::Wait => {
                answers.flush(context, frame);
                return Ok(CommandOutcome::Parked(ROWS_WAIT));
            }
            ScanNext::More if added >= OUTPUT_BYTES => {
                answers.flush(context, frame);
                return Ok(CommandOutcome::More);
            }
            ScanNext::More => {}
        }
    }
}

/// RANGE_SCAN_CANCEL.
pub(super) fn cancel(context: &mut Context<'_>, frame: &Frame<'_>) -> CommandResult {
    let request = RangeScanCancel::read(frame)?;
    let bucket = context.bucket()?;
    active(&bucket, frame.vbucket())?;
    if bucket
        .bucket
        .cancel_scan(frame.vbucket(), ScanId(request.id))
    {
        return Ok(context.reply(frame, &Reply::EMPTY));
    }
    Err(Refusal::because(
        Status::KEY_ENOENT,
        "there is no such range scan",
    ))
}
