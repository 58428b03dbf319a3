//! Features that a client and a server negotiate with HELLO.

use std::fmt;

use crate::Malformed;
use crate::bytes::{Field, Reader};

/// Number of a feature; any number, known or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feature(pub u16);

macro_rules! features {
    ($($name:ident $number:literal $text:literal [$($needs:ident),*] $meaning:literal;)*) => {
        impl Feature {
            $(
                #[doc = concat!($meaning, " (", stringify!($number), ").")]
                pub const $name: Self = Self($number);
            )*

            /// All features in use, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Name; `None` for an undefined or removed number.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    _ => None,
                }
            }

            /// Features that it requires.
            pub fn needs(self) -> &'static [Self] {
                match self {
                    $(Self::$name => &[$(Self::$needs),*],)*
                    _ => &[],
                }
            }
        }
    };
}

features! {
    TCP_NODELAY 0x03 "tcp-nodelay" [] "Answers are not held back by the network stack";
    MUTATION_SEQNO 0x04 "mutation-seqno" [] "Answers to writes carry a mutation token";
    TCP_DELAY 0x05 "tcp-delay" [] "The opposite of `TCP_NODELAY`; not to be granted";
    XATTR 0x06 "xattr" [] "Extended attributes";
    XERROR 0x07 "xerror" [] "New status codes and error texts instead of a closed connection";
    SELECT_BUCKET 0x08 "select-bucket" [] "The client selects a bucket";
    SNAPPY 0x0a "snappy" [] "Compressed documents";
    JSON 0x0b "json" [] "The JSON bit of a datatype";
    DUPLEX 0x0c "duplex" [] "The server may send requests";
    CLUSTERMAP_CHANGE_NOTIFICATION 0x0d "clustermap-change-notification" [DUPLEX]
        "A changed cluster map is pushed";
    UNORDERED_EXECUTION 0x0e "unordered-execution" [] "Answers may come in another order";
    TRACING 0x0f "tracing" [] "Every answer says how long it took";
    ALT_REQUEST_SUPPORT 0x10 "alt-request-support" [] "Requests may carry frame infos";
    SYNC_REPLICATION 0x11 "sync-replication" [] "Durable writes";
    COLLECTIONS 0x12 "collections" [] "Keys carry a collection id";
    SNAPPY_EVERYWHERE 0x13 "snappy-everywhere" [] "Any value may be compressed; implies `SNAPPY`";
    PRESERVE_TTL 0x14 "preserve-ttl" [] "A write may keep the expiry";
    VATTR 0x15 "vattr" [XATTR] "Any virtual attribute may be looked up";
    SUBDOC_CREATE_AS_DELETED 0x17 "subdoc-create-as-deleted" [] "Documents created as tombstones";
    SUBDOC_DOCUMENT_MACRO_SUPPORT 0x18 "subdoc-document-macro-support" [XATTR]
        "Macros of the document's metadata";
    SUBDOC_REPLACE_BODY_WITH_XATTR 0x19 "subdoc-replace-body-with-xattr" []
        "An attribute can become the body";
    REPORT_UNIT_USAGE 0x1a "report-unit-usage" [] "Answers say what they cost";
    NON_BLOCKING_THROTTLING_MODE 0x1b "non-blocking-throttling-mode" []
        "A throttled command is refused instead of delayed";
    SUBDOC_REPLICA_READ 0x1c "subdoc-replica-read" [] "Sub-document lookups on replicas";
    GET_CLUSTER_CONFIG_WITH_KNOWN_VERSION 0x1d "get-cluster-config-with-known-version" []
        "The cluster map is sent only when it is newer";
    DEDUPE_NOT_MY_VBUCKET_CLUSTERMAP 0x1e "dedupe-not-my-vbucket-clustermap" []
        "A refusal repeats no cluster map that the client has";
    CLUSTERMAP_CHANGE_NOTIFICATION_BRIEF 0x1f "clustermap-change-notification-brief" [DUPLEX]
        "The revision of a changed cluster map is pushed";
    SUBDOC_ALLOWS_ACCESS_ON_MULTIPLE_XATTR_KEYS 0x20
        "subdoc-allows-access-on-multiple-xattr-keys" []
        "Several attributes in one sub-document command";
    SUBDOC_BINARY_XATTR 0x21 "subdoc-binary-xattr" [] "Binary attributes";
    RANGE_SCAN_INCLUDE_XATTR 0x22 "range-scan-include-xattr" [XATTR] "Attributes in range scans";
    SUBDOC_ALLOW_REPLICA_READ_ON_DELETED_DOCS 0x23 "subdoc-allow-replica-read-on-deleted-docs" []
        "Lookups of tombstones on replicas";
    GET_RANDOM_KEY_INCLUDE_XATTR 0x24 "get-random-key-include-xattr"
        [XATTR, JSON, SNAPPY_EVERYWHERE] "Attributes of a random document";
    MUTATE_WITH_META 0x25 "mutate-with-meta" [] "Writes with metadata as JSON";
    DCP_SKIP_DELETES_IN_INITIAL_BACKFILL 0x26 "dcp-skip-deletes-in-initial-backfill" []
        "A change stream may leave out tombstones at first";
}

impl fmt::Debug for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(0x{:02x})", self.name().unwrap_or("unknown"), self.0)
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "0x{:02x}", self.0),
        }
    }
}

/// A list of features in HELLO and its answer: 2 bytes each, in any order, possibly with unknown
/// numbers and repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureList<'a> {
    bytes: &'a [u8],
}

