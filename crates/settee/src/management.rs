//! The HTTP management of a node, at the port named in the node's cluster map.

use std::fmt::Display;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use client::{Client, ConnectOptions, Login, Request, SaltedCache};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use wire::Opcode;

use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};

/// Largest accepted answer in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The HTTP management of a node, used as the user of `--connect`.
pub(crate) struct Management {
    options: ConnectOptions,
    login: Login,
    port: u16,
    runtime: Runtime,
}

/// Names and values of a form.
pub(crate) type Form<'a> = [(&'a str, &'a str)];

impl Management {
    /// Logs in over KV and reads the port from the cluster map.
    ///
    /// # Errors
    /// The node cannot be asked, or has no management.
    pub(crate) fn find(args: &ConnectArgs) -> Result<Self, Failure> {
        Self::of(args.options()?)
    }

    /// Does the same for a node given by other options.
    ///
    /// # Errors
    /// As [`Management::find`].
    pub(crate) fn of(options: ConnectOptions) -> Result<Self, Failure> {
        let Some(login) = options.address.login.clone() else {
            let why = format!("--connect: {} has no users", options.address);
            return Err(Failure::usage(why));
        };
        let mut client = Client::connect_to_node(&options, &login, &mut SaltedCache::default())?;
        let map = client.expect_success(&Request::new(Opcode::GET_CLUSTER_CONFIG))?;
        let port = port(&map.value, options.tls.is_some()).ok_or_else(|| {
            let why = format!("{}: its map names no management port", options.address);
            Failure::new(Sysexit::Unavailable, why)
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| Failure::new(Sysexit::Os, error.to_string()))?;
        Ok(Self {
            options,
            login,
            port,
            runtime,
        })
    }

    /// Name of the bucket in the address.
    pub(crate) fn bucket(&self) -> &str {
        &self.login.bucket
    }

    /// Name of the user.
    pub(crate) fn user(&self) -> &str {
        &self.login.user
    }

    /// Sends a request with a form; returns the body of the answer.
    ///
    /// # Errors
    /// The node cannot be reached, or refuses.
    pub(crate) fn ask(
        &self,
        method: Method,
        path: &str,
        form: &Form<'_>,
    ) -> Result<Bytes, Failure> {
        let exchange = async {
            let limit = self.options.timeout;
            let exchange = tokio::time::timeout(limit, self.exchange(method, path, form));
            exchange
                .await
                .unwrap_or_else(|_| Err(self.lost(&"no answer in time")))
        };
        let (status, body) = self.runtime.block_on(exchange)?;
        if status.is_success() {
            return Ok(body);
        }
        Err(Failure::new(code_of(status), reason(status, &body)))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        form: &Form<'_>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let host = &*self.options.address.host;
        let socket = TcpStream::connect((host, self.port)).await;
        let socket = socket.map_err(|error| self.lost(&error))?;
        let request = self.request(method, path, form)?;
        let Some(config) = &self.options.tls else {
            return self.send(socket, request).await;
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| self.lost(&error))?;
        let sealed = TlsConnector::from(Arc::clone(config)).connect(name, socket);
        let sealed = sealed.await.map_err(|error| self.lost(&error))?;
        self.send(sealed, request).await
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        form: &Form<'_>,
    ) -> Result<hyper::Request<Full<Bytes>>, Failure> {
        let Login { user, password, .. } = &self.login;
        let credentials = BASE64_STANDARD.encode(format!("{user}:{password}"));
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.host_port())
            .header(AUTHORIZATION, format!("Basic {credentials}"))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::from(form));
        request.map_err(|error| Failure::usage(error.to_string()))
    }

    async fn send(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        request: hyper::Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let connected = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connected.map_err(|error| self.lost(&error))?;
        // An early end of the connection ends the exchange too.
        let _ends_with_the_runtime = tokio::spawn(connection);
        let answer = sender.send_request(request).await;
        let (head, body) = answer.map_err(|error| self.lost(&error))?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.lost(&error))?;
        Ok((head.status, body.to_bytes()))
    }

    fn host_port(&self) -> String {
        match &*self.options.address.host {
            host if host.contains(':') => format!("[{host}]:{}", self.port),
            host => format!("{host}:{}", self.port),
        }
    }

    fn lost(&self, why: &dyn Display) -> Failure {
        let why = format!("management at {}: {why}", self.host_port());
        Failure::new(Sysexit::Unavailable, why)
    }
}

