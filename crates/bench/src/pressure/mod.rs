//! `settee bench --overcommit` and `--watch-memory`: measures the memory of a server under load.
//!
//! The server's statistics are read before and after each slice: memory of the bucket, and documents read back
//! from the store. The resident memory of the process is sampled all the time.

mod resident;

use client::{Client, ClientError, SaltedCache};
use serde_json::{Value, json};

use crate::error::{Cause, Error};
use crate::measure::{Counts, Latencies, Slice};
use crate::numbers::{BYTES_PER_MIB, to_f64};
use crate::plan::Plan;
use crate::process::{RESIDENT, status_bytes};
use crate::side::Target;
use crate::table::{LABEL_WIDTH, line};
use crate::workload::KEY_BYTES;
use resident::{MemorySampler, Spread};

/// Reported quantiles, with their names.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
/// Largest number of keys: key numbers have nine digits.
const KEYS_MAX: f64 = 1e9;

/// Statistics of a bucket: bytes and totals; 0 if the server does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BucketFigures {
    quota: u64,
    used: u64,
    /// Bytes used, without the overhead of the process beyond the bucket's own count.
    booked: u64,
    fetched: u64,
    /// Reads that waited for the store. `None` if the server reports only documents read back, some of them for writes.
    waited: Option<u64>,
    evicted: u64,
    refused: u64,
}

impl BucketFigures {
    fn ask(client: &mut Client) -> Result<Self, ClientError> {
        let mut figures = Self::default();
        for group in ["", "memory"] {
            client.stat_numbers(group, |name, value| figures.note(name, value))?;
        }
        if figures.booked == 0 {
            figures.booked = figures.used;
        }
        Ok(figures)
    }

    fn waited(&self) -> u64 {
        self.waited.unwrap_or(self.fetched)
    }

    fn note(&mut self, name: &[u8], value: u64) {
        match name {
            b"ep_max_size" => self.quota = value,
            b"mem_used" => self.used = value,
            b"ep_mem_booked" => self.booked = value,
            b"ep_bg_fetched" => self.fetched = value,
            b"ep_bg_reads_waited" => self.waited = Some(value),
            b"ep_num_value_ejects" => self.evicted = value,
            b"ep_tmp_oom_errors" => self.refused = value,
            _ => {}
        }
    }
}

/// Figures of one slice, or of the load before the slices.
#[derive(Clone, Copy, Debug)]
struct Moment {
    figures: BucketFigures,
    resident: Option<Spread>,
    /// Number of answered reads.
    gets: u64,
    /// Number of documents read back from the store, for reads and writes.
    fetched: u64,
    /// Number of reads that waited for the store; equals `fetched` if the server does not report it.
    waited: u64,
}

impl Moment {
    /// Returns the share of reads that did not need the store.
    fn hit_rate(&self) -> Option<f64> {
        (self.gets > 0).then(|| 1.0 - (to_f64(self.waited) / to_f64(self.gets)).min(1.0))
    }

    fn resident_to_booked(&self) -> Option<f64> {
        let booked = to_f64(self.figures.booked);
        (booked > 0.0).then_some(to_f64(self.resident?.median) / booked)
    }
}

/// Watches the memory of one server under load.
#[derive(Debug)]
pub(super) struct Watch {
    client: Client,
    sampler: Option<MemorySampler>,
    before: BucketFigures,
    loading: Option<Spread>,
    slices: Vec<Moment>,
    last: BucketFigures,
}

/// Returns the number of keys whose documents need `times` the memory quota of the server.
///
/// # Errors
/// The server cannot be asked, or reports no quota.
pub(super) fn keys(target: &Target, plan: &Plan, times: f64) -> Result<u64, Error> {
    let mut client = connect(target)?;
    let quota = BucketFigures::ask(&mut client)?.quota;
    if quota == 0 {
        let reason = "--overcommit: the server does not tell its memory quota";
        return Err(Error::new(Cause::Unavailable, reason));
    }
    Ok(keys_of(quota, times, plan.sizes.mean()))
}

#[expect(clippy::cast_sign_loss, reason = "nothing in it is negative")]
fn keys_of(quota: u64, times: f64, value_bytes: f64) -> u64 {
    let document = to_f64(KEY_BYTES as u64) + value_bytes;
    (to_f64(quota) * times / document).clamp(1.0, KEYS_MAX) as u64
}

fn connect(target: &Target) -> Result<Client, Error> {
    let mut cache = SaltedCache::default();
    Ok(Client::connect(&target.server, &mut cache)?)
}

impl Watch {
    /// Starts to watch.
    pub(super) fn start(target: &Target) -> Result<Self, Error> {
        let mut client = connect(target)?;
        let os = |reason: String| Error::new(Cause::Machine, reason);
        let sampler = match target.pid {
            None => None,
            Some(pid) if status_bytes(pid, RESIDENT).is_none() => {
                return Err(os(format!("cannot read the memory of process {pid}")));
            }
            Some(pid) => Some(MemorySampler::start(pid).map_err(|error| os(error.to_string()))?),
        };
        let before = BucketFigures::ask(&mut client)?;
        Ok(Self {
            client,
            sampler,
            before,
            loading: None,
            slices: Vec::new(),
            last: before,
        })
    }

    fn spread(&self) -> Option<Spread> {
        Spread::of(self.sampler.as_ref()?.take())
    }

    /// Notes the end of the load.
    pub(super) fn loaded(&mut self) -> Result<(), Error> {
        self.loading = self.spread();
        self.last = BucketFigures::ask(&mut self.client)?;
        Ok(())
    }

