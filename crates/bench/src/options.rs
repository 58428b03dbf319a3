//! The options of a run, and the plan made from them.

use std::ops::RangeInclusive;
use std::time::Duration;

use client::{Address, ConnectOptions};
use model::DurabilityLevel;

use crate::distribution::Distribution;
use crate::error::Error;
use crate::plan::{Amount, Plan, Ratio};
use crate::protocol::Protocol;
use crate::scenario::{ConsumerLoad, DrainSource, Measurement, Scenario};
use crate::sizes::Sizes;
use crate::verify;

/// Largest number of connections to one server.
const CONNECTIONS_MAX: u32 = 20_000;
/// Number of connections by default.
const CONNECTIONS_DEFAULT: u32 = 50;
/// Largest number of keys: key numbers have nine digits.
const KEYS_MAX: u64 = 1_000_000_000;
/// Largest value that any known server stores, in bytes.
const VALUE_BYTES_MAX: u64 = 20 * 1024 * 1024;

/// The options of a run, without the first server, as arguments of a command.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of its own on the command line"
)]
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Connections to each server, to a cluster each with a socket to every node [default: 50; with --dcp 1, for idle
    /// streams 100]
    #[arg(short, long, env = "SETTEE_BENCH_CONNECTIONS", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    connections: Option<u32>,
    /// Threads of the load generator for each server; connections are divided among them
    #[arg(short, long, env = "SETTEE_BENCH_THREADS", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// Requests that a connection keeps outstanding (pipeline depth); with --rate: at most
    #[arg(short, long, env = "SETTEE_BENCH_DEPTH", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    depth: u32,
    /// Number of different keys, of 16 bytes each
    #[arg(short, long, env = "SETTEE_BENCH_KEYS", value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX))]
    keys: u64,
    /// Distribution of keys over operations: uniform, zipf (theta 0.99) or zipf:THETA
    #[arg(
        long,
        env = "SETTEE_BENCH_DISTRIBUTION",
        value_name = "NAME",
        default_value = "uniform"
    )]
    distribution: Distribution,
    /// Ratio of writes to reads, SET:GET
    #[arg(
        short,
        long,
        env = "SETTEE_BENCH_RATIO",
        value_name = "SET:GET",
        default_value = "1:10"
    )]
    ratio: Ratio,
    /// Size of values in bytes
    #[arg(long, env = "SETTEE_BENCH_VALUE_SIZE", value_name = "BYTES", default_value_t = 256,
          value_parser = clap::value_parser!(u64).range(0..=VALUE_BYTES_MAX))]
    value_size: u64,
    /// Largest size of values, for values from --value-size up to this (the logarithms of the sizes are uniform)
    #[arg(long, env = "SETTEE_BENCH_VALUE_SIZE_MAX", value_name = "BYTES",
          value_parser = clap::value_parser!(u64).range(1..=VALUE_BYTES_MAX))]
    value_size_max: Option<u64>,
    /// Percentage of writes that delete a document instead
    #[arg(long, env = "SETTEE_BENCH_DELETES", value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    deletes: u32,
    /// Memory pressure: as many keys, instead of --keys, as need TIMES the server's memory quota (keys and values
    /// counted); implies --watch-memory
    #[arg(long, env = "SETTEE_BENCH_OVERCOMMIT", value_name = "TIMES", num_args = 0..=1,
          default_missing_value = "10", value_parser = times, conflicts_with = "dcp")]
    pub(crate) overcommit: Option<f64>,
    /// Report the memory of the server's bucket and the number of reads from its store, and with --server-pid the
    /// resident memory of the process
    #[arg(long, env = "SETTEE_BENCH_WATCH_MEMORY")]
    pub(crate) watch_memory: bool,
    /// Duration of the measurement of each server, in seconds
    #[arg(long, env = "SETTEE_BENCH_DURATION", value_name = "SECONDS", default_value_t = 10.0,
          value_parser = seconds)]
    duration: f64,
    /// Measure this many operations on each server instead of a duration
    #[arg(long, env = "SETTEE_BENCH_OPS", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    ops: Option<u64>,
    /// Duration of the warmup of each server before the measurement, in seconds
    #[arg(long, env = "SETTEE_BENCH_WARMUP", value_name = "SECONDS", default_value_t = 1.0,
          value_parser = seconds)]
    warmup: f64,
    /// Slices of the measurement; figures are medians over slices, and two servers take turns
    #[arg(long, env = "SETTEE_BENCH_SLICES", value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    slices: u32,
    /// Open loop: operations per second over all connections of a server
    #[arg(long, env = "SETTEE_BENCH_RATE", value_name = "OPS", value_parser = rate)]
    rate: Option<f64>,
    /// Check every value read: right key, intact, and never older than a value that the connection wrote or read before
    #[arg(long, env = "SETTEE_BENCH_VERIFY")]
    verify: bool,
    /// Protocol for memcached servers; for a Settee node that is its memcached port, with --connect
    /// memcached://HOST:PORT
    #[arg(long, env = "SETTEE_BENCH_PROTOCOL", value_name = "NAME", value_enum,
          default_value = "binary", conflicts_with_all = ["dcp", "verify", "overcommit"])]
    protocol: Protocol,
    /// Durability of writes before they are answered: none, majority, majorityAndPersistActive or persistToMajority
    #[arg(long, env = "SETTEE_BENCH_DURABILITY", value_name = "LEVEL", default_value = "none",
          value_parser = level)]
    durability: Level,
    /// Write every key before measuring
    #[arg(long, env = "SETTEE_BENCH_LOAD_FIRST", value_name = "BOOL", default_value_t = true,
          default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = clap::ArgAction::Set)]
    load_first: bool,
    /// Measure change streams: speed of a drain, latency of a write, cost of idle streams, effect on readers and
    /// writers, or speed of a node as consumer
    #[arg(long, env = "SETTEE_BENCH_DCP", value_name = "SCENARIO", value_enum,
          conflicts_with_all = ["vs", "vs_memcached", "verify"])]
    pub(crate) dcp: Option<Scenario>,
    /// Where --dcp drain finds the documents: in memory (streams are opened before the documents are written, and
    /// read afterwards) or on disk (streams are opened once all is persisted)
    #[arg(
        long,
        env = "SETTEE_BENCH_FROM",
        value_name = "WHERE",
        value_enum,
        default_value = "disk",
        requires = "dcp"
    )]
    pub(crate) from: DrainSource,
    /// Number of streams on which --dcp consumer sends changes, divided among the connections [default: one for
    /// each vBucket]
    #[arg(long, env = "SETTEE_BENCH_STREAMS", value_name = "N", requires = "dcp",
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    streams: Option<u32>,
    /// Number of changes per snapshot of --dcp consumer
    #[arg(long, env = "SETTEE_BENCH_SNAPSHOT_CHANGES", value_name = "N", default_value_t = 100,
          requires = "dcp", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    snapshot_changes: u64,
    /// Second server to compare with, in the form of --connect
    #[arg(
        long,
        env = "SETTEE_BENCH_VS",
        value_name = "ADDRESS",
        hide_env_values = true
    )]
    pub vs: Option<Address>,
    /// Compare with memcached: start it on a free loopback port, end it afterwards
    #[arg(long, env = "SETTEE_BENCH_VS_MEMCACHED", value_name = "PATH", num_args = 0..=1,
          default_missing_value = "memcached", conflicts_with = "vs")]
    pub(crate) vs_memcached: Option<String>,
    /// Process id of the first server, to measure its CPU time
    #[arg(long, env = "SETTEE_BENCH_SERVER_PID", value_name = "PID")]
    pub(crate) server_pid: Option<u32>,
    /// Process id of the second server
    #[arg(long, env = "SETTEE_BENCH_VS_PID", value_name = "PID", requires = "vs")]
    pub(crate) vs_pid: Option<u32>,
    /// Seed of the random choices
    #[arg(long, env = "SETTEE_BENCH_SEED", value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object instead of a table
    #[arg(long, env = "SETTEE_JSON")]
    pub json: bool,
}

