//! `settee cluster`: clusters of nodes that etcd coordinates.

mod adopt;
mod demo;
mod failover;
mod init;
mod orders;
mod show;
mod view;
mod watch;

use crate::exit::Failure;

/// Create a cluster, show its status, and give it orders
///
/// All commands except demo and init ask the member named by --connect over KV; no bucket is selected.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    what: ClusterAction,
}

#[derive(Debug, clap::Subcommand)]
enum ClusterAction {
    Demo(demo::DemoArgs),
    Init(init::InitArgs),
    Status(show::StatusArgs),
    Nodes(show::NodesArgs),
    Rebalance(orders::RebalanceArgs),
    Drain(orders::DrainArgs),
    Failover(failover::FailoverArgs),
    Recover(orders::RecoverArgs),
    Remove(orders::RemoveArgs),
    Adopt(adopt::AdoptArgs),
}

/// Runs `cluster`.
///
/// # Errors
/// etcd or the server cannot be asked, or refuses.
pub(crate) fn run(args: &ClusterArgs) -> Result<(), Failure> {
    match &args.what {
        ClusterAction::Demo(args) => demo::run(args),
        ClusterAction::Init(args) => init::run(args),
        ClusterAction::Status(args) => show::status(args),
        ClusterAction::Nodes(args) => show::nodes(args),
        ClusterAction::Rebalance(args) => orders::rebalance(args),
        ClusterAction::Drain(args) => orders::drain(args),
        ClusterAction::Failover(args) => failover::run(args),
        ClusterAction::Recover(args) => orders::recover(args),
        ClusterAction::Remove(args) => orders::remove(args),
        ClusterAction::Adopt(args) => adopt::run(args),
    }
}
