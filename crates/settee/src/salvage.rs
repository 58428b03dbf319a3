//! `settee salvage`: copies what can be read of a damaged data directory into a new one.

use std::fmt::Write as _;
use std::path::PathBuf;

use server::{SalvageError, SalvageStep, Salvaged};

use crate::exit::{Failure, Sysexit};
use crate::output;

/// Copy everything that can still be read of a damaged data directory into a new one.
///
/// For a node that refuses to start because a file is damaged. Every document that is copied
/// passed its checksum. A node that starts on the copy has the identity and the buckets of the
/// damaged one. The damaged directory stays as it is; no node may be running on it.
/// Documents of which the newest version is lost may come back in an older one.
///
/// Exit code 65 when something is damaged or missing; it is listed.
#[derive(Debug, clap::Args)]
pub(crate) struct SalvageArgs {
    /// The damaged data directory
    #[arg(long, env = "SETTEE_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,
    /// The new data directory; it must not hold any of the buckets
    #[arg(long, env = "SETTEE_SALVAGE_TO", value_name = "DIR")]
    to: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// The one cannot be read or the other written, or something is lost.
pub(crate) fn run(args: &SalvageArgs) -> Result<(), Failure> {
    crate::serve::keep_files_private();
    let (mut text, mut whole, mut failed) = (String::new(), true, None::<String>);
    let done = server::salvage(&args.data_dir, &args.to, &mut |step| match step {
        SalvageStep::NodeLost(why) => {
            whole = false;
            writeln!(
                text,
                "{why}: the copy is another node, its buckets have default settings"
            )
            .expect("writing to a string does not fail");
        }
        SalvageStep::AuthorityLost(why) => {
            whole = false;
            writeln!(
                text,
                "{why}: the copy makes an authority that clients do not know yet"
            )
            .expect("writing to a string does not fail");
        }
        SalvageStep::Bucket(bucket, salvaged) => {
            whole &= salvaged.is_whole();
            describe(bucket, salvaged, &mut text);
        }
        SalvageStep::BucketFailed(bucket, error) => {
            whole = false;
            writeln!(text, "{bucket}: not copied, or not all: {error}")
                .expect("writing to a string does not fail");
            failed = failed.take().or_else(|| not_damage(error));
        }
    });
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

/// Why a bucket was not copied, where that is no damage of it.
fn not_damage(error: &SalvageError) -> Option<String> {
    match error {
        SalvageError::Read(..) => None,
        _ => Some(error.to_string()),
    }
}

fn describe(bucket: &str, salvaged: &Salvaged, text: &mut String) {
    let Salvaged { vbuckets, rows, .. } = salvaged;
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(format!(
        "{bucket}: {rows} rows of {vbuckets} vBuckets copied"
    ));
    for (file, parts) in &salvaged.damaged {
        line(format!(
            "{bucket}: {}: {parts} damaged parts",
            file.display()
        ));
    }
    if salvaged.rows_damaged > 0 {
        line(format!("{bucket}: {} damaged rows", salvaged.rows_damaged));
    }
    for vb in &salvaged.without_record {
        line(format!("{bucket}: {vb} had lost its record"));
    }
    if salvaged.manifest_lost {
        line(format!("{bucket}: the manifest of its collections is lost"));
    }
    if salvaged.history_left > 0 {
        line(format!(
            "{bucket}: its history is not copied: {} versions, the newest of each document among them",
            salvaged.history_left
        ));
    }
    for (vb, wanted, found) in &salvaged.behind {
        line(format!(
            "{bucket}: {vb} had come to seqno {wanted}, {found} was found"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_listed() {
        let salvaged = Salvaged {
            vbuckets: 2,
            rows: 7,
            damaged: vec![("a/b".into(), 3)],
            rows_damaged: 1,
            without_record: vec![model::VbId(4)],
            behind: vec![(model::VbId(5), model::Seqno(9), model::Seqno(8))],
            manifest_lost: true,
            history_left: 12,
        };
        let mut text = String::new();
        describe("default", &salvaged, &mut text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        assert_eq!(lines[0], "default: 7 rows of 2 vBuckets copied");
        assert_eq!(lines[1], "default: a/b: 3 damaged parts");
        assert!(lines[5].contains("history is not copied: 12 versions"));
    }
}
