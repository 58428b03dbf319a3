//! Access control: which requests are allowed, and how large they may be.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bucket::Reservation;
use futures_util::StreamExt;
use identity::{AuthenticatedUser, LoginTurn};
use tokio::time;

use super::answers::{self, HandlerResult};
use super::audited;
use super::peer::{OnBehalf, Peer};
use super::permits;
use crate::state::HttpState;
use crate::view::NodeView;

/// Largest request body, bytes.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Time limit to receive a body, including the wait for memory that others hold.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay of the refusal of a body that is too large, so that a flood of them costs other clients nothing.
const REFUSAL_PAUSE: Duration = Duration::from_millis(500);

/// Header that names the user on whose behalf a full administrator, or a following node, sends a request: base64 of the
/// user's name and `:local`.
pub(super) const ON_BEHALF_OF: HeaderName = HeaderName::from_static("cb-on-behalf-of");

/// Passes a request on if its Basic credentials are right, and the user has the needed permission. Adds the user to the
/// request.
pub(super) async fn require_credentials(
    State(state): State<HttpState>,
    peer: Peer,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> HandlerResult {
    let user = admit(&state, &peer, &mut request).await?;
    // A path without a route does not exist, for all users.
    if let Some(path) = request.extensions().get::<MatchedPath>() {
        let parameters = parameters.map_err(IntoResponse::into_response)?;
        if let Some(refused) =
            permits::check(&user.access, request.method(), path.as_str(), &parameters)
        {
            return Err(refused);
        }
    }
    Ok(next.run(request).await)
}

/// Passes a request on if its Basic credentials are right, whatever the rights of the user. Adds the user to the
/// request.
pub(super) async fn require_user(
    State(state): State<HttpState>,
    peer: Peer,
    mut request: Request,
    next: Next,
) -> HandlerResult {
    admit(&state, &peer, &mut request).await?;
    Ok(next.run(request).await)
}

/// Returns the user in whose name a request is made. Adds this user to the request, and the user that acts on its behalf.
async fn admit(
    state: &HttpState,
    peer: &Peer,
    request: &mut Request,
) -> Result<AuthenticatedUser, Response> {
    let user = authenticate(state, peer, request.headers()).await?;
    let effective = on_behalf_of(state, &user, request.headers());
    let effective = effective.map_err(|(status, reason)| answers::refusal(status, &reason))?;
    let travels = request.extensions_mut();
    if let Some(effective) = &effective {
        travels.insert(OnBehalf { real: user.clone() });
        travels.insert(effective.clone());
    } else {
        travels.insert(user.clone());
    }
    Ok(effective.unwrap_or(user))
}

/// Returns the user on whose behalf a request is made, if there is one. Only full administrators may do so.
///
/// # Errors
/// The status of the refusal, and the reason.
fn on_behalf_of(
    state: &HttpState,
    user: &AuthenticatedUser,
    headers: &HeaderMap,
) -> Result<Option<AuthenticatedUser>, (StatusCode, String)> {
    let Some(named) = headers.get(ON_BEHALF_OF) else {
        return Ok(None);
    };
    if !user.access.is_admin() {
        let reason = "Only full administrators may ask on behalf of another user.";
        return Err((StatusCode::FORBIDDEN, reason.to_owned()));
    }
    let named = STANDARD.decode(named.as_bytes()).ok();
    let named = named.and_then(|bytes| String::from_utf8(bytes).ok());
    let name = named
        .as_deref()
        .and_then(|text| text.strip_suffix(":local"));
    let Some(name) = name else {
        let reason = "cb-on-behalf-of is not NAME:local in base64.";
        return Err((StatusCode::BAD_REQUEST, reason.to_owned()));
    };
    let effective = state.view.identity().look_up(name).map(Some);
    effective.ok_or_else(|| {
        let reason = format!("There is no user {name} on whose behalf this could be done.");
        (StatusCode::FORBIDDEN, reason)
    })
}

/// Waits until the login of a request with credentials may be judged.
pub(super) async fn take_turn(
    state: &HttpState,
    peer: &Peer,
    headers: &HeaderMap,
) -> Result<(), Response> {
    if !headers.contains_key(AUTHORIZATION) {
        return Err(answers::unauthorized());
    }
    await_users(&*state.view).await;
    match state.view.login_turn(peer.address) {
        LoginTurn::Now => Ok(()),
        LoginTurn::After(wait) => {
            time::sleep(wait).await;
            Ok(())
        }
        LoginTurn::Refused(wait) => {
            time::sleep(wait).await;
            state.view.note_login(peer.address, false);
            audited::login_failed(state, peer, None);
            let reason = "Too many logins from this address failed; try again later.";
            Err(last(StatusCode::TOO_MANY_REQUESTS, reason))
        }
    }
}

/// Waits while the node may not know the newest users.
pub(super) async fn await_users(view: &dyn NodeView) {
    while let Some(wait) = view.users_wait() {
        time::sleep(wait).await;
    }
}

/// Returns the user of the connection's certificate, or of the request's credentials if they are right. A node without
/// an administrator asks for neither. After wrong credentials from the same address this takes longer.
pub(super) async fn authenticate(
    state: &HttpState,
    peer: &Peer,
    headers: &HeaderMap,
) -> Result<AuthenticatedUser, Response> {
    if state.view.is_open() {
        return Ok(AuthenticatedUser::of_open_node());
    }
    if let Some(name) = &peer.user {
        await_users(&*state.view).await;
        // Look up the current user: it may have been removed.
        let user = state.view.identity().look_up(name);
        return user.ok_or_else(answers::unauthorized);
    }
    take_turn(state, peer, headers).await?;
    let identity = state.view.identity();
    let given = credentials(headers);
    let named = given.as_ref();
    let user = named.and_then(|(name, password)| identity.authenticate(name, password));
    state.view.note_login(peer.address, user.is_some());
    if user.is_none() {
        audited::login_failed(state, peer, named.map(|(name, _)| &**name));
    }
    match user {
        Some(user) => Ok(user),
        None if peer.failed() => Err(answers::closing(answers::unauthorized())),
        None => Err(answers::unauthorized()),
    }
}

/// Returns name and password of the header for Basic credentials.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let mut name = STANDARD.decode(encoded.trim()).ok()?;
    let colon = name.iter().position(|byte| *byte == b':')?;
    let password = name.split_off(colon + 1);
    name.truncate(colon);
    Some((String::from_utf8(name).ok()?, password))
}