impl Options {
    /// Checks the options against each other, and returns the plan.
    ///
    /// # Errors
    /// A usage error that names option, value and allowed values.
    pub(crate) fn plan(&self, server: &ConnectOptions) -> Result<Plan, Error> {
        if self.verify && self.value_size < verify::HEADER_BYTES as u64 {
            return Err(Error::usage(format!(
                "--value-size {}: with --verify at least {} bytes are needed",
                self.value_size,
                verify::HEADER_BYTES
            )));
        }
        let classic = self.vs_memcached.is_some()
            || server.address.login.is_none()
            || self.vs.as_ref().is_some_and(|vs| vs.login.is_none());
        if self.durability.0.is_some() && classic {
            return Err(Error::usage(
                "--durability: memcached has no durable writes",
            ));
        }
        let speaks_frames =
            server.address.login.is_some() || self.vs.as_ref().is_some_and(|vs| vs.login.is_some());
        if self.protocol != Protocol::Binary && speaks_frames {
            return Err(Error::usage(
                "--protocol: servers are named memcached://HOST:PORT, since couchbase:// speaks frames",
            ));
        }
        let sizes = self.sizes()?;
        if self.duration <= 0.0 {
            return Err(Error::usage("--duration 0: must be above 0 seconds"));
        }
        let slice = match self.ops {
            Some(ops) => Amount::Ops(ops.div_ceil(u64::from(self.slices))),
            None => Amount::Time(Duration::from_secs_f64(
                self.duration / f64::from(self.slices),
            )),
        };
        let connections = self.connections.unwrap_or(match self.dcp {
            None => CONNECTIONS_DEFAULT,
            Some(scenario) => scenario.connections(),
        });
        Ok(Plan {
            connections,
            threads: self.threads.min(connections),
            depth: self.depth as usize,
            keys: self.keys,
            distribution: self.distribution,
            ratio: self.ratio,
            sizes,
            deletes_percent: self.deletes,
            slice,
            slices: self.slices,
            warmup: Duration::from_secs_f64(self.warmup),
            rate: self.rate,
            verify: self.verify,
            protocol: self.protocol,
            durability: self.durability.0,
            load_first: self.load_first,
            seed: self.seed,
            timeout: server.timeout,
            stamped_since: None,
        })
    }