impl<'a> FeatureList<'a> {
    /// Parses the list in a value.
    ///
    /// # Errors
    /// The length is odd.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        if value.len().is_multiple_of(2) {
            Ok(Self { bytes: value })
        } else {
            Err(Malformed::new("feature list has an odd length"))
        }
    }

    /// Features in the order of the list.
    pub fn iter(self) -> impl Iterator<Item = Feature> + 'a {
        let (pairs, _) = self.bytes.as_chunks::<2>();
        pairs.iter().map(|&pair| Feature(u16::from_be_bytes(pair)))
    }
}

impl<'a> Field<'a> for FeatureList<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Self::parse(reader.field()?)
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.bytes.write(out);
    }
}

/// Two features of one HELLO that conflict; the whole HELLO fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureConflict {
    /// `feature` was requested without `needed`.
    Missing {
        /// The requested feature.
        feature: Feature,
        /// The feature that it requires.
        needed: Feature,
    },
    /// Both were requested, but exclude each other.
    Exclusive(Feature, Feature),
}

impl fmt::Display for FeatureConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { feature, needed } => write!(f, "{feature} needs {needed}"),
            Self::Exclusive(one, other) => write!(f, "{one} and {other} exclude each other"),
        }
    }
}

/// A set of known features, 8 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FeatureSet {
    bits: u64,
}

impl FeatureSet {
    /// No feature.
    pub const EMPTY: Self = Self { bits: 0 };

    fn bit(feature: Feature) -> u64 {
        feature
            .name()
            .and_then(|_| 1_u64.checked_shl(u32::from(feature.0)))
            .unwrap_or(0)
    }

    /// Whether the set contains it; false for undefined numbers.
    #[inline]
    pub fn contains(self, feature: Feature) -> bool {
        match 1_u64.checked_shl(u32::from(feature.0)) {
            Some(bit) => self.bits & bit != 0,
            None => false,
        }
    }

    /// Adds a feature; ignores undefined numbers.
    pub fn insert(&mut self, feature: Feature) {
        self.bits |= Self::bit(feature);
    }

    /// Removes a feature.
    pub fn remove(&mut self, feature: Feature) {
        self.bits &= !Self::bit(feature);
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Features of the set, ascending.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL
            .iter()
            .copied()
            .filter(move |&feature| self.contains(feature))
    }

    /// Appends the list for the answer to HELLO: ascending, each once.
    pub fn encode(self, out: &mut Vec<u8>) {
        for feature in self.iter() {
            out.extend_from_slice(&feature.0.to_be_bytes());
        }
    }

    /// Checks that the features do not conflict.
    ///
    /// # Errors
    /// The first conflict; the whole HELLO must then be refused.
    pub fn check(self) -> Result<(), FeatureConflict> {
        if self.contains(Feature::TCP_NODELAY) && self.contains(Feature::TCP_DELAY) {
            let conflict = FeatureConflict::Exclusive(Feature::TCP_NODELAY, Feature::TCP_DELAY);
            return Err(conflict);
        }
        for feature in self.iter() {
            let missing = feature
                .needs()
                .iter()
                .find(|&&needed| !self.contains(needed));
            if let Some(&needed) = missing {
                return Err(FeatureConflict::Missing { feature, needed });
            }
        }
        Ok(())
    }
}

impl FromIterator<Feature> for FeatureSet {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        let mut set = Self::EMPTY;
        features.into_iter().for_each(|feature| set.insert(feature));
        set
    }
}

impl fmt::Debug for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_set_ignores_unknown_features() {
        let value = [0, 0x12, 0, 2, 0, 6, 0xff, 0xff, 0, 0x12];
        let list = FeatureList::parse(&value).unwrap();
        assert_eq!(list.iter().count(), 5);
        let set: FeatureSet = list.iter().collect();
        let mut out = Vec::new();
        set.encode(&mut out);
        assert_eq!(
            out,
            [0, 6, 0, 0x12],
            "ascending, known ones only, each once"
        );
        assert!(FeatureList::parse(&value[1..]).is_err());
    }

    #[test]
    fn every_known_feature_fits_the_set() {
        for &feature in Feature::ALL {
            let set = FeatureSet::from_iter([feature]);
            assert!(set.contains(feature), "{feature:?}");
            assert_eq!(set.iter().count(), 1);
        }
        assert!(Feature::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        let mut set = FeatureSet::EMPTY;
        set.insert(Feature(0x3f));
        set.insert(Feature(0x1000));
        assert!(set.is_empty());
    }

    #[test]
    fn conflicts_are_found() {
        let check = |features: &[Feature]| features.iter().copied().collect::<FeatureSet>().check();
        assert_eq!(check(&[Feature::XATTR, Feature::VATTR]), Ok(()));
        let missing = FeatureConflict::Missing {
            feature: Feature::CLUSTERMAP_CHANGE_NOTIFICATION_BRIEF,
            needed: Feature::DUPLEX,
        };
        assert_eq!(
            check(&[Feature::CLUSTERMAP_CHANGE_NOTIFICATION_BRIEF]),
            Err(missing)
        );
        let exclusive = FeatureConflict::Exclusive(Feature::TCP_NODELAY, Feature::TCP_DELAY);
        assert_eq!(
            check(&[Feature::TCP_DELAY, Feature::TCP_NODELAY]),
            Err(exclusive)
        );
    }
}
