//! Change streams: the common part of the commands that follow them.

mod broken;
mod connect_retries;
mod link;
mod newest;
mod part;
mod reading;
mod source;
mod window;

pub(crate) use self::broken::Broken;
pub(crate) use self::connect_retries::ConnectRetries;
pub(crate) use self::link::{StreamOpening, TICK, collections_of};
pub(crate) use self::newest::newest;
pub(crate) use self::part::CollectionPart;
pub(crate) use self::reading::{MOVE_PATIENCE, StreamEvent};
pub(crate) use self::source::Source;
