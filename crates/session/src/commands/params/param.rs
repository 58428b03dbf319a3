//! A setting, and the parser of its text.

use std::str::FromStr;

use bucket::{Limits, Share};
use model::VbId;
use registry::ServedBucket;

/// Family of a setting, by its number in the request's extras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Flush = 1,
    Checkpoint = 3,
    Dcp = 4,
    VBucket = 5,
    Config = 6,
}

impl Family {
    pub(super) fn of_extras(extras: &[u8]) -> Option<Self> {
        let number = u32::from_be_bytes(extras.try_into().ok()?);
        let families = [
            Self::Flush,
            Self::Checkpoint,
            Self::Dcp,
            Self::VBucket,
            Self::Config,
        ];
        families.into_iter().find(|family| *family as u32 == number)
    }
}

/// Error text about a setting, for people.
pub(super) type InvalidParam = &'static str;

pub(super) type SetServed = fn(&ServedBucket, VbId, &str) -> Result<(), InvalidParam>;
pub(super) type SetLimit = fn(&mut Limits, &str) -> Result<(), InvalidParam>;

/// Function that changes a setting: of the served bucket, or of its memory limits.
pub(super) enum Setter {
    Served(SetServed),
    Limit(SetLimit),
}

pub(super) struct Param {
    pub(super) family: Family,
    pub(super) name: &'static str,
    pub(super) set: Setter,
}

pub(super) const fn served(family: Family, name: &'static str, set: SetServed) -> Param {
    let set = Setter::Served(set);
    Param { family, name, set }
}

pub(super) const fn limit(family: Family, name: &'static str, set: SetLimit) -> Param {
    let set = Setter::Limit(set);
    Param { family, name, set }
}

pub(super) fn number(text: &str) -> Result<u64, InvalidParam> {
    u64::from_str(text).map_err(|_| "a number is needed")
}

pub(super) fn small(text: &str) -> Result<u32, InvalidParam> {
    u32::from_str(text).map_err(|_| "a number of 32 bits is needed")
}

pub(super) fn above_zero(text: &str) -> Result<u32, InvalidParam> {
    let number = small(text)?;
    (number > 0).then_some(number).ok_or("a second at least")
}

pub(super) fn ratio(text: &str) -> Result<Share, InvalidParam> {
    let ratio = f64::from_str(text).ok().and_then(Share::ratio);
    ratio.ok_or("a share of 0 to 1 is needed")
}

pub(super) fn boolean(text: &str) -> Result<bool, InvalidParam> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err("true or false is needed"),
    }
}
