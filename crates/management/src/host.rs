//! The host name under which a client reached the node.

use axum::http::header::{HOST, HeaderMap};

/// Returns the name in the `Host` header, without port and without IPv6 brackets.
///
/// `None` if there is none, or if it is not a valid host name: callers put it into JSON.
pub(super) fn requested_host(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(HOST)?.to_str().ok()?;
    if let Some(rest) = value.strip_prefix('[') {
        let (address, _) = rest.split_once(']')?;
        let plain = address
            .bytes()
            .all(|b| b.is_ascii_hexdigit() || b":.%".contains(&b));
        return (plain && !address.is_empty()).then(|| address.to_owned());
    }
    let name = value.split_once(':').map_or(value, |(name, _)| name);
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    (plain && !name.is_empty()).then(|| name.to_owned())
}
