//! Sockets: one accepting thread, one thread per core that serves connections.
//!
//! ```text
//!   accept thread --- hands out sockets ---> worker 0: tokio current_thread runtime
//!                                        \-> worker 1: tokio current_thread runtime
//!   worker: socket bytes -> Session::receive -> reply bytes -> socket, one connection at a time
//!   balance: how busy are workers and machine? -> crew: how many workers serve; connections move
//! ```
//!
//! This module is the only async part of the server besides HTTP.

mod accept;
mod balance;
mod buffers;
mod connection;
mod crew;
mod mailbox;
mod meter;
mod own_thread;
mod worker;

pub(crate) use accept::{Listener, bind};
pub(crate) use balance::balance;
pub(crate) use buffers::{Buffers, SMALL_BYTES, watch as watch_buffers};
pub(crate) use crew::Crew;
pub(crate) use mailbox::Mailbox;
pub(crate) use own_thread::OwnThreads;
pub(crate) use worker::Workers;
