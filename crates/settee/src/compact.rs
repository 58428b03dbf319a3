//! `settee compact`: lets a server purge vBuckets on its disk.

use client::{ClientError, Request};
use model::VbId;
use wire::{Opcode, Status};

use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};
use crate::output;

/// Number of vBuckets of a server that does not report it.
const VBUCKETS: u16 = 1024;

/// Drop old deletions from a bucket's disk, and let expired documents expire.
///
/// A node does so by itself, in time; this command does it at once. Deletions that are younger than the purge age
/// stay, unless the flags say otherwise. A consumer of changes that has not received a dropped deletion must
/// begin again from the start.
#[derive(Debug, clap::Args)]
pub(crate) struct CompactArgs {
    /// Only this vBucket; may be repeated
    #[arg(long = "vbucket", value_name = "N")]
    vbuckets: Vec<u16>,
    /// Drop deletions from before this time too, in seconds since 1970
    #[arg(
        long,
        env = "SETTEE_PURGE_BEFORE",
        value_name = "SECONDS",
        default_value_t = 0
    )]
    purge_before: u64,
    /// Drop only deletions up to this seqno; 0 for all
    #[arg(
        long,
        env = "SETTEE_PURGE_UP_TO",
        value_name = "SEQNO",
        default_value_t = 0
    )]
    purge_up_to: u64,
    /// Drop all deletions, however young
    #[arg(long, env = "SETTEE_DROP_DELETES")]
    drop_deletes: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs the command.
///
/// # Errors
/// The server cannot be asked, has none of the vBuckets, or cannot do it.
pub(crate) fn run(args: &CompactArgs) -> Result<(), Failure> {
    let mut client = args.connect.connect()?;
    let extras = extras(args);
    let all: Vec<u16> = match client.key_form().vbuckets {
        _ if !args.vbuckets.is_empty() => args.vbuckets.clone(),
        count => (0..count.unwrap_or(VBUCKETS)).collect(),
    };
    let mut done = 0;
    for vb in all {
        let message = Request {
            vbucket: VbId(vb),
            extras: &extras,
            ..Request::new(Opcode::COMPACT_DB)
        };
        match client.expect_success(&message) {
            Ok(_) => done += 1,
            // Another node has the vBucket.
            Err(ClientError::Refused { status, .. }) if status == Status::NOT_MY_VBUCKET => {}
            Err(error) => return Err(error.into()),
        }
    }
    if done == 0 {
        let reason = "the server has none of these vBuckets";
        return Err(Failure::new(Sysexit::NoInput, reason));
    }
    output::print(format!("{done} vBuckets compacted\n").as_bytes())
}

fn extras(args: &CompactArgs) -> [u8; 24] {
    let mut extras = [0; 24];
    extras[..8].copy_from_slice(&args.purge_before.to_be_bytes());
    extras[8..16].copy_from_slice(&args.purge_up_to.to_be_bytes());
    extras[16] = u8::from(args.drop_deletes);
    extras
}
