//! Management at a node that follows another one: requests are forwarded to the active node.
//!
//! SDKs send management requests to any node of a map. Changes of buckets, their collections, users and groups belong
//! to the active node, and so does everything that this node does not have. Such a request is forwarded with the
//! credentials of its caller, which the active node checks, and its answer is returned unchanged. A forwarded request
//! is not forwarded again: two nodes that each take the other for the active one do not send it in a circle. A caller
//! with a certificate has no credentials to forward: this node checks its rights, and then sends the request on its
//! behalf.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, LOCATION, WWW_AUTHENTICATE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::{task, time};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::answers::{self, HandlerResult};
use super::peer::Peer;
use super::{access, audited, permits};
use crate::state::HttpState;
use crate::view::ActiveNode;

/// Header that marks a forwarded request.
const HANDED_ON: HeaderName = HeaderName::from_static("settee-handed-on");
/// Time limit to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of the answer: the creation of a bucket takes a while.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Header with the edition of users after a change.
const EDITION: HeaderName = HeaderName::from_static("settee-users");
/// Time limit for changed users to arrive here, and interval between two looks.
const USERS_TIMEOUT: Duration = Duration::from_secs(2);
const USERS_LOOK: Duration = Duration::from_millis(5);
/// Largest answer that is accepted, bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Headers of an answer that its caller needs.
const TOLD: [HeaderName; 5] = [
    CONTENT_TYPE,
    CACHE_CONTROL,
    LOCATION,
    WWW_AUTHENTICATE,
    EDITION,
];

/// Subject of a call that may be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForwardedCall {
    /// The creation of buckets.
    Node,
    /// Users and groups. The answer to a change waits until this node has the change as well: clients log in to each
    /// node.
    Users,
    /// The list of buckets. This node answers if the active node cannot.
    List,
    /// The collections of the bucket in the path. This node answers if the active node cannot and this node has the
    /// bucket; newer collections may be missing then.
    Collections,
    /// The bucket in the path.
    Bucket,
    /// The bucket in the path, if this node does not have it.
    MissingBucket,
}

/// Returns the subject of a call that may be forwarded.
fn concerns(method: &Method, path: &str) -> Option<ForwardedCall> {
    let reads = method.is_safe();
    match path.strip_prefix("/pools/default/buckets") {
        Some("" | "/") if reads => Some(ForwardedCall::List),
        Some("" | "/") => Some(ForwardedCall::Node),
        Some("/{bucket}/scopes") if reads => Some(ForwardedCall::Collections),
        Some("/{bucket}") if reads => Some(ForwardedCall::MissingBucket),
        Some("/{bucket}/scopes/@ensureManifest/{uid}") => Some(ForwardedCall::MissingBucket),
        Some("/{bucket}" | "/{bucket}/controller/doFlush") => Some(ForwardedCall::Bucket),
        Some(below) if below.starts_with("/{bucket}/scopes") => Some(ForwardedCall::Bucket),
        Some(_) => None,
        None => {
            let users = path.starts_with("/settings/rbac/users")
                || path.starts_with("/settings/rbac/groups")
                || path == "/controller/changePassword";
            users.then_some(ForwardedCall::Users)
        }
    }
}

