//! `settee check`: reads a whole data directory and reports damage.

use std::path::PathBuf;

use serde_json::{Value, json};
use server::{CheckStep, Checked, Damage, Keys, OpenErrorKind, key_text};

use crate::encryption::KeyArgs;
use crate::exit::{Failure, Sysexit};
use crate::output::{self, ProgressLine};

/// Read a whole data directory and report damage.
///
/// DIR is the data directory of a node, or the directory of one of its buckets. Every block, row, value and list
/// is read and compared with its checksum. Each damage is a line with its file, and with vBucket and keys if they
/// are known. Nothing is changed; no node may be running on the directory. settee salvage copies the rest of a
/// damaged directory.
///
/// Exit code 1 when something is damaged or missing.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The data directory
    #[arg(env = "SETTEE_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,
    /// Print one JSON object
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
    #[command(flatten)]
    keys: KeyArgs,
}

/// Runs the command.
///
/// # Errors
/// The directory cannot be read, or something is damaged.
pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let mut found = Findings::default();
    let line = ProgressLine::new(false);
    let keys = args.keys.keys()?;
    let done = server::check(&args.data_dir, keys.as_ref(), &mut |step| match step {
        CheckStep::Progress(bucket, progress) => {
            let percent = (progress.bytes * 100).checked_div(progress.bytes_total);
            line.show(&format!("{bucket}: {} %", percent.unwrap_or(100)));
        }
        step => found.add(step),
    });
    drop(line);
    let failed = |error| Failure::new(Sysexit::Os, format!("{}: {error}", args.data_dir.display()));
    done.map_err(failed)?;
    if args.json {
        output::print_json(&found.json())?;
    } else {
        let lines = found.lines.iter();
        let text: String = lines.flat_map(|line| [line.as_str(), "\n"]).collect();
        output::print(text.as_bytes())?;
    }
    match found.failed {
        Some(reason) => Err(Failure::new(Sysexit::Os, reason)),
        None if found.damages == 0 => Ok(()),
        None => Err(Failure::new(
            Sysexit::Found,
            format!("{} damages", found.damages),
        )),
    }
}

/// The findings of a check.
#[derive(Default)]
struct Findings {
    lines: Vec<String>,
    node: Vec<String>,
    buckets: Vec<Value>,
    damages: usize,
    /// Reason why a bucket could not be checked.
    failed: Option<String>,
}

impl Findings {
    fn add(&mut self, step: CheckStep<'_>) {
        match step {
            CheckStep::Progress(..) => {}
            CheckStep::NodeDamaged(why) => {
                self.damages += 1;
                self.lines.push(why.clone());
                self.node.push(why);
            }
            CheckStep::Bucket(bucket, checked) => {
                self.damages += checked.damaged.len();
                self.lines.extend(describe(bucket, &checked));
                self.buckets.push(object(bucket, &checked));
            }
            CheckStep::BucketFailed(bucket, error) => {
                let line = format!("{bucket}: {error}");
                self.lines.push(line.clone());
                self.buckets
                    .push(json!({ "bucket": bucket, "error": error.to_string() }));
                if error.kind == OpenErrorKind::Damaged {
                    self.damages += 1;
                } else {
                    self.failed.get_or_insert(line);
                }
            }
        }
    }

    fn json(&self) -> Value {
        json!({
            "whole": self.damages == 0 && self.failed.is_none(),
            "node": self.node,
            "buckets": self.buckets,
        })
    }
}

/// Returns the lines about a bucket: a summary, then one line for each damage.
fn describe(bucket: &str, checked: &Checked) -> Vec<String> {
    let Checked {
        files, bytes, rows, ..
    } = checked;
    let damaged = checked.damaged.iter().map(ToString::to_string);
    let unnamed = checked.unnamed.iter();
    let unnamed = unnamed.map(|file| {
        let file = file.display();
        format!("{file}: nothing names it; the next start removes it")
    });
    let read = format!(
        "{rows} rows of {} vBuckets, {} values apart, {files} files, {bytes} bytes: {}",
        checked.vbuckets,
        checked.values,
        match checked.damaged.len() {
            0 => "whole".to_owned(),
            count => format!("{count} damages"),
        }
    );
    let lines = damaged.chain(unnamed).chain([read]);
    lines.map(|line| format!("{bucket}: {line}")).collect()
}

/// Returns the same findings as a JSON object.
fn object(bucket: &str, checked: &Checked) -> Value {
    json!({
        "bucket": bucket,
        "files": checked.files,
        "bytes": checked.bytes,
        "vbuckets": checked.vbuckets,
        "rows": checked.rows,
        "values": checked.values,
        "damaged": checked.damaged.iter().map(damage).collect::<Vec<_>>(),
        "unnamed": checked.unnamed,
    })
}

fn damage(damage: &Damage) -> Value {
    let mut object = json!({
        "file": damage.file,
        "reason": damage.reason,
        "vb": damage.vb.map(|vb| vb.0),
        "rows": damage.rows,
    });
    let key = |key: &[u8]| Value::from(key_text(key));
    match &damage.keys {
        Keys::Unknown => {}
        Keys::One(one) => object["key"] = key(one),
        Keys::Between(after, before) => {
            object["after_key"] = after.as_deref().map(key).into();
            object["before_key"] = before.as_deref().map(key).into();
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked() -> Checked {
        Checked {
            files: 3,
            bytes: 4_096,
            vbuckets: 2,
            rows: 7,
            values: 1,
            damaged: vec![Damage {
                file: "a/run-00000001".into(),
                reason: "bytes 64 to 128 are damaged".into(),
                vb: Some(model::VbId(3)),
                keys: Keys::Between(Some(b"\0a".to_vec()), None),
                rows: Some(9),
            }],
            unnamed: vec!["a/run-00000002".into()],
        }
    }

    #[test]
    fn damage_is_reported_as_line_and_object() {
        let lines = describe("shop", &checked());
        assert_eq!(
            lines,
            [
                "shop: a/run-00000001: bytes 64 to 128 are damaged: vb_3, 9 rows, keys behind a",
                "shop: a/run-00000002: nothing names it; the next start removes it",
                "shop: 7 rows of 2 vBuckets, 1 values apart, 3 files, 4096 bytes: 1 damages",
            ]
        );
        let mut found = Findings::default();
        found.add(CheckStep::Bucket("shop", checked()));
        let json = found.json();
        assert_eq!(json["whole"], false);
        let damage = &json["buckets"][0]["damaged"][0];
        assert_eq!((&damage["vb"], &damage["rows"]), (&json!(3), &json!(9)));
        assert_eq!(damage["after_key"], "a");
        assert_eq!(damage["before_key"], Value::Null);
    }
}
