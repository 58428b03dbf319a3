//! The target of a tail.

use std::fmt;
use std::str::FromStr;

use crate::stream::CollectionPart;

/// A bucket, or a part of it.
///
/// Form: `BUCKET`, `BUCKET.SCOPE` or `BUCKET.SCOPE.COLLECTION`. Names of scopes and collections have no dots; a
/// bucket with dots in its name is given with `--connect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TailTarget {
    /// Name of the bucket.
    pub(super) bucket: String,
    /// A part of the bucket; `None` for the whole bucket.
    pub(super) part: Option<CollectionPart>,
}

impl FromStr for TailTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const SHAPE: &str = "use BUCKET, BUCKET.SCOPE or BUCKET.SCOPE.COLLECTION";
        let names: Vec<&str> = text.split('.').collect();
        if names.iter().any(|name| name.is_empty()) {
            return Err(SHAPE);
        }
        let part = |scope: &str, collection: Option<&str>| {
            Some(CollectionPart {
                scope: scope.to_owned(),
                collection: collection.map(str::to_owned),
            })
        };
        let (bucket, part) = match *names.as_slice() {
            [bucket] => (bucket, None),
            [bucket, scope] => (bucket, part(scope, None)),
            [bucket, scope, collection] => (bucket, part(scope, Some(collection))),
            _ => return Err(SHAPE),
        };
        Ok(Self {
            bucket: bucket.to_owned(),
            part,
        })
    }
}

impl fmt::Display for TailTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bucket)?;
        if let Some(part) = &self.part {
            write!(f, ".{part}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_bucket_scope_or_collection() {
        for text in ["travel", "travel.inventory", "travel.inventory.airline"] {
            let target: TailTarget = text.parse().unwrap();
            assert_eq!(
                (target.bucket.as_str(), target.to_string().as_str()),
                ("travel", text)
            );
        }
        for text in ["", ".", "a.", "a..b", "a.b.c.d"] {
            assert!(text.parse::<TailTarget>().is_err(), "{text}");
        }
    }
}
