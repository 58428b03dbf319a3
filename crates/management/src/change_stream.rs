//! `GET /changes/BUCKET`: the changes of a bucket as server-sent events.
//!
//! ```text
//! id: s1.AAEC...                 a position, once a second at most while there is news
//! event: mutation                or deletion, expiration, rollback
//! data: {"event":"mutation",...  the line that `settee tail` writes
//! ```
//! A client can continue a stream: it sends the last `id` in the header `Last-Event-ID`, as browsers do by themselves,
//! or in the query (`?since=`). Events after that id come again, and none is left out. With `keys=only` values are
//! neither read nor sent; with `versions=all` every version that a bucket with history keeps is sent. `scope=`, `collection=` (of the default scope, unless one is named) and `vbuckets=1,5-9`
//! filter the changes; the positions of other vBuckets stay as they are. A reader that does not read delays only its
//! own stream.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap};
use axum::response::{IntoResponse, Response};
use bucket::Reservation;
use futures_util::stream;
use identity::AuthenticatedUser;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{self, Instant};

use super::answers::{self, HandlerResult};
use crate::closing::stopped;
use crate::feed::{
    ChangeSelection, Feed, FeedEvent, FeedTurn, NoFeed, RemainingText, Start, TextPart,
};
use crate::state::HttpState;
use changes::{Shown, void_after};

/// Largest number of change streams at a time; each holds a stream of every vBucket.
pub(super) const CHANGES_MAX: usize = 64;

/// Largest number of vBucket ids and ranges in a request.
const VBUCKET_RANGES_MAX: usize = 1024;

/// Interval between positions while there is news.
const ID_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the heartbeat of a quiet stream, and its text.
const HEARTBEAT: Duration = Duration::from_secs(15);
const ALIVE: &[u8] = b":\n\n";
/// Interval at which an idle feed is checked without a ring.
const LOOK: Duration = Duration::from_millis(500);

/// Parameters of the query.
#[derive(Deserialize)]
pub(super) struct StreamQuery {
    since: Option<String>,
    keys: Option<String>,
    versions: Option<String>,
    scope: Option<String>,
    collection: Option<String>,
    vbuckets: Option<String>,
}

/// One open stream.
struct Events {
    feed: Feed,
    /// The rest of the last change, if its value is large.
    remaining: Option<RemainingText>,
    closing: watch::Receiver<bool>,
    /// Time when the last position was sent; `None` before the first one.
    named_at: Option<Instant>,
    /// True if an event was sent after the last position.
    unnamed: bool,
    sent_at: Instant,
    over: bool,
    _slot: OwnedSemaphorePermit,
}

/// Streams until the client leaves, the bucket is gone, the user loses the right to the changes, or the node stops.
pub(super) async fn open(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
    Path(bucket): Path<String>,
    Query(options): Query<StreamQuery>,
    headers: HeaderMap,
) -> HandlerResult {
    let selection = parse_selection(&headers, options);
    let selection =
        selection.map_err(|reason| answers::refusal(StatusCode::BAD_REQUEST, &reason))?;
    let Ok(slot) = std::sync::Arc::clone(&state.changes).try_acquire_owned() else {
        let reason = "Too many streams of changes are open.";
        return Err(answers::refusal(StatusCode::SERVICE_UNAVAILABLE, reason));
    };
    let feed = state
        .view
        .changes(&bucket, &selection, user)
        .map_err(refused)?;
    let events = Events {
        feed,
        remaining: None,
        closing: state.closing.clone(),
        named_at: None,
        unnamed: true,
        sent_at: Instant::now(),
        over: false,
        _slot: slot,
    };
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache, no-store"),
    ];
    let body = Body::from_stream(stream::unfold(events, Events::next));
    Ok((StatusCode::OK, headers, body).into_response())
}

