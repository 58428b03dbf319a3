//! Bytes to typed messages and back: the memcached binary protocol with its Couchbase extensions.
//!
//! This crate must not do I/O, know the meaning of a message, allocate to decode, use `unsafe`, or
//! panic on input of a peer.
//!
//! Three layers:
//! - [`decode`] splits a [`Frame`] off a buffer: lengths only;
//! - [`Envelope`] and [`Message`] are the typed form of a client's frame, [`Response`] and the
//!   bodies in [`response`] that of a server's; [`dcp`] has the messages of change streams;
//! - [`Opcode`], [`Status`], [`Feature`] are the tables, one row for each number.
//!
//! The drawing and the rules: `docs/protocol/framing.md`.

#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod bytes;
#[doc(hidden)]
pub mod checks;
pub mod dcp;
mod duration;
mod feature;
mod frame;
mod key;
mod malformed;
mod message;
mod opcode;
pub mod push;
pub mod request;
mod request_infos;
pub mod response;
mod status;
pub mod text;

pub use duration::encode_server_duration;
pub use feature::{Feature, FeatureConflict, FeatureList, FeatureSet};
pub use frame::{
    Decoded, Frame, FrameError, HEADER_BYTES, Header, Limits, Magic, Opaque, RawParts, decode,
};
pub use key::document_key;
pub use malformed::{Malformed, TooLong};
pub use message::{Envelope, Message, encode_raw};
pub use model::DurabilityLevel;
pub use opcode::{CasRule, Family, Opcode, OpcodeInfo, OpcodeSupport, Presence, ServerOpcode};
pub use push::{ClusterMapNotification, ConfigRev};
pub use request_infos::{Durability, ExtraPrivileges, InfoError, RequestInfos, encode_info};
pub use response::Response;
pub use status::{Status, error_map};
