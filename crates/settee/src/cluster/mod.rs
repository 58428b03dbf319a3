//! `settee cluster`: clusters of nodes that etcd coordinates.

mod etcd_flags;
mod init;

use crate::exit::Failure;

/// Make a cluster
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    what: ClusterAction,
}

#[derive(Debug, clap::Subcommand)]
enum ClusterAction {
    Init(init::InitArgs),
}

/// Runs `cluster`.
///
/// # Errors
/// etcd or the server cannot be asked, or refuses.
pub(crate) fn run(args: &ClusterArgs) -> Result<(), Failure> {
    match &args.what {
        ClusterAction::Init(args) => init::run(args),
    }
}