/// Memory of a request's body. It counts with the memory that connections hold, until this is dropped.
pub(super) struct HeldBody {
    view: Arc<dyn NodeView>,
    bytes: usize,
}

impl HeldBody {
    /// Adds bytes, once there is memory for them.
    async fn grow(&mut self, bytes: usize) {
        while let Reservation::Wait { retry, .. } = self.view.hold_body(bytes) {
            time::sleep(retry).await;
        }
        self.bytes += bytes;
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.view.release_body(self.bytes);
    }
}

/// Reads the body of a request, up to the limit, and holds its memory until the answer.
pub(super) async fn limit_body(
    State(state): State<HttpState>,
    request: Request,
    next: Next,
) -> HandlerResult {
    let (parts, body, held) = take_body(&state, request).await?;
    let response = next.run(Request::from_parts(parts, body.into())).await;
    drop(held);
    Ok(response)
}

/// Returns a request and its body, up to the limit. The memory counts until the `HeldBody` is dropped.
pub(super) async fn take_body(
    state: &HttpState,
    request: Request,
) -> Result<(Parts, Bytes, HeldBody), Response> {
    let announced = request.headers().get(CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > BODY_BYTES_MAX as u64) {
        return Err(too_large().await);
    }
    let mut held = HeldBody {
        view: Arc::clone(&state.view),
        bytes: 0,
    };
    let (parts, body) = request.into_parts();
    let Ok(body) = time::timeout(BODY_TIMEOUT, read(body, &mut held)).await else {
        let reason = "The request's body took too long, or others hold too much.";
        return Err(last(StatusCode::REQUEST_TIMEOUT, reason));
    };
    Ok((parts, body?, held))
}

async fn read(body: Body, held: &mut HeldBody) -> Result<Bytes, Response> {
    let mut stream = body.into_data_stream();
    let mut read = Vec::new();
    while let Some(piece) = stream.next().await {
        let broken = |_| last(StatusCode::BAD_REQUEST, "The request's body is broken.");
        let piece = piece.map_err(broken)?;
        if read.len() + piece.len() > BODY_BYTES_MAX {
            return Err(too_large().await);
        }
        held.grow(piece.len()).await;
        read.extend_from_slice(&piece);
    }
    Ok(read.into())
}

async fn too_large() -> Response {
    time::sleep(REFUSAL_PAUSE).await;
    let reason = "A request body may have 65536 bytes.";
    last(StatusCode::PAYLOAD_TOO_LARGE, reason)
}

/// Returns a refusal after which the connection ends.
fn last(status: StatusCode, reason: &str) -> Response {
    answers::closing(answers::refusal(status, reason))
}
