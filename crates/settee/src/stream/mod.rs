//! Change streams: the common part of the commands that follow them.

mod attempts;
mod broken;
mod link;
mod newest;
mod part;
mod reading;
mod source;
mod window;

pub(crate) use self::attempts::Attempts;
pub(crate) use self::broken::Broken;
pub(crate) use self::link::{StreamOpening, TICK, collections_of};
pub(crate) use self::newest::newest;
pub(crate) use self::part::CollectionPart;
pub(crate) use self::reading::{MOVE_PATIENCE, StreamEvent};
pub(crate) use self::source::Source;
