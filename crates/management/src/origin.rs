//! Protection against foreign pages in browsers.
//!
//! A page of any site can send forms to a node on the reader's own machine. With a name that it lets point there (DNS
//! rebinding) it can also read the answers. Browsers show this in `Host`, `Origin` and `Sec-Fetch-Site` ([Fetch
//! Metadata](https://www.w3.org/TR/fetch-metadata/)); other clients send only `Host`.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use super::answers;
use super::peer::Peer;

/// Refuses requests under a foreign host name, and requests that foreign pages must not cause.
pub(super) async fn refuse_foreign_pages(peer: Peer, request: Request, next: Next) -> Response {
    let (headers, path) = (request.headers(), request.uri().path());
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    let reason = if peer.on_loopback && !names_loopback(headers) {
        "The node listens on the loopback, and is asked under another name."
    } else if (!reads || path.starts_with("/changes/")) && is_of_foreign_page(headers) {
        "The request comes from a page of another origin."
    } else {
        return next.run(request).await;
    };
    answers::closing(answers::refusal(StatusCode::FORBIDDEN, reason))
}

/// Checks whether every `Host` is a name of the loopback, or there is none.
fn names_loopback(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().all(|host| {
        let text = host.to_str().unwrap_or_default();
        if let Some((address, _)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let address = address.parse::<Ipv6Addr>();
            return address.is_ok_and(|address| address.to_canonical().is_loopback());
        }
        let name = text.split_once(':').map_or(text, |(name, _)| name);
        let address = name.parse::<Ipv4Addr>();
        let top = name.rsplit('.').next().unwrap_or_default();
        // `localhost` and all names below it are the loopback: RFC 6761, section 6.3.
        top.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    })
}

/// Checks whether a browser sent the request for a page that is not the node's own.
fn is_of_foreign_page(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    // A page of the same site has another port or another name, so it is another origin.
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return true;
    }
    let own = headers.get(HOST).and_then(|host| host.to_str().ok());
    headers.get_all(ORIGIN).iter().any(|origin| {
        let origin = origin.to_str().ok();
        let origin = origin.and_then(|origin| origin.split_once("://"));
        let (Some((_, authority)), Some(own)) = (origin, own) else {
            return true;
        };
        !authority.eq_ignore_ascii_case(own)
    })
}
