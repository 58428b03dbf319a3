//! `settee cluster demo`: a cluster of three nodes on this machine.

mod process;
mod running;

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use client::{Address, ConnectOptions};
use etcd::{ClusterAddress, Endpoints};
use hyper::Method;
use serde_json::json;
use server::names;
use tokio::net::TcpSocket;

use self::process::LOOK;
use self::running::{DemoProcesses, init};
use super::view::MemberLink;
use crate::exit::{Failure, Sysexit};
use crate::management::Management;
use crate::output;
use crate::serve::watch_signals;

const CLUSTER: &str = "demo";
const BUCKET: &str = "default";
const NODES: [&str; 3] = ["a", "b", "c"];
/// Default ports: KV and HTTP of the first node (100 more for each further node), and etcd.
const KV_PORT: u16 = 11210;
const HTTP_PORT: u16 = 8091;
const ETCD_PORT: u16 = 12379;
/// Longest time until all nodes are members.
const JOIN_LIMIT: Duration = Duration::from_mins(1);

/// Run a cluster of three nodes on this machine, to try it: with an etcd of its own, and a bucket with one replica
///
/// Ctrl-C ends all processes; the same command continues with the data in the directory. Users of this machine
/// may log in as Administrator, password `password`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Directory for the data and the logs of all nodes, and of etcd
    #[arg(
        long,
        env = "SETTEE_DATA_DIR",
        value_name = "DIR",
        default_value = "./settee-demo"
    )]
    data_dir: PathBuf,
    /// First of eight consecutive ports, 0 for free ones [default: KV 11210, 11310, 11410, HTTP 8091, 8191, 8291,
    /// etcd 12379, 12380]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=65_528))]
    port: Option<u16>,
    /// A running etcd, instead of one started by the demo: http://HOST:PORT
    #[arg(long, value_name = "ADDRESSES")]
    etcd: Option<Endpoints>,
}

/// KV and HTTP ports of each node, and two ports of etcd.
struct DemoPorts {
    nodes: [(u16, u16); 3],
    etcd: (u16, u16),
}

impl DemoPorts {
    /// Returns the ports, and the sockets that reserve them if they are free ones.
    fn new(first: Option<u16>) -> io::Result<(Self, Vec<TcpSocket>)> {
        let mut sockets = Vec::new();
        let ports: [u16; 8] = match first {
            None => [
                KV_PORT,
                KV_PORT + 100,
                KV_PORT + 200,
                HTTP_PORT,
                HTTP_PORT + 100,
                HTTP_PORT + 200,
                ETCD_PORT,
                ETCD_PORT + 1,
            ],
            Some(0) => {
                sockets = reserve_ports()?;
                let mut ports = [0; 8];
                for (port, socket) in ports.iter_mut().zip(&sockets) {
                    *port = socket.local_addr()?.port();
                }
                ports
            }
            Some(first) => std::array::from_fn(|at| first + at as u16),
        };
        let [a, b, c, a_http, b_http, c_http, client, peer] = ports;
        let ports = Self {
            nodes: [(a, a_http), (b, b_http), (c, c_http)],
            etcd: (client, peer),
        };
        Ok((ports, sockets))
    }
}

/// Binds sockets that do not listen: the system gives their ports to no program that does not ask for them.
fn reserve_ports() -> io::Result<Vec<TcpSocket>> {
    let reserve = |_| {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(socket)
    };
    (0..8).map(reserve).collect()
}

