//! A part of a bucket: a scope or a collection.

use std::fmt;
use std::str::FromStr;

use changes::Collections;

use crate::exit::{Failure, Sysexit};

/// A scope, or a collection of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectionPart {
    /// Name of the scope.
    pub(crate) scope: String,
    /// Name of the collection; `None` for all of the scope.
    pub(crate) collection: Option<String>,
}

impl FromStr for CollectionPart {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scope, collection) = match text.split_once('.') {
            Some((scope, collection)) => (scope, Some(collection)),
            None => (text, None),
        };
        let valid = |name: &str| !name.is_empty() && !name.contains('.');
        if !valid(scope) || !collection.is_none_or(valid) {
            return Err("use SCOPE or SCOPE.COLLECTION");
        }
        Ok(Self {
            scope: scope.to_owned(),
            collection: collection.map(str::to_owned),
        })
    }
}

impl fmt::Display for CollectionPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scope)?;
        if let Some(collection) = &self.collection {
            write!(f, ".{collection}")?;
        }
        Ok(())
    }
}

impl CollectionPart {
    /// Returns the value of a stream request for this part.
    ///
    /// # Errors
    /// The bucket has no such scope or collection.
    pub(super) fn filter(&self, collections: &Collections) -> Result<String, Failure> {
        let filter = collections.filter(&self.scope, self.collection.as_deref());
        filter.ok_or_else(|| {
            let reason = format!("the bucket has no such scope or collection: {self}");
            Failure::new(Sysexit::NoInput, reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_a_scope_or_a_collection() {
        for text in ["inventory", "inventory.airline"] {
            let part: CollectionPart = text.parse().unwrap();
            assert_eq!(part.to_string(), text);
        }
        for text in ["", ".", "a.", ".b", "a.b.c"] {
            assert!(text.parse::<CollectionPart>().is_err(), "{text}");
        }
    }
}
