//! `settee salvage`: copies the readable part of a damaged data directory to a new one.

use std::path::PathBuf;

use server::{SalvageError, SalvageStep, Salvaged};

use crate::encryption::KeyArgs;
use crate::exit::{Failure, Sysexit};
use crate::output;

/// Copy everything that can still be read of a damaged data directory to a new one.
///
/// For a node that refuses to start because a file is damaged. Every copied document passed its checksum. A node
/// that starts on the copy has the identity and the buckets of the damaged one. The damaged directory stays
/// unchanged; no node may be running on it. With keys the copy is encrypted, with the first of them. A document
/// whose newest version is lost may come back in an older version. If something is lost, no node of a cluster starts on
/// the copy: an empty directory gets everything from other nodes.
///
/// Exit code 65 when something is damaged or missing; it is listed.
#[derive(Debug, clap::Args)]
pub(crate) struct SalvageArgs {
    /// The damaged data directory
    #[arg(long, env = "SETTEE_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,
    /// The new data directory; it must be empty or missing
    #[arg(long, env = "SETTEE_SALVAGE_TO", value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
}

/// Runs the command.
///
/// # Errors
/// The damaged directory cannot be read, the new one cannot be written, or something is lost.
pub(crate) fn run(args: &SalvageArgs) -> Result<(), Failure> {
    crate::serve::keep_files_private();
    let (mut lines, mut whole, mut failed) = (Vec::new(), true, None);
    let keys = args.keys.keys()?;
    let done = server::salvage(&args.data_dir, &args.to, keys.as_ref(), &mut |step| {
        whole &= matches!(step, SalvageStep::Bucket(_, salvaged) if salvaged.is_whole());
        match step {
            SalvageStep::NodeLost(why) => lines.push(format!(
                "{why}: the copy is another node, its buckets have default settings"
            )),
            SalvageStep::AuthorityLost(why) => lines.push(format!(
                "{why}: the copy makes an authority that clients do not know yet"
            )),
            SalvageStep::UsersLost(why) => {
                lines.push(format!(
                    "{why}: the copy has no users but the administrator"
                ));
            }
            SalvageStep::Bucket(bucket, salvaged) => lines.extend(describe(bucket, salvaged)),
            SalvageStep::Incomplete(file) => lines.push(format!(
                "other nodes would take the copy for a whole one: a node of a cluster, or one with --replica-of, begins with \
                 an empty directory instead; if no other node has the documents, remove {}",
                file.display()
            )),
            SalvageStep::BucketFailed(bucket, error) => {
                lines.push(format!("{bucket}: not copied, or not all: {error}"));
                failed = failed.take().or_else(|| not_damage(error));
            }
        }
    });
    let text: String = lines
        .iter()
        .flat_map(|line| [line.as_str(), "\n"])
        .collect();
    output::print(text.as_bytes())?;
    done.map_err(|error| Failure::new(Sysexit::Os, error.to_string()))?;
    match failed {
        Some(reason) => Err(Failure::new(Sysexit::Os, reason)),
        None if whole => Ok(()),
        None => Err(Failure::new(
            Sysexit::Data,
            "not everything could be copied",
        )),
    }
}

/// Returns the reason why a bucket was not copied, unless the bucket is damaged.
fn not_damage(error: &SalvageError) -> Option<String> {
    match error {
        SalvageError::Read(..) => None,
        _ => Some(error.to_string()),
    }
}

/// Returns the lines about a bucket: the number of copied rows, then one line for each damage or loss.
fn describe(bucket: &str, salvaged: &Salvaged) -> Vec<String> {
    let Salvaged { vbuckets, rows, .. } = salvaged;
    let mut lines = vec![format!("{rows} rows of {vbuckets} vBuckets copied")];
    lines.extend(salvaged.damaged.iter().map(ToString::to_string));
    if salvaged.rows_damaged > 0 {
        lines.push(format!(
            "{} rows have lost their values",
            salvaged.rows_damaged
        ));
    }
    if salvaged.commits_lost > 0 {
        lines.push(format!(
            "{} acknowledged commits are lost",
            salvaged.commits_lost
        ));
    }
    let without_record = salvaged.without_record.iter();
    lines.extend(without_record.map(|vb| format!("{vb} had lost its record")));
    if salvaged.manifest_lost {
        lines.push("the manifest of its collections is lost".to_owned());
    }
    if salvaged.history_left > 0 {
        lines.push(format!(
            "its history is not copied: {} versions, the newest of each document among them",
            salvaged.history_left
        ));
    }
    let lines = lines.into_iter();
    lines.map(|line| format!("{bucket}: {line}")).collect()
}

#[cfg(test)]
mod tests {
    use server::{Damage, Keys};

    use super::*;

    #[test]
    fn salvage_lists_losses() {
        let salvaged = Salvaged {
            vbuckets: 2,
            last: Some(model::VbId(1)),
            rows: 7,
            damaged: vec![Damage {
                file: "a/b".into(),
                reason: "bytes 64 to 128 are damaged".into(),
                vb: Some(model::VbId(3)),
                keys: Keys::Unknown,
                rows: Some(9),
            }],
            rows_damaged: 1,
            without_record: vec![model::VbId(4)],
            commits_lost: 8,
            manifest_lost: true,
            history_left: 12,
        };
        let lines = describe("default", &salvaged);
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[0], "default: 7 rows of 2 vBuckets copied");
        let damage = "default: a/b: bytes 64 to 128 are damaged: vb_3, 9 rows";
        assert_eq!(lines[1], damage);
        assert!(lines[6].contains("history is not copied: 12 versions"));
    }
}
