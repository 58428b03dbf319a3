//! `settee promote`: makes the replica of a bucket the active one.

use client::Request;
use wire::Opcode;

use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::output;

/// Make the bucket of a replica node active.
///
/// For when the active node is gone for good: from then on this node takes writes. What other
/// nodes of the group have and this one has not is fetched first, as far as they can be reached;
/// whatever only the old active node had is lost. Should that one come back, let it follow this one
/// (settee serve --replica-of ... --demote). Promoting twice changes nothing. With several replicas it is
/// refused while so few nodes can be reached that writes which a majority acknowledged may be missing, and on a
/// node that was a replica and is not told any more of which node. It is on disk once this command says so.
#[derive(Debug, clap::Args)]
pub(crate) struct PromoteArgs {
    /// Also if writes that a majority of the group acknowledged may be lost by it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs the command.
///
/// # Errors
/// The server cannot be asked, or the bucket is no replica.
pub(crate) fn run(args: &PromoteArgs) -> Result<(), Failure> {
    let mut client = args.connect.connect()?;
    let how: &[u8] = if args.force { b"force" } else { b"" };
    client.expect_success(&Request::with(Opcode::IOCTL_SET, PROMOTE, how))?;
    output::print(b"promoted\n")
}

const PROMOTE: &[u8] = b"replication.promote";
