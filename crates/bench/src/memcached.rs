//! A memcached process to compare with, started for the run and ended after it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Address, ConnectOptions};

use crate::error::{Cause, Error};
use crate::plan::Plan;

/// Number of threads, as many as a node uses on the machine of the published figures.
const THREADS: &str = "2";
/// Memory in MiB.
const MEMORY_MIB: &str = "1024";
/// Largest value that memcached stores by default, without its own overhead.
const VALUE_BYTES_DEFAULT_MAX: usize = 1_000_000;
const START_TIMEOUT: Duration = Duration::from_secs(10);
const START_POLL: Duration = Duration::from_millis(5);

/// A running memcached. Dropping the value ends the process.
#[derive(Debug)]
pub(crate) struct Memcached {
    child: Child,
    port: u16,
}

impl Memcached {
    /// Starts `program` on a free loopback port and waits until it accepts connections.
    ///
    /// # Errors
    /// The program is missing (the message tells how to install it) or does not start.
    pub(crate) fn start(program: &str, plan: &Plan) -> Result<Self, Error> {
        let port = free_port().map_err(|error| {
            Error::new(
                Cause::Machine,
                format!("no free port for memcached: {error}"),
            )
        })?;
        let mut command = Command::new(program);
        command
            .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0"])
            .args(["-t", THREADS, "-m", MEMORY_MIB])
            .args(["-c", &(plan.connections + 64).to_string()])
            // Without a user, memcached refuses to run as root; otherwise it ignores the option.
            .args(["-u", "root"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if plan.sizes.most > VALUE_BYTES_DEFAULT_MAX {
            command.args(["-I", "32m"]);
        }
        let child = command
            .spawn()
            .map_err(|error| spawn_failure(program, &error))?;
        let mut memcached = Self { child, port };
        memcached.wait_until_it_accepts(program)?;
        Ok(memcached)
    }

    fn wait_until_it_accepts(&mut self, program: &str) -> Result<(), Error> {
        let started = Instant::now();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        loop {
            if TcpStream::connect_timeout(&address, START_TIMEOUT).is_ok() {
                return Ok(());
            }
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || started.elapsed() > START_TIMEOUT {
                let state = ended.map_or("does not accept".to_owned(), |status| status.to_string());
                let message = format!("{program} on port {}: {state}", self.port);
                return Err(Error::new(Cause::Machine, message));
            }
            std::thread::sleep(START_POLL);
        }
    }

    /// Returns the options to connect to it.
    pub(crate) fn server(&self, timeout: Duration) -> ConnectOptions {
        let address = Address {
            host: Ipv4Addr::LOCALHOST.to_string(),
            port: self.port,
            login: None,
            over_tls: false,
        };
        ConnectOptions {
            address,
            tls: None,
            timeout,
            compressed: false,
        }
    }

    /// Id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // Fails only if the process has already ended.
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

fn spawn_failure(program: &str, error: &io::Error) -> Error {
    let message = match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{program} is not there; install it (Debian, Ubuntu: apt-get install memcached; \
             Fedora: dnf install memcached; macOS: brew install memcached) or name its path: \
             --vs-memcached PATH"
        ),
        _ => format!("cannot start {program}: {error}"),
    };
    Error::new(Cause::Unavailable, message)
}