    /// Returns an option that measures a single node, if one is set.
    pub(crate) fn of_one_node(&self) -> Option<&'static str> {
        let options = [
            ("--dcp", self.dcp.is_some()),
            ("--overcommit", self.overcommit.is_some()),
            ("--watch-memory", self.watch_memory),
        ];
        let given = options.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(name, _)| name)
    }

    /// Returns the scenario of `--dcp`.
    pub(crate) fn measurement(&self) -> Option<Measurement> {
        self.dcp.map(|scenario| Measurement {
            scenario,
            from: self.from,
            load: ConsumerLoad {
                streams: self.streams,
                snapshot: self.snapshot_changes,
            },
        })
    }

    fn sizes(&self) -> Result<Sizes, Error> {
        let most = self.value_size_max.unwrap_or(self.value_size);
        if most < self.value_size {
            return Err(Error::usage(format!(
                "--value-size-max {most}: must not be below --value-size {}",
                self.value_size
            )));
        }
        let fits = |bytes: u64| {
            usize::try_from(bytes)
                .map_err(|_| Error::usage("--value-size: does not fit this machine"))
        };
        Ok(Sizes {
            least: fits(self.value_size)?,
            most: fits(most)?,
        })
    }
}

fn within(text: &str, range: RangeInclusive<f64>, allowed: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("use {allowed}"))
}

fn times(text: &str) -> Result<f64, String> {
    within(text, 0.01..=1_000.0, "a number of 0.01..1000")
}

/// A durability level, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level(Option<DurabilityLevel>);

