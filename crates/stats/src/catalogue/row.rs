//! The rows of the catalogue.

use registry::ClusterStatus;

use crate::figures::{BucketFigures, NodeFigures, StateSums, VbFigures};
use crate::rows::Value;

/// Unit of a statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A number without unit.
    Count,
    Bytes,
    Seconds,
    Millis,
    Micros,
    Nanos,
    /// Seconds since 1970 (Unix time).
    Unix,
    Percent,
    /// A fraction, 0 to 1.
    Ratio,
    Seqno,
    Bool,
    Text,
    Json,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Bytes => "B",
            Self::Seconds => "s",
            Self::Millis => "ms",
            Self::Micros => "us",
            Self::Nanos => "ns",
            Self::Unix => "unix s",
            Self::Percent => "%",
            Self::Ratio => "ratio",
            Self::Seqno => "seqno",
            Self::Bool => "bool",
            Self::Text => "text",
            Self::Json => "JSON",
        }
    }
}

/// Name of a statistic on the metrics page, without `settee_`, unit and `_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// A number that only rises.
    Counter(&'static str),
    /// A number that rises and falls.
    Gauge(&'static str),
}

/// Description of a statistic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) groups: &'static [&'static str],
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// A sentence without its full stop.
    pub(crate) help: &'static str,
}

/// A statistic and the function that computes it.
pub(crate) struct Statistic<F: 'static> {
    pub(crate) about: About,
    pub(crate) metric: Option<Metric>,
    pub(crate) value: F,
}

/// A row of the node.
pub(crate) type NodeRow = Statistic<fn(&NodeFigures<'_>) -> Value>;
/// A row of the cluster.
pub(crate) type ClusterRow = Statistic<fn(&ClusterStatus) -> Value>;
/// A row of a bucket.
pub(crate) type BucketRow = Statistic<fn(&BucketFigures<'_>) -> Value>;
/// A row of the vBuckets of a bucket that are in one state; its name follows `vb_STATE_`.
pub(crate) type StateRow = Statistic<fn(&StateSums) -> Value>;
/// A row of a vBucket; its name follows `vb_N:`.
pub(crate) type VbRow = Statistic<fn(&VbFigures) -> Value>;

/// `GROUPS "name" Unit "help";`
macro_rules! abouts {
    ($($groups:ident $name:literal $unit:ident $help:literal;)*) => {
        &[$($crate::catalogue::row::About {
            groups: $groups,
            name: $name,
            unit: $crate::catalogue::row::Unit::$unit,
            help: $help,
        }),*]
    };
}
pub(crate) use abouts;

/// `GROUPS "name" Unit "help" [Counter|Gauge "metric"], |figures| value;`
macro_rules! rows {
    ($($groups:ident $name:literal $unit:ident $help:literal $($kind:ident $metric:literal)?,
        |$figures:ident| $value:expr;)*) => {
        &[$($crate::catalogue::row::Statistic {
            about: $crate::catalogue::row::About {
                groups: $groups,
                name: $name,
                unit: $crate::catalogue::row::Unit::$unit,
                help: $help,
            },
            metric: rows!(@metric $($kind $metric)?),
            value: |$figures| $crate::rows::Value::from($value),
        }),*]
    };
    (@metric) => { None };
    (@metric $kind:ident $metric:literal) => {
        Some($crate::catalogue::row::Metric::$kind($metric))
    };
}
pub(crate) use rows;

/// The groups of a row that is only in the general group.
pub(crate) const GENERAL: &[&str] = &[""];
