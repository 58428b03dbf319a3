//! The metrics page: the rows of the catalogue with a metric name, and commands.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric as Collected, Registry as Metrics, Unit as MetricUnit};
use registry::{ClusterStatus, Registry};
use wire::{Opcode, OpcodeSupport};

use super::catalogue::{self, CLUSTER, Metric, NODE, STATES, Statistic, Unit};
use super::figures::{BucketFigures, NodeFigures};
use super::rows::Value;

/// Upper edges of the histogram of command durations, in microseconds.
const EDGES_US: [u64; 10] = [10, 25, 50, 100, 250, 500, 1_000, 10_000, 100_000, 1_000_000];

type Labels = Vec<(&'static str, String)>;

/// Returns the metrics page in the OpenMetrics text format.
///
/// Cost: one pass over the vBuckets of every bucket, O(1) under the lock of each.
pub fn metrics(node: &Registry) -> String {
    let mut registry = Metrics::with_prefix("settee");
    let figures = NodeFigures::of(node);
    for row in NODE {
        register(
            &mut registry,
            row,
            &[(Labels::new(), (row.value)(&figures))],
        );
    }
    if let Some(member) = node.cluster.get() {
        let status = ClusterStatus::of(&**member);
        for row in CLUSTER {
            let value = (row.value)(&status);
            register(&mut registry, row, &[(Labels::new(), value)]);
        }
    }
    let served = node.all_buckets();
    let buckets: Vec<BucketFigures<'_>> = served
        .iter()
        .map(|served| BucketFigures::of(node, served))
        .collect();
    let label = |bucket: &BucketFigures<'_>| ("bucket", bucket.served.name().to_owned());
    for row in catalogue::bucket_rows().filter(|row| row.metric.is_some()) {
        let values = buckets
            .iter()
            .map(|bucket| (vec![label(bucket)], (row.value)(bucket)));
        register(&mut registry, row, &values.collect::<Vec<_>>());
    }
    for row in STATES.iter().filter(|row| row.metric.is_some()) {
        let mut values = Vec::new();
        for bucket in &buckets {
            values.extend(bucket.sums().states().map(|(state, sums)| {
                let labels = vec![label(bucket), ("state", state.to_owned())];
                (labels, (row.value)(sums))
            }));
        }
        register(&mut registry, row, &values);
    }
    commands(&mut registry, &figures);
    registry.register_collector(Box::new(Durations::of(&figures)));
    let mut page = String::new();
    text::encode(&mut page, &registry).expect("a string takes everything");
    page
}

fn register<F>(registry: &mut Metrics, row: &Statistic<F>, values: &[(Labels, Value)]) {
    let Some(metric) = row.metric else { return };
    let (unit, per_unit) = match row.about.unit {
        Unit::Bytes => (Some(MetricUnit::Bytes), 1.0),
        Unit::Seconds => (Some(MetricUnit::Seconds), 1.0),
        Unit::Millis => (Some(MetricUnit::Seconds), 1e3),
        Unit::Micros => (Some(MetricUnit::Seconds), 1e6),
        Unit::Nanos => (Some(MetricUnit::Seconds), 1e9),
        _ => (None, 1.0),
    };
    let number = |value: &Value| as_number(value) / per_unit;
    let (name, help) = match metric {
        Metric::Counter(name) | Metric::Gauge(name) => (name, row.about.help),
    };
    match metric {
        Metric::Counter(_) => {
            let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
            for (labels, value) in values {
                family.get_or_create(labels).inc_by(number(value));
            }
            with_unit(registry, name, help, unit, family);
        }
        Metric::Gauge(_) => {
            let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
            for (labels, value) in values {
                family.get_or_create(labels).set(number(value));
            }
            with_unit(registry, name, help, unit, family);
        }
    }
}

fn with_unit(
    registry: &mut Metrics,
    name: &str,
    help: &str,
    unit: Option<MetricUnit>,
    metric: impl Collected,
) {
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, metric),
        None => registry.register(name, help, metric),
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are fractions")]
fn as_number(value: &Value) -> f64 {
    match value {
        Value::Number(number) => *number as f64,
        Value::Flag(flag) => f64::from(u8::from(*flag)),
        Value::Ratio(ratio) => *ratio,
        Value::Text(_) | Value::Owned(_) => f64::NAN,
    }
}

fn commands(registry: &mut Metrics, figures: &NodeFigures<'_>) {
    let family = Family::<Labels, Counter>::default();
    for opcode in Opcode::all() {
        let total = figures.merged(opcode.0).total();
        if total != 0 {
            let labels = vec![("command", opcode.name().to_ascii_lowercase())];
            family.get_or_create(&labels).inc_by(total);
        }
    }
    registry.register("commands", "Commands that were run", family);
}

/// Histogram of command durations, by the kind of command.
#[derive(Debug, Default)]
struct Durations {
    kinds: [Duration; 3],
}

#[derive(Debug, Default)]
struct Duration {
    sum_ns: u64,
    count: u64,
    /// Number of commands up to each edge of [`EDGES_US`] and above the previous one.
    counts: [u64; EDGES_US.len()],
}

const KINDS: [&str; 3] = ["read", "write", "other"];

impl Durations {
    fn of(figures: &NodeFigures<'_>) -> Self {
        let mut durations = Self::default();
        for opcode in Opcode::all() {
            let kind = match opcode.info() {
                Some(info) if info.standing == OpcodeSupport::Known && info.keyed => {
                    usize::from(info.write)
                }
                _ => 2,
            };
            let merged = figures.merged(opcode.0);
            let into = &mut durations.kinds[kind];
            into.sum_ns += merged.sum_ns();
            for (upper_ns, count) in merged.rows() {
                into.count += count;
                let edge = EDGES_US.iter().position(|edge| upper_ns / 1000 <= *edge);
                if let Some(edge) = edge {
                    into.counts[edge] += count;
                }
            }
        }
        durations
    }
}

impl Collector for Durations {
    #[expect(clippy::cast_precision_loss, reason = "metrics are fractions")]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let unit = MetricUnit::Seconds;
        let mut family = encoder.encode_descriptor(
            "command_duration",
            "Time of a command on the node.",
            Some(&unit),
            MetricType::Histogram,
        )?;
        for (kind, duration) in KINDS.iter().zip(&self.kinds) {
            let labels = [("kind", *kind)];
            let edges = EDGES_US.iter().zip(&duration.counts);
            let mut buckets: Vec<(f64, u64)> = edges
                .map(|(edge, count)| (*edge as f64 / 1e6, *count))
                .collect();
            let counted: u64 = duration.counts.iter().sum();
            buckets.push((f64::INFINITY, duration.count - counted));
            family.encode_family(&labels)?.encode_histogram::<Labels>(
                duration.sum_ns as f64 / 1e9,
                duration.count,
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}
