//! `settee promote`: makes a replica bucket active.

use client::Request;
use wire::Opcode;

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::output;

/// Make the bucket of a replica node active.
///
/// For when the active node is gone for good: from then on this node accepts writes. First it fetches the changes
/// that other reachable nodes of the group have and it has not. Changes that only the old active node had are
/// lost. If that node comes back, let it follow this one (settee serve --replica-of ... --demote). A second
/// promotion changes nothing. With several replicas the command is refused if too few nodes can be reached, so
/// that writes which a majority acknowledged may be missing. It is also refused on a former replica that is
/// started without the node to follow. The promotion is on disk when this command reports it.
#[derive(Debug, clap::Args)]
pub(crate) struct PromoteArgs {
    /// Promote even if writes that a majority of the group acknowledged may be lost
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs the command.
///
/// # Errors
/// The server cannot be asked, or the bucket is not a replica.
pub(crate) fn run(args: &PromoteArgs) -> Result<(), Failure> {
    let mut client = args.connect.connect()?;
    let how: &[u8] = if args.force { b"force" } else { b"" };
    client.expect_success(&Request::with(Opcode::IOCTL_SET, PROMOTE, how))?;
    output::print(b"promoted\n")
}

const PROMOTE: &[u8] = b"replication.promote";