/// Runs the command.
///
/// # Errors
/// There is no etcd, or a node does not start.
pub(super) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let ports = DemoPorts::new(args.port);
    let (ports, _reserving) =
        ports.map_err(|error| Failure::new(Sysexit::Os, error.to_string()))?;
    crate::serve::keep_files_private();
    names::make_directories(&args.data_dir).map_err(|error| {
        let line = format!("--data-dir {}: {error}", args.data_dir.display());
        Failure::new(Sysexit::CantCreate, line)
    })?;
    let mut signals = watch_signals()?;
    // All started processes end with this value.
    let mut running = DemoProcesses::new(&args.data_dir);
    let endpoints = match &args.etcd {
        Some(endpoints) => endpoints.clone(),
        None => running.start_etcd(ports.etcd)?,
    };
    init(&endpoints, CLUSTER)?;
    let name = CLUSTER.to_owned();
    let cluster = ClusterAddress { endpoints, name }.to_string();
    for (name, (kv, http)) in NODES.iter().zip(ports.nodes) {
        running.start_node(name, &cluster, (kv, http))?;
    }
    let options = options(ports.nodes[0].0)?;
    await_members(&options)?;
    make_bucket(options)?;
    let summary = text(args, &ports, &running.ids());
    output::print(summary.as_bytes())?;
    running.attend(&mut signals)
}

fn options(port: u16) -> Result<ConnectOptions, Failure> {
    let text = format!("couchbase://Administrator:password@127.0.0.1:{port}/{BUCKET}");
    let address: Address = text.parse().map_err(|error| {
        let line = format!("{text}: {error}");
        Failure::usage(line)
    })?;
    Ok(ConnectOptions {
        address,
        tls: None,
        timeout: JOIN_LIMIT,
        compressed: false,
    })
}

/// Waits until all nodes are members. A node that failed in the last run of the demo gets its share again.
fn await_members(options: &ConnectOptions) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut link = MemberLink::open(options.clone())?;
    loop {
        let (_, status) = link.status()?;
        let mine = status
            .nodes
            .iter()
            .filter(|node| NODES.contains(&&*node.name));
        let alive = mine.clone().filter(|node| node.alive).count() == NODES.len();
        let others: Vec<_> = mine.filter(|node| node.state != "active").collect();
        if alive && others.is_empty() && status.elections == 0 {
            return Ok(());
        }
        // A new cluster accepts its first nodes without an order.
        if alive && !status.buckets.is_empty() && status.controller.is_some() {
            for node in others {
                link.order(&json!({ "recover": node.id }))?;
            }
            link.order(&json!("rebalance"))?;
        }
        if begun.elapsed() > JOIN_LIMIT {
            let reason = "the nodes do not come together: settee cluster status tells more";
            return Err(Failure::new(Sysexit::TempFail, reason));
        }
        thread::sleep(LOOK);
    }
}

fn make_bucket(options: ConnectOptions) -> Result<(), Failure> {
    let mut link = MemberLink::open(options.clone())?;
    let (_, status) = link.status()?;
    if status.buckets.iter().any(|bucket| bucket.name == BUCKET) {
        return Ok(());
    }
    let form = [
        ("name", BUCKET),
        ("ramQuotaMB", "100"),
        ("replicaNumber", "1"),
        ("numVBuckets", "128"),
    ];
    let asked = Management::of(options)?.ask(Method::POST, "/pools/default/buckets", &form);
    asked.map(drop)
}

fn text(args: &DemoArgs, ports: &DemoPorts, ids: &[u32]) -> String {
    let nodes = NODES.iter().zip(ports.nodes).zip(ids);
    let line = |((name, (kv, http)), id): ((&&str, (u16, u16)), &u32)| {
        format!("  {name}  KV 127.0.0.1:{kv}  HTTP http://127.0.0.1:{http}  process {id}\n")
    };
    let nodes: Vec<String> = nodes.map(line).collect();
    let nodes = nodes.concat();
    let seeds = ports
        .nodes
        .map(|(kv, _)| format!("127.0.0.1:{kv}"))
        .join(",");
    let (kv, _) = ports.nodes[0];
    let last = ids.last().copied().unwrap_or_default();
    format!(
        "settee demo ready: cluster {CLUSTER}, bucket {BUCKET} with one replica, data and logs in {}\n{nodes}\n\
         SDKs connect to couchbase://{seeds} as Administrator, password password.\n\
         Kill a node, and see how the others take its part, half a minute after the first start at the earliest:\n  kill -9 {last}\n  \
         settee cluster status --connect couchbase://Administrator:password@127.0.0.1:{kv}\n\
         Ctrl-C ends all of it; the same command goes on with it.\n",
        args.data_dir.display()
    )
}