fn level(text: &str) -> Result<Level, String> {
    match (text, DurabilityLevel::from_name(text)) {
        ("none", _) => Ok(Level(None)),
        (_, Some(level)) => Ok(Level(Some(level))),
        _ => Err("use none, majority, majorityAndPersistActive or persistToMajority".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    within(text, 0.0..=86_400.0, "a number of seconds of 0..86400")
}

fn rate(text: &str) -> Result<f64, String> {
    within(
        text,
        0.001..=1e9,
        "a number of operations a second of 0.001..1000000000",
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use client::testing::options;

    use super::*;

    #[derive(Debug, Parser)]
    struct Wrapper {
        #[command(flatten)]
        options: Options,
    }

    fn parse(flags: &[&str]) -> Result<Options, clap::Error> {
        Wrapper::try_parse_from(["bench"].iter().chain(flags)).map(|wrapper| wrapper.options)
    }

    fn try_plan(flags: &[&str]) -> Result<Plan, Error> {
        parse(flags).unwrap().plan(&options("couchbase://h"))
    }

    fn plan(flags: &[&str]) -> Plan {
        try_plan(flags).unwrap()
    }

    #[test]
    fn defaults() {
        let plan = plan(&[]);
        assert_eq!((plan.connections, plan.threads, plan.depth), (50, 1, 1));
        assert_eq!(plan.ratio, Ratio { sets: 1, gets: 10 });
        assert_eq!(plan.slice, Amount::Time(Duration::from_secs(1)));
        assert!(plan.load_first && !plan.verify && plan.rate.is_none());
    }

    #[test]
    fn a_run_is_divided_into_slices() {
        let by_ops = plan(&["--ops=1001", "--slices=10", "-c4", "-t8"]);
        assert_eq!(by_ops.slice, Amount::Ops(101));
        assert_eq!(
            by_ops.threads, 4,
            "a thread without connections is of no use"
        );
        let by_time = plan(&["--duration=1", "--slices=4", "--load-first=false"]);
        assert_eq!(by_time.slice, Amount::Time(Duration::from_millis(250)));
        assert!(!by_time.load_first);
    }

    #[test]
    fn text_protocols_need_memcached_server() {
        let plan = |server: &str| {
            let parsed = parse(&["--protocol=meta"]).unwrap();
            parsed.plan(&options(server)).map(|plan| plan.protocol)
        };
        assert_eq!(plan("memcached://h").unwrap(), Protocol::Meta);
        assert!(plan("couchbase://h").is_err());
        assert!(parse(&["--protocol=text", "--verify"]).is_err());
    }

    #[test]
    fn consumer_options_set_streams_and_snapshots() {
        let load = |flags: &[&str]| parse(flags).unwrap().measurement().unwrap().load;
        let by_default = load(&["--dcp=consumer"]);
        assert_eq!((by_default.streams, by_default.snapshot), (None, 100));
        let load = load(&["--dcp=consumer", "--streams=128", "--snapshot-changes=1"]);
        assert_eq!((load.streams, load.snapshot), (Some(128), 1));
        assert!(parse(&["--streams=128"]).is_err(), "only with --dcp");
    }

    #[test]
    fn memcached_path_defaults_to_search_path() {
        let named = |flags: &[&str]| parse(flags).unwrap().vs_memcached;
        assert_eq!(named(&["--vs-memcached"]).as_deref(), Some("memcached"));
        assert_eq!(
            named(&["--vs-memcached", "/x/mc"]).as_deref(),
            Some("/x/mc")
        );
        assert_eq!(named(&[]), None);
        assert!(parse(&["--vs-memcached", "--vs", "h:1"]).is_err());
        assert!(try_plan(&["--vs-memcached", "--durability=majority"]).is_err());
    }

    #[test]
    fn options_refuse_invalid_values() {
        for flags in [
            ["--connections=0"],
            ["--connections=20001"],
            ["--depth=0"],
            ["--keys=0"],
            ["--ratio=0:0"],
            ["--ratio=1"],
            ["--duration=-1"],
            ["--rate=0"],
            ["--vs=ftp://x"],
            ["--distribution=normal"],
            ["--durability=most"],
        ] {
            assert!(parse(&flags).is_err(), "{flags:?}");
        }
        assert!(try_plan(&["--verify", "--value-size=8"]).is_err());
        assert!(try_plan(&["--duration=0"]).is_err());
    }
}