    /// Notes the end of a slice.
    pub(super) fn sliced(&mut self, slice: &Slice) -> Result<(), Error> {
        let resident = self.spread();
        let figures = BucketFigures::ask(&mut self.client)?;
        self.slices.push(Moment {
            figures,
            resident,
            gets: slice.counts.gets,
            fetched: figures.fetched.saturating_sub(self.last.fetched),
            waited: figures.waited().saturating_sub(self.last.waited()),
        });
        self.last = figures;
        Ok(())
    }

    /// Returns the figures of the whole measurement.
    fn whole(&self) -> Moment {
        let seen: Vec<Spread> = self.slices.iter().filter_map(|one| one.resident).collect();
        let medians = Spread::of(seen.iter().map(|one| one.median).collect());
        let most = seen.iter().map(|one| one.most).max();
        Moment {
            figures: self.last,
            resident: medians.zip(most).map(|(medians, most)| Spread {
                median: medians.median,
                most,
            }),
            gets: self.slices.iter().map(|one| one.gets).sum(),
            fetched: self.slices.iter().map(|one| one.fetched).sum(),
            waited: self.slices.iter().map(|one| one.waited).sum(),
        }
    }

    /// Returns rows for the table, below those of the run.
    pub(super) fn to_text(&self, counts: &Counts) -> String {
        let whole = self.whole();
        let quota = to_f64(whole.figures.quota);
        let mut text = String::new();
        let mut row = |label: &str, digits: usize, figure: Option<f64>| {
            if let Some(figure) = figure {
                text += &line(LABEL_WIDTH, label, [format!("{figure:.digits$}")]);
                text.push('\n');
            }
        };
        let mib = |bytes: u64| to_f64(bytes) / BYTES_PER_MIB;
        row("memory quota, MiB", 1, Some(quota / BYTES_PER_MIB));
        row("used, MiB", 1, Some(mib(whole.figures.used)));
        row("booked, MiB", 1, Some(mib(whole.figures.booked)));
        let resident = whole.resident;
        let median = resident.map(|all| mib(all.median));
        row("resident median, MiB", 1, median);
        row("resident most, MiB", 1, resident.map(|all| mib(all.most)));
        let of_quota = resident.map(|all| to_f64(all.most) / quota);
        row("  of the quota", 3, of_quota);
        let loading = self.loading.map(|all| mib(all.most));
        row("  while loading, MiB", 1, loading);
        let ratio = |slice: Option<&Moment>| slice.and_then(Moment::resident_to_booked);
        row("resident/booked, first", 3, ratio(self.slices.first()));
        row("resident/booked, last", 3, ratio(self.slices.last()));
        row("hit rate of gets", 4, whole.hit_rate());
        for (kind, latencies) in kinds(counts) {
            for (name, quantile) in QUANTILES {
                let label = format!("{kind} {name}, us");
                row(&label, 1, Some(latencies.quantile_us(quantile)));
            }
        }
        text
    }

    /// Returns the figures as JSON, with every slice.
    pub(super) fn to_json(&self, counts: &Counts) -> Value {
        let mut json = moment_json(&self.whole());
        json["quota"] = self.last.quota.into();
        json["resident_most_loading"] = self.loading.map(|all| all.most).into();
        json["refused"] = self.last.refused.saturating_sub(self.before.refused).into();
        json["evicted"] = self.last.evicted.saturating_sub(self.before.evicted).into();
        json["slices"] = self.slices.iter().map(moment_json).collect();
        for (kind, latencies) in kinds(counts) {
            let mut quantiles = json!({});
            for (name, quantile) in QUANTILES {
                quantiles[name] = latencies.quantile_us(quantile).into();
            }
            json[format!("{kind}_latency_us")] = quantiles;
        }
        json
    }
}

fn kinds(counts: &Counts) -> [(&'static str, Latencies); 2] {
    let gets = counts.latencies.without(&counts.set_latencies);
    [("get", gets), ("set", counts.set_latencies.clone())]
}

fn moment_json(moment: &Moment) -> Value {
    json!({
        "used": moment.figures.used,
        "booked": moment.figures.booked,
        "resident_median": moment.resident.map(|all| all.median),
        "resident_most": moment.resident.map(|all| all.most),
        "resident_to_booked": moment.resident_to_booked(),
        "gets": moment.gets,
        "fetched": moment.fetched,
        "waited": moment.waited,
        "hit_rate": moment.hit_rate(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_from_the_quota() {
        assert_eq!(keys_of(128 << 20, 10.0, 1_008.0), 1_310_720);
        assert_eq!(keys_of(1, 0.01, 1_008.0), 1);
    }

    #[test]
    fn figures_are_taken_by_name() {
        let mut figures = BucketFigures::default();
        figures.note(b"ep_max_size", 100);
        figures.note(b"ep_bg_fetched", 7);
        figures.note(b"ep_unknown", 5);
        let expected = BucketFigures {
            quota: 100,
            fetched: 7,
            ..BucketFigures::default()
        };
        assert_eq!(figures, expected);
        assert_eq!(figures.waited(), 7, "the best that is told");
        figures.note(b"ep_bg_reads_waited", 3);
        assert_eq!(figures.waited(), 3);
    }

    #[test]
    fn a_moment_has_a_hit_rate_and_a_ratio() {
        let mut moment = Moment {
            figures: BucketFigures {
                booked: 100,
                ..BucketFigures::default()
            },
            resident: Some(Spread {
                median: 110,
                most: 120,
            }),
            gets: 1_000,
            fetched: 1_800,
            waited: 250,
        };
        assert_eq!(moment.hit_rate(), Some(0.75));
        let ratio = moment.resident_to_booked().unwrap();
        assert!((ratio - 1.1).abs() < 1e-9);
        moment.gets = 0;
        assert_eq!(moment.hit_rate(), None);
    }
}