/// Forwards a request if the active node must answer it.
pub(super) async fn to_active(
    State(state): State<HttpState>,
    peer: Peer,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> HandlerResult {
    let path = request.extensions().get::<MatchedPath>();
    let concerns = path.and_then(|path| concerns(request.method(), path.as_str()));
    let (Some(concerns), Ok(parameters)) = (concerns, parameters) else {
        return Ok(next.run(request).await);
    };
    let named = parameters.iter().find(|(name, _)| *name == "bucket");
    let bucket = named.map(|(_, bucket)| bucket.to_owned());
    if request.headers().contains_key(HANDED_ON) {
        let answer = next.run(request).await;
        return Ok(with_edition(&state, concerns, answer));
    }
    let certified = peer.user.clone();
    let known = bucket
        .as_ref()
        .is_some_and(|name| state.view.bucket_settings(name).is_some());
    if known && concerns == ForwardedCall::MissingBucket {
        return Ok(next.run(request).await);
    }
    let own = concerns == ForwardedCall::List || known && concerns == ForwardedCall::Collections;
    let there = active_node(&state, bucket, certified.is_some()).await;
    let Some(there) = there else {
        return Ok(next.run(request).await);
    };
    if certified.is_none() {
        access::take_turn(&state, &peer, request.headers()).await?;
    } else {
        let user = access::authenticate(&state, &peer, request.headers()).await?;
        let refused = path.and_then(|path| {
            permits::check(&user.access, request.method(), path.as_str(), &parameters)
        });
        refused.map_or(Ok(()), Err)?;
    }
    let (mut head, body, _held) = access::take_body(&state, request).await?;
    let there = there.and_then(|there| {
        if let Some(user) = certified {
            ask_for(&mut head.headers, &there, &user)?;
        }
        Ok(there)
    });
    let answer = match there {
        Ok(there) => ask(&there, &head, body.clone()).await,
        Err(why) => Err(why),
    };
    match answer {
        Ok(answer) => {
            let refused = answer.status() == StatusCode::UNAUTHORIZED;
            if refused && own {
                // A user of this node need not exist at the active node.
                return Ok(next.run(Request::from_parts(head, body.into())).await);
            }
            if refused && peer.user.is_some() {
                return Err(unavailable("it does not take the credentials of this node"));
            }
            state.view.note_login(peer.address, !refused);
            if refused {
                audited::login_failed(&state, &peer, None);
            }
            let edition = edition_of(&answer).filter(|_| !head.method.is_safe());
            if let Some(edition) = edition {
                users_come(&state, edition).await;
            }
            Ok(answer)
        }
        Err(_) if own => Ok(next.run(Request::from_parts(head, body.into())).await),
        Err(why) => Err(unavailable(&why)),
    }
}

fn unavailable(why: &str) -> Response {
    let reason = format!("This node follows another one, which has to do this: {why}");
    answers::refusal(StatusCode::SERVICE_UNAVAILABLE, &reason)
}

/// Adds the credentials of this node, and the user on whose behalf it acts, to the head of a request.
fn ask_for(headers: &mut HeaderMap, there: &ActiveNode, user: &str) -> Result<(), String> {
    let unfit = |_| "a name that no header can carry".to_owned();
    let behalf = STANDARD.encode(format!("{user}:local"));
    headers.insert(
        access::ON_BEHALF_OF,
        HeaderValue::try_from(behalf).map_err(unfit)?,
    );
    headers.remove(AUTHORIZATION);
    if let Some((name, password)) = &there.login {
        let login = STANDARD.encode(format!("{name}:{}", password.as_str()));
        let login = HeaderValue::try_from(format!("Basic {login}")).map_err(unfit)?;
        headers.insert(AUTHORIZATION, login);
    }
    Ok(())
}

/// Adds the edition of users to an answer for a following node.
fn with_edition(state: &HttpState, concerns: ForwardedCall, mut answer: Response) -> Response {
    if concerns == ForwardedCall::Users && answer.status().is_success() {
        let edition = state.view.identity().edition();
        answer.headers_mut().insert(EDITION, edition.into());
    }
    answer
}

/// Returns the edition in an answer.
fn edition_of(answer: &Response) -> Option<u64> {
    answer.headers().get(&EDITION)?.to_str().ok()?.parse().ok()
}

/// Waits until this node has the users of an edition.
async fn users_come(state: &HttpState, edition: u64) {
    let come = async {
        while state.view.identity().edition() < edition {
            time::sleep(USERS_LOOK).await;
        }
    };
    if time::timeout(USERS_TIMEOUT, come).await.is_err() {
        tracing::warn!("users that were changed at the active node are not here yet");
    }
}

async fn active_node(
    state: &HttpState,
    bucket: Option<String>,
    as_itself: bool,
) -> Option<Result<ActiveNode, String>> {
    let view = Arc::clone(&state.view);
    let found = task::spawn_blocking(move || view.active_node(bucket.as_deref(), as_itself));
    found.await.ok().flatten()
}

/// Sends a request to the active node and returns its answer.
async fn ask(there: &ActiveNode, head: &Parts, body: Bytes) -> Result<Response, String> {
    let at = there.authority();
    let lost = |why: &dyn std::fmt::Display| format!("{at}: {why}");
    let exchanged = time::timeout(ANSWER_TIMEOUT, exchange(there, request(&at, head, body)?));
    let answer = match exchanged.await {
        Ok(answer) => answer.map_err(|why| lost(&why))?,
        Err(_) => return Err(lost(&"no answer in time")),
    };
    let (from, body) = answer.into_parts();
    let body = time::timeout(ANSWER_TIMEOUT, to_bytes(body, ANSWER_BYTES_MAX)).await;
    let body = body.map_err(|_| lost(&"no whole answer in time"))?;
    let body = body.map_err(|why| lost(&why))?;
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = from.status;
    for name in TOLD {
        if let Some(value) = from.headers.get(&name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    Ok(answer)
}

/// Builds the forwarded request. Of the headers, it keeps the credentials and the type of the body.
fn request(at: &str, head: &Parts, body: Bytes) -> Result<Request, String> {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = head.method.clone();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|_| "a path that is none".to_owned())?;
    let headers = request.headers_mut();
    for name in [AUTHORIZATION, access::ON_BEHALF_OF, CONTENT_TYPE] {
        if let Some(value) = head.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let host = HeaderValue::try_from(at).map_err(|_| format!("{at}: a host that is none"))?;
    headers.insert(HOST, host);
    headers.insert(HANDED_ON, HeaderValue::from_static("1"));
    Ok(request)
}

async fn exchange(there: &ActiveNode, request: Request) -> Result<Response, String> {
    let connected = TcpStream::connect((&*there.host, there.port));
    let connected = time::timeout(CONNECT_TIMEOUT, connected).await;
    let socket = connected.map_err(|_| "no connection in time".to_owned())?;
    let socket = socket.map_err(|error| error.to_string())?;
    let Some(config) = &there.tls else {
        return converse(socket, request).await;
    };
    let name = ServerName::try_from(there.host.clone()).map_err(|error| error.to_string())?;
    let sealed = TlsConnector::from(Arc::clone(config)).connect(name, socket);
    let sealed = sealed.await.map_err(|error| error.to_string())?;
    converse(sealed, request).await
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request,
) -> Result<Response, String> {
    let connected = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(|error| error.to_string())?;
    // This task ends once the answer was read or dropped.
    drop(task::spawn(connection));
    let answer = sender.send_request(request).await;
    Ok(answer.map_err(|error| error.to_string())?.map(Body::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_decides_which_calls_belong_to_the_active_node() {
        let of = |method: &str, path| concerns(&method.parse().unwrap(), path);
        let one = "/pools/default/buckets/{bucket}";
        let users = "/settings/rbac/users/{domain}/{user}";
        for (method, path, expected) in [
            ("POST", "/pools/default/buckets", Some(ForwardedCall::Node)),
            ("GET", "/pools/default/buckets/", Some(ForwardedCall::List)),
            ("GET", one, Some(ForwardedCall::MissingBucket)),
            ("POST", one, Some(ForwardedCall::Bucket)),
            ("DELETE", one, Some(ForwardedCall::Bucket)),
            ("GET", &format!("{one}/stats"), None),
            (
                "POST",
                &format!("{one}/controller/doFlush"),
                Some(ForwardedCall::Bucket),
            ),
            (
                "GET",
                &format!("{one}/scopes"),
                Some(ForwardedCall::Collections),
            ),
            (
                "POST",
                &format!("{one}/scopes"),
                Some(ForwardedCall::Bucket),
            ),
            (
                "DELETE",
                &format!("{one}/scopes/{{scope}}"),
                Some(ForwardedCall::Bucket),
            ),
            ("PUT", users, Some(ForwardedCall::Users)),
            ("GET", users, Some(ForwardedCall::Users)),
            (
                "POST",
                "/controller/changePassword",
                Some(ForwardedCall::Users),
            ),
            ("POST", "/settings/audit", None),
            ("GET", "/pools/default", None),
            ("GET", "/whoami", None),
        ] {
            assert_eq!(of(method, path), expected, "{method} {path}");
        }
    }
}
