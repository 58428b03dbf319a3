//! Messages of etcd's JSON gateway: bytes are base64, 64-bit numbers are strings, zeros are left out.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use cluster::coord::{Answer, Compare, KeyChange, KeyValue, LeaseId, Op, Range, Request, Txn};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// A call of the gateway.
pub(crate) struct Call {
    pub(crate) path: &'static str,
    pub(crate) body: String,
}

impl Call {
    pub(crate) fn new(path: &'static str, body: &Value) -> Self {
        let body = body.to_string();
        Self { path, body }
    }

    /// Makes the call of a request.
    pub(crate) fn of(request: &Request) -> Self {
        match request {
            Request::Get(range) => Self::new("/v3/kv/range", &range_of(range)),
            Request::Txn(txn) => Self::new("/v3/kv/txn", &transaction(txn)),
            Request::Watch { prefix, from } => Self::watch(prefix, *from),
            Request::Grant { ttl_ms } => {
                let seconds = ttl_ms.div_ceil(1000).max(1).to_string();
                Self::new("/v3/lease/grant", &json!({ "TTL": seconds }))
            }
            Request::KeepAlive(lease) => Self::new("/v3/lease/keepalive", &lease_of(*lease)),
            Request::Revoke(lease) => Self::new("/v3/lease/revoke", &lease_of(*lease)),
        }
    }

    fn watch(prefix: &str, from: u64) -> Self {
        let mut create = range_of(&Range::Prefix(prefix.to_owned()));
        create["start_revision"] = from.to_string().into();
        create["progress_notify"] = true.into();
        Self::new("/v3/watch", &json!({ "create_request": create }))
    }

    /// Makes a read of the member's own state, without the other members.
    pub(crate) fn of_member(key: &str) -> Self {
        let range = json!({ "key": bytes(key), "serializable": true });
        Self::new("/v3/kv/range", &range)
    }

    /// Makes a check whether keys changed since a revision: one transaction reads the changed keys, and the
    /// number of keys then and at present.
    pub(crate) fn changed_since(prefix: &str, known: u64) -> Self {
        let range = |more: Value| {
            let mut range = range_of(&Range::Prefix(prefix.to_owned()));
            for (name, value) in more.as_object().into_iter().flatten() {
                range[name] = value.clone();
            }
            json!({ "request_range": range })
        };
        let first = (known + 1).to_string();
        let changed = range(json!({"min_mod_revision": first, "keys_only": true, "limit": "1"}));
        let then = range(json!({"revision": known.to_string(), "count_only": true}));
        let now = range(json!({"count_only": true}));
        Self::new("/v3/kv/txn", &json!({ "success": [changed, then, now] }))
    }
}

fn bytes(text: &str) -> Value {
    BASE64_STANDARD.encode(text).into()
}

fn range_of(range: &Range) -> Value {
    match range {
        Range::Key(key) => json!({ "key": bytes(key) }),
        Range::Prefix(prefix) => {
            let mut end = prefix.clone().into_bytes();
            // Text has no byte 0xff, so the next byte value exists.
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            json!({ "key": bytes(prefix), "range_end": BASE64_STANDARD.encode(end) })
        }
    }
}

fn lease_of(lease: LeaseId) -> Value {
    json!({ "ID": lease.0.to_string() })
}

fn transaction(txn: &Txn) -> Value {
    let compare = |compare: &Compare| {
        let (key, target, field, is) = match compare {
            Compare::CreateRevision(key, is) => (key, "CREATE", "create_revision", is),
            Compare::ModRevision(key, is) => (key, "MOD", "mod_revision", is),
            Compare::Version(key, is) => (key, "VERSION", "version", is),
        };
        json!({ "key": bytes(key), "target": target, field: is.to_string() })
    };
    let operation = |op: &Op| match op {
        Op::Put { key, value, lease } => {
            let lease = lease.0.to_string();
            let put = json!({ "key": bytes(key), "value": bytes(value), "lease": lease });
            json!({ "request_put": put })
        }
        Op::Delete { key } => json!({ "request_delete_range": { "key": bytes(key) } }),
    };
    let compare: Vec<Value> = txn.compare.iter().map(compare).collect();
    let then: Vec<Value> = txn.then.iter().map(operation).collect();
    json!({ "compare": compare, "success": then })
}