fn refused(why: NoFeed) -> Response {
    let (status, reason) = match why {
        NoFeed::NoBucket => return answers::not_found(),
        NoFeed::NoPart => {
            let reason = "The bucket has no such scope or collection.";
            (StatusCode::NOT_FOUND, reason)
        }
        NoFeed::Forbidden => {
            let permissions = ["data.dcp!read", "data.dcpstream!read"];
            return answers::forbidden(&permissions);
        }
        NoFeed::NoVbucket => {
            let reason = "The bucket has no vBucket of such a number.";
            (StatusCode::BAD_REQUEST, reason)
        }
        NoFeed::OtherBucket => {
            let reason = "The position is of a bucket with another number of vBuckets.";
            (StatusCode::BAD_REQUEST, reason)
        }
    };
    answers::refusal(status, reason)
}

/// Parses the parameters of the query.
fn parse_selection(headers: &HeaderMap, options: StreamQuery) -> Result<ChangeSelection, String> {
    let keys_only = is_chosen("keys", "only", options.keys.as_deref())?;
    let all_versions = is_chosen("versions", "all", options.versions.as_deref())?;
    let vbuckets = match options.vbuckets.as_deref() {
        None => Vec::new(),
        Some(text) => vbuckets(text).ok_or("Use vbuckets=1,5-9: numbers and ranges of them.")?,
    };
    Ok(ChangeSelection {
        start: start(headers, options.since.as_deref())?,
        keys_only,
        all_versions,
        scope: options.scope,
        collection: options.collection,
        vbuckets,
    })
}

/// Whether a parameter that has one possible value is there.
fn is_chosen(name: &str, only: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        Some(value) if value != only => Err(format!("Use {name}={only}, or leave it out.")),
        value => Ok(value.is_some()),
    }
}

/// Parses vBucket ids and ranges, separated by commas.
fn vbuckets(text: &str) -> Option<Vec<(u16, u16)>> {
    let parts = text.split(',').take(VBUCKET_RANGES_MAX + 1);
    let ranges = parts.map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some((first, last))
    });
    let ranges: Option<Vec<_>> = ranges.collect();
    ranges.filter(|ranges| ranges.len() <= VBUCKET_RANGES_MAX)
}

/// Returns the start of the stream. The header of a client that continues takes precedence over the query.
fn start(headers: &HeaderMap, since: Option<&str>) -> Result<Start, String> {
    let header = headers.get("last-event-id");
    let header = header.map(|value| value.to_str().map_err(|_| "a position is plain text"));
    let text = match header.transpose()? {
        Some(id) if !id.is_empty() => id,
        _ => since.unwrap_or("now"),
    };
    match text {
        "now" => Ok(Start::Now),
        "beginning" => Ok(Start::Beginning),
        _ => text
            .parse()
            .map(Start::At)
            .map_err(|error| format!("Use now, beginning or a position: {error}.")),
    }
}

