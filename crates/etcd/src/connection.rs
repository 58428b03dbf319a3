//! A connection to a member: HTTP/1.1, over TLS if the member's address asks for it.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tls::tls_refusal;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::lines::MESSAGE_BYTES_MAX;
use crate::options::Endpoint;
use crate::problem::{Problem, ProblemKind};
use crate::refusal::{Refusal, one_line};

/// Header that makes etcd refuse at once, and end watches, when it has no leader.
const NEEDS_LEADER: &str = "Grpc-Metadata-hasleader";

/// Keepalive of TCP, which detects that the peer of a silent connection is gone.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// A connection; it carries one request at a time.
pub(crate) type Connection = http1::SendRequest<Full<Bytes>>;

/// A request to a member.
pub(crate) struct MemberRequest<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) body: &'a str,
    pub(crate) token: Option<&'a str>,
}

/// Connects to a member.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Connection, Problem> {
    let fail = |why: &dyn std::fmt::Display| {
        Problem::new(ProblemKind::Unreachable, one_line(&why.to_string())).not_done()
    };
    let socket = TcpStream::connect((&*endpoint.host, endpoint.port)).await;
    let socket = socket.map_err(|error| fail(&error))?;
    socket.set_nodelay(true).map_err(|error| fail(&error))?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE);
    let set = SockRef::from(&socket).set_tcp_keepalive(&keepalive);
    set.map_err(|error| fail(&error))?;
    let Some(config) = tls.filter(|_| endpoint.tls) else {
        return shake_hands(socket).await;
    };
    let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| fail(&error))?;
    let sealed = TlsConnector::from(Arc::clone(config))
        .connect(name, socket)
        .await;
    let refused = |error: io::Error| {
        let why = tls_refusal(&error).unwrap_or_else(|| error.to_string());
        fail(&format!("TLS: {why}"))
    };
    shake_hands(sealed.map_err(refused)?).await
}

async fn shake_hands(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Connection, Problem> {
    let connected = http1::Builder::new().handshake(TokioIo::new(stream)).await;
    let (sender, connection) = connected.map_err(|error| lost(&error).not_done())?;
    // The task ends with its sender and the answers that are read; they report the reason.
    drop(tokio::spawn(connection));
    Ok(sender)
}

/// Sends a request; returns the head of the answer.
pub(crate) async fn send(
    connection: &mut Connection,
    endpoint: &Endpoint,
    asked: &MemberRequest<'_>,
) -> Result<Response<Incoming>, Problem> {
    let mut request = Request::builder()
        .method(asked.method.clone())
        .uri(asked.path)
        .header(HOST, endpoint.authority())
        .header(CONTENT_TYPE, "application/json")
        .header(NEEDS_LEADER, "true");
    if let Some(token) = asked.token {
        request = request.header(AUTHORIZATION, token);
    }
    let request = request.body(Full::from(asked.body.to_owned()));
    let request = request.map_err(|error| {
        Problem::new(ProblemKind::Refused, error.to_string()).of_a_well_member()
    })?;
    let sent = connection.try_send_request(request).await;
    sent.map_err(|mut error| {
        let not_sent = error.take_message().is_some();
        let problem = lost(error.error());
        if not_sent {
            problem.not_done()
        } else {
            problem
        }
    })
}

/// Reads the whole body of an answer; a refusal if the status is no success.
pub(crate) async fn body(answer: Response<Incoming>) -> Result<Bytes, Refusal> {
    let (head, body) = answer.into_parts();
    let length = body.size_hint().lower();
    if length > MESSAGE_BYTES_MAX as u64 {
        let sentence = format!("the answer is too long: {length} bytes");
        return Err(Problem::new(ProblemKind::Unreachable, sentence).into());
    }
    let body = Limited::new(body, MESSAGE_BYTES_MAX).collect().await;
    let body = body.map_err(|error| {
        let sentence = format!("the answer broke off: {}", one_line(&error.to_string()));
        Problem::new(ProblemKind::Unreachable, sentence)
    })?;
    let body = body.to_bytes();
    if head.status.is_success() {
        return Ok(body);
    }
    if let Ok(error @ serde_json::Value::Object(_)) = serde_json::from_slice(&body)
        && (error["message"].is_string() || error["error"].is_string())
    {
        return Err(Refusal::of(&error));
    }
    let text = String::from_utf8_lossy(&body);
    let why = if text.contains("HTTP request to an HTTPS server") {
        "it speaks TLS only: write https:// or etcds://".to_owned()
    } else {
        format!("it answers HTTP {}, which etcd would not", head.status)
    };
    Err(Problem::new(ProblemKind::NotEtcd, why).into())
}

fn lost(error: &hyper::Error) -> Problem {
    // hyper's own text does not have the reason.
    let source = error.source().and_then(<dyn Error>::downcast_ref);
    if let Some(refusal) = source.and_then(tls_refusal) {
        let sentence = format!("TLS: {}", one_line(&refusal));
        return Problem::new(ProblemKind::Unreachable, sentence);
    }
    let (kind, what) = if error.is_parse() {
        (ProblemKind::NotEtcd, "it does not speak HTTP")
    } else if error.is_incomplete_message() {
        let what = "it closes the connection, as one would that speaks TLS only (https://)";
        (ProblemKind::Unreachable, what)
    } else {
        (ProblemKind::Unreachable, "the connection broke")
    };
    let why = source.map_or_else(|| error.to_string(), io::Error::to_string);
    Problem::new(kind, format!("{what} ({})", one_line(&why)))
}