#[derive(Deserialize)]
pub(crate) struct AnswerHeader {
    #[serde(default, deserialize_with = "number")]
    pub(crate) revision: u64,
    #[serde(default)]
    pub(crate) cluster_id: Value,
}

/// Common part of every answer.
#[derive(Deserialize)]
pub(crate) struct Headed {
    pub(crate) header: AnswerHeader,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kv {
    #[serde(deserialize_with = "text")]
    key: String,
    #[serde(deserialize_with = "text")]
    value: String,
    #[serde(deserialize_with = "number")]
    create_revision: u64,
    #[serde(deserialize_with = "number")]
    mod_revision: u64,
    #[serde(deserialize_with = "number")]
    version: u64,
    #[serde(deserialize_with = "number")]
    lease: u64,
}

impl From<Kv> for KeyValue {
    fn from(kv: Kv) -> Self {
        Self {
            key: kv.key,
            value: kv.value,
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            lease: LeaseId(kv.lease),
        }
    }
}

#[derive(Deserialize)]
struct Ranged {
    header: AnswerHeader,
    #[serde(default)]
    kvs: Vec<Kv>,
}

#[derive(Deserialize)]
struct Transacted {
    header: AnswerHeader,
    #[serde(default)]
    succeeded: bool,
}

/// A lease that was granted or renewed.
#[derive(Deserialize)]
struct Leased {
    header: AnswerHeader,
    #[serde(default, rename = "ID", deserialize_with = "number")]
    id: u64,
    #[serde(default, rename = "TTL", deserialize_with = "number")]
    ttl: u64,
}

/// A message of a stream.
#[derive(Deserialize)]
struct Streamed<T> {
    result: Option<T>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct WatchEvent {
    #[serde(default, rename = "type")]
    kind: String,
    kv: Kv,
}

#[derive(Deserialize)]
struct Watched {
    header: AnswerHeader,
    #[serde(default)]
    created: bool,
    #[serde(default)]
    canceled: bool,
    #[serde(default, deserialize_with = "number")]
    compact_revision: u64,
    #[serde(default)]
    cancel_reason: String,
    #[serde(default)]
    events: Vec<WatchEvent>,
}

fn number<'de, D: Deserializer<'de>>(value: D) -> Result<u64, D::Error> {
    match Value::deserialize(value)? {
        Value::String(text) => text.parse().map_err(D::Error::custom),
        Value::Number(number) => number.as_u64().ok_or(D::Error::custom("a negative number")),
        _ => Err(D::Error::custom("no number")),
    }
}

fn text<'de, D: Deserializer<'de>>(value: D) -> Result<String, D::Error> {
    let encoded = String::deserialize(value)?;
    let bytes = BASE64_STANDARD.decode(encoded).map_err(D::Error::custom)?;
    String::from_utf8(bytes).map_err(D::Error::custom)
}

/// Reads an answer.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::unreadable(&error))
}

fn read_streamed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let message: Streamed<T> = read(body)?;
    match (message.result, message.error) {
        (_, Some(error)) => Err(Refusal::of(&error)),
        (Some(result), None) => Ok(result),
        (None, None) => Err(Refusal::unreadable(&"neither a result nor an error")),
    }
}