impl Events {
    /// Returns the next piece of text. The caller asks for it only after it wrote the previous one.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let bell = self.feed.bell();
        if let Some(remaining) = self.remaining.take() {
            return self.go_on(remaining);
        }
        while !self.over && !*self.closing.borrow() {
            if let Reservation::Wait { retry, .. } = self.feed.reserve() {
                if self.sent_at.elapsed() >= HEARTBEAT {
                    self.sent_at = Instant::now();
                    return Some((Ok(Bytes::from_static(ALIVE)), self));
                }
                tokio::select! {
                    biased;
                    () = stopped(&mut self.closing) => return None,
                    () = time::sleep(retry) => continue,
                }
            }
            let (mut text, fed) = self.turn();
            self.over = fed == FeedTurn::Over;
            if text.is_empty() && self.sent_at.elapsed() >= HEARTBEAT {
                text.extend_from_slice(ALIVE);
            }
            if !text.is_empty() {
                self.sent_at = Instant::now();
                let piece = Bytes::from_owner(self.feed.piece(text));
                return Some((Ok(piece), self));
            }
            match fed {
                FeedTurn::More | FeedTurn::Over => tokio::task::yield_now().await,
                FeedTurn::Idle => tokio::select! {
                    biased;
                    () = stopped(&mut self.closing) => return None,
                    () = bell.notified() => {}
                    () = time::sleep(LOOK) => {}
                },
            }
        }
        None
    }

    /// Returns the next part of a large value.
    fn go_on(mut self, mut remaining: RemainingText) -> Option<(Result<Bytes, Infallible>, Self)> {
        let mut text = Vec::new();
        match remaining.part(self.feed.mono_ns(), &mut text) {
            TextPart::More => self.remaining = Some(remaining),
            TextPart::Last => {}
            TextPart::Gone => return None,
        }
        self.sent_at = Instant::now();
        Some((Ok(text.into()), self))
    }

    /// Runs one turn of the feed and returns its text. If it ends within a change, `remaining` holds the rest.
    fn turn(&mut self) -> (Vec<u8>, FeedTurn) {
        let (mut text, mut last, mut has_event) = (Vec::new(), 0, false);
        let mut large = None;
        if self.named_at.is_none() {
            text.extend_from_slice(b"retry: 1000\n\n");
        }
        let fed = self.feed.turn(|news| {
            (last, has_event) = (text.len(), true);
            large = event(&news, &mut text);
        });
        if let Some((shown, tail)) = large {
            let loan = self.feed.take_large();
            self.remaining = loan.map(|loan| RemainingText::new(loan, shown, tail));
        }
        self.unnamed |= has_event;
        let due = |at: Instant| at.elapsed() >= ID_INTERVAL;
        if self.unnamed && self.named_at.is_none_or(due) {
            // Put the id into the last event, if there is one: some readers ignore ids without an event.
            let id = format!("id: {}\n", self.feed.position());
            if has_event {
                text.splice(last..last, id.into_bytes());
            } else {
                text.extend_from_slice(id.as_bytes());
                text.push(b'\n');
            }
            self.unnamed = false;
            self.named_at = Some(Instant::now());
        }
        (text, fed)
    }
}

/// Appends an event. A large value is left out: then this returns its form, and the text behind it.
fn event(news: &FeedEvent<'_>, out: &mut Vec<u8>) -> Option<(Shown, Vec<u8>)> {
    const END: &[u8] = b"\n\n";
    out.extend_from_slice(b"event: ");
    match news {
        FeedEvent::Large(change, shown) => {
            out.extend_from_slice(change.event.name().as_bytes());
            out.extend_from_slice(b"\ndata: ");
            let mut tail = Vec::new();
            change.write_json_around(*shown, out, &mut tail);
            tail.extend_from_slice(END);
            return Some((*shown, tail));
        }
        FeedEvent::Change(change) => {
            out.extend_from_slice(change.event.name().as_bytes());
            out.extend_from_slice(b"\ndata: ");
            change.write_json(out);
        }
        FeedEvent::Rollback(vbucket, seqno) => {
            out.extend_from_slice(b"rollback\ndata: ");
            void_after(*vbucket, *seqno, out);
        }
    }
    out.extend_from_slice(END);
    None
}

#[cfg(test)]
mod tests {
    use changes::Position;

    use super::*;

    fn headers(id: &'static str) -> HeaderMap {
        HeaderMap::from_iter([("last-event-id".parse().unwrap(), id.parse().unwrap())])
    }

    #[test]
    fn the_last_event_id_takes_precedence_over_the_query() {
        let position = Position::beginning(4);
        let text: &'static str = position.to_string().leak();
        let at = Ok(Start::At(position));
        assert_eq!(start(&HeaderMap::new(), None), Ok(Start::Now));
        assert_eq!(
            start(&HeaderMap::new(), Some("beginning")),
            Ok(Start::Beginning)
        );
        assert_eq!(start(&HeaderMap::new(), Some(text)), at);
        assert_eq!(start(&headers(text), Some("beginning")), at);
        assert_eq!(start(&headers(""), Some("beginning")), Ok(Start::Beginning));
        assert!(start(&headers("s1.x"), None).is_err());
        assert!(start(&HeaderMap::new(), Some("yesterday")).is_err());
    }

    #[test]
    fn an_event_is_a_block() {
        let mut out = Vec::new();
        event(
            &FeedEvent::Rollback(model::VbId(3), model::Seqno(4)),
            &mut out,
        );
        let expected = "event: rollback\ndata: {\"event\":\"rollback\",\"vb\":3,\"seqno\":4}\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