/// Parses an answer.
///
/// # Errors
/// The answer does not have the expected form.
pub(crate) fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<T, Failure> {
    let parsed = serde_json::from_slice(answer);
    parsed.map_err(|error| Failure::new(Sysexit::Protocol, format!("management: {error}")))
}

/// Returns the management port of the node that sent a cluster map.
fn port(map: &[u8], over_tls: bool) -> Option<u16> {
    let map: Value = serde_json::from_slice(map).ok()?;
    let nodes = map["nodesExt"].as_array()?;
    let this = nodes.iter().find(|node| node["thisNode"] == true);
    let services = &this.or(nodes.first())?["services"];
    let port = services[if over_tls { "mgmtSSL" } else { "mgmt" }].as_u64()?;
    u16::try_from(port).ok()
}

fn code_of(status: StatusCode) -> Sysexit {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Sysexit::NoPerm,
        StatusCode::NOT_FOUND => Sysexit::NoInput,
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            Sysexit::TempFail
        }
        StatusCode::METHOD_NOT_ALLOWED => Sysexit::Unavailable,
        status if status.is_client_error() => Sysexit::Data,
        _ => Sysexit::Unavailable,
    }
}

/// Returns the reason of a refusal, in one line.
fn reason(status: StatusCode, body: &[u8]) -> String {
    let value = serde_json::from_slice(body);
    let value = value.unwrap_or_else(|_| Value::from(String::from_utf8_lossy(body).trim()));
    let texts = match &value {
        Value::Object(members) => {
            let members = members.get("errors").and_then(Value::as_object);
            let members = members.or(value.as_object()).into_iter().flatten();
            members.filter_map(refusal_of_field).collect()
        }
        Value::Array(texts) => texts.iter().filter_map(text).collect(),
        one => text(one).into_iter().collect::<Vec<String>>(),
    };
    if texts.is_empty() {
        return format!("management refuses: {status}");
    }
    texts.join("; ")
}

fn refusal_of_field((field, why): (&String, &Value)) -> Option<String> {
    let why = text(why)?;
    Some(match &**field {
        "_" | "message" => why,
        field => format!("{field}: {why}"),
    })
}

fn text(value: &Value) -> Option<String> {
    let line = value.as_str()?.lines().collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn management_port_is_that_of_answering_node() {
        let map = br#"{"nodesExt":[{"services":{"kv":1,"mgmt":2,"mgmtSSL":3}},
            {"services":{"kv":4,"mgmt":5},"thisNode":true}]}"#;
        assert_eq!((port(map, false), port(map, true)), (Some(5), None));
        let map = br#"{"nodesExt":[{"services":{"mgmt":2,"mgmtSSL":3}}]}"#;
        assert_eq!((port(map, false), port(map, true)), (Some(2), Some(3)));
        assert_eq!(port(b"{}", false), None);
    }

    #[test]
    fn refusals_are_one_line_each() {
        for (body, line) in [
            (
                r#"{"errors":{"roles":"no","name":"long"}}"#,
                "name: long; roles: no",
            ),
            (r#"{"errors":{"_":"no"}}"#, "no"),
            (r#"{"_":"no"}"#, "no"),
            (
                r#"{"message":"Forbidden","permissions":["p"]}"#,
                "Forbidden",
            ),
            (r#""Unknown user.""#, "Unknown user."),
            (r#"["a","b"]"#, "a; b"),
            ("plain\ntext\n", "plain text"),
            ("", "management refuses: 400 Bad Request"),
        ] {
            assert_eq!(reason(StatusCode::BAD_REQUEST, body.as_bytes()), line);
        }
    }
}
