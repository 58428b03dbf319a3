//! Sockets: one accepting thread, one thread per core that serves connections.
//!
//! ```text
//!   accept thread --- hands out sockets ---> worker 0: its event loop, over the sockets that are ready
//!                                        \-> worker 1: the same
//!   a round: socket bytes -> Session::receive -> reply bytes -> socket, in groups of connections
//!   inbox: connections that arrive, bells of connections that have mail
//!   balance: load of workers and machine -> worker pool: sets how many workers serve; connections move
//! ```

mod accept;
mod balance;
mod connection;
mod event_loop;
mod idle_holders;
mod inbox;
mod meter;
mod own_thread;
mod state;
mod worker;
mod worker_pool;

pub(crate) use accept::{Listener, bind};
pub(crate) use balance::balance;
pub(crate) use connection::Arrival;
pub(crate) use idle_holders::watch as watch_buffers;
pub(crate) use own_thread::OwnThreads;
pub(crate) use state::NetState;
pub(crate) use worker::Workers;
pub(crate) use worker_pool::WorkerPool;