/// Reads the answer to a request other than a watch.
pub(crate) fn answer(request: &Request, body: &[u8]) -> Result<Answer, Refusal> {
    Ok(match request {
        Request::Get(_) | Request::Watch { .. } => {
            let Ranged { header, kvs } = read(body)?;
            let revision = header.revision;
            let found = kvs.into_iter().map(KeyValue::from).collect();
            Answer::Got { revision, found }
        }
        Request::Txn(_) => {
            let Transacted { header, succeeded } = read(body)?;
            if succeeded {
                Answer::Committed(header.revision)
            } else {
                Answer::Refused
            }
        }
        Request::Grant { .. } => Answer::Granted(LeaseId(read::<Leased>(body)?.id)),
        Request::KeepAlive(_) => {
            let Leased { header, ttl, .. } = read_streamed(body)?;
            match ttl {
                0 => Answer::NoLease,
                _ => Answer::KeptAlive(header.revision),
            }
        }
        Request::Revoke(_) => {
            read::<Headed>(body)?;
            Answer::Revoked
        }
    })
}

/// Reads a message of a watch; `None` if it has nothing new.
pub(crate) fn watched(message: &[u8]) -> Result<Option<(u64, Vec<KeyChange>)>, Refusal> {
    let watched: Watched = read_streamed(message)?;
    if watched.canceled {
        return Err(match watched.compact_revision {
            0 => Refusal::of(&Value::from(watched.cancel_reason)),
            _ => Refusal::Compacted,
        });
    }
    if watched.created {
        return Ok(None);
    }
    let change = |event: WatchEvent| match (&*event.kind, event.kv) {
        ("DELETE", kv) => KeyChange::Delete {
            key: kv.key,
            revision: kv.mod_revision,
        },
        (_, kv) => KeyChange::Put(kv.into()),
    };
    let changes: Vec<KeyChange> = watched.events.into_iter().map(change).collect();
    // While a watch catches up, the header has etcd's newest revision although more changes follow. Only a
    // message without changes proves that everything up to its revision was sent.
    let last = changes.iter().map(KeyChange::revision).max();
    Ok(Some((last.unwrap_or(watched.header.revision), changes)))
}

/// Reads the answer to [`Call::changed_since`]: the revision up to which nothing changed.
pub(crate) fn unchanged_until(body: &[u8]) -> Result<Option<u64>, Refusal> {
    #[derive(Deserialize)]
    struct RangeAnswer {
        response_range: Counted,
    }
    #[derive(Deserialize)]
    struct Counted {
        #[serde(default)]
        kvs: Vec<Value>,
        #[serde(default, deserialize_with = "number")]
        count: u64,
    }
    #[derive(Deserialize)]
    struct Ranges {
        header: AnswerHeader,
        responses: Vec<RangeAnswer>,
    }
    let Ranges { header, responses } = read(body)?;
    let [changed, then, now] = &responses[..] else {
        return Err(Refusal::unreadable(&"not three ranges"));
    };
    let changed = changed.response_range.kvs.is_empty();
    let same = then.response_range.count == now.response_range.count;
    Ok((changed && same).then_some(header.revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(request: &Request) -> String {
        Call::of(request).body
    }

    #[test]
    fn requests_are_those_of_the_gateway() {
        let get = |range| body(&Request::Get(range));
        assert_eq!(get(Range::Key("/a".to_owned())), r#"{"key":"L2E="}"#);
        let prefix = get(Range::Prefix("/a/".to_owned()));
        assert_eq!(prefix, r#"{"key":"L2Ev","range_end":"L2Ew"}"#);
        let (prefix, from) = ("/a/".to_owned(), 7);
        let watch: Value = serde_json::from_str(&body(&Request::Watch { prefix, from })).unwrap();
        let created =
            json!({"key":"L2Ev","range_end":"L2Ew","start_revision":"7","progress_notify":true});
        assert_eq!(watch, json!({ "create_request": created }));
        let key = "/a".to_owned();
        let txn = Txn {
            compare: vec![Compare::ModRevision(key.clone(), 9)],
            then: vec![
                Op::Put {
                    key: key.clone(),
                    value: "v".to_owned(),
                    lease: LeaseId(u64::MAX >> 1),
                },
                Op::Delete { key },
            ],
        };
        let txn: Value = serde_json::from_str(&body(&Request::Txn(txn))).unwrap();
        let compare = json!({"key":"L2E=","target":"MOD","mod_revision":"9"});
        let put =
            json!({"request_put":{"key":"L2E=","value":"dg==","lease":"9223372036854775807"}});
        let delete = json!({"request_delete_range":{"key":"L2E="}});
        assert_eq!(txn, json!({"compare":[compare],"success":[put,delete]}));
    }

    #[test]
    fn times_to_live_are_rounded_up_to_seconds() {
        for (ttl_ms, seconds) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (5000, "5")] {
            let asked = body(&Request::Grant { ttl_ms });
            assert_eq!(asked, format!(r#"{{"TTL":"{seconds}"}}"#));
        }
    }

    #[test]
    fn watch_reports_the_revision_of_its_last_change_or_empty_message() {
        let known = |message: &str| watched(message.as_bytes()).unwrap();
        let created = r#"{"result":{"header":{"revision":"9"},"created":true}}"#;
        assert_eq!(known(created), None);
        let progress = r#"{"result":{"header":{"revision":"9"}}}"#;
        assert_eq!(known(progress), Some((9, vec![])));
        let some = r#"{"result":{"header":{"revision":"9"},"events":[
            {"kv":{"key":"L2E=","create_revision":"2","mod_revision":"4","version":"2","value":"dg==","lease":"5"}},
            {"type":"DELETE","kv":{"key":"L2I=","mod_revision":"5"}}]}}"#;
        let put = KeyChange::Put(KeyValue {
            key: "/a".to_owned(),
            value: "v".to_owned(),
            create_revision: 2,
            mod_revision: 4,
            version: 2,
            lease: LeaseId(5),
        });
        let (key, revision) = ("/b".to_owned(), 5);
        let delete = KeyChange::Delete { key, revision };
        assert_eq!(known(some), Some((5, vec![put, delete])));
    }

    #[test]
    fn end_of_a_watch_contains_the_reason() {
        let end = |message: &str| watched(message.as_bytes()).unwrap_err();
        let compacted =
            r#"{"result":{"header":{"revision":"9"},"canceled":true,"compact_revision":"7"}}"#;
        assert_eq!(end(compacted), Refusal::Compacted);
        for other in [
            r#"{"result":{"header":{},"canceled":true,"cancel_reason":"etcdserver: no leader"}}"#,
            r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}"#,
            r#"{"result":{"events":[]}}"#,
            r#"{"result":{"header":{"revision":"9"},"events":[{"kv":{"key":"%"}}]}}"#,
            r#"{"result":{"header":{"revision":-1}}}"#,
            "<html>",
            "{}",
        ] {
            assert!(matches!(end(other), Refusal::Problem(_)), "{other}");
        }
    }

    #[test]
    fn renewal_with_zero_ttl_means_no_lease() {
        let answer = |message: &str| answer(&Request::KeepAlive(LeaseId(1)), message.as_bytes());
        let gone = r#"{"result":{"header":{"revision":"2"},"ID":"1234"}}"#;
        assert_eq!(answer(gone), Ok(Answer::NoLease));
        let there = r#"{"result":{"header":{"revision":"2"},"ID":"1234","TTL":"5"}}"#;
        assert_eq!(answer(there), Ok(Answer::KeptAlive(2)));
    }

    #[test]
    fn keys_are_unchanged_if_none_is_newer_and_none_was_deleted() {
        let known = |changed: &str, then: &str, now: &str| {
            let answer = format!(
                r#"{{"header":{{"revision":"20"}},"succeeded":true,"responses":[
                {{"response_range":{{{changed}}}}},{{"response_range":{{{then}}}}},{{"response_range":{{{now}}}}}]}}"#
            );
            unchanged_until(answer.as_bytes()).unwrap()
        };
        let (none, two, three) = ("", r#""count":"2""#, r#""count":"3""#);
        assert_eq!(known(r#""count":"2""#, two, two), Some(20));
        assert_eq!(known(none, none, none), Some(20));
        assert_eq!(known(none, three, two), None);
        assert_eq!(known(r#""kvs":[{"key":"L2E="}]"#, two, two), None);
    }
}
