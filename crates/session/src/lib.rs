//! A conversation: frames in, bytes out. Commands, sub-documents, the producer of change streams.
//!
//! This crate must not know sockets, threads, HTTP, files or a clock. It reaches the process around it
//! through [`registry::Env`].
//!
//! ```text
//!   bytes -> Session::receive -> execute: checks -> the opcode's row -> command(Context, Frame) -> answer -> bytes
//!                                  a command that waits stays in the input, and is run again when woken
//!   ready vBuckets -> Session::produce -> Producer -> bytes
//! ```

mod access;
mod admission;
mod answer;
mod audit_lines;
mod authorize;
mod certified;
mod commands;
mod congestion;
mod context;
pub mod dcp;
mod dispatch;
mod features;
mod impersonate;
mod incoming;
mod incoming_value;
mod key;
mod login;
mod outcome;
mod owed;
mod park;
mod pending_value;
mod prefetch;
mod receive;
mod recording;
mod reply;
mod scanning;
mod session;
mod settle;
mod status;
mod text;

pub use commands::opcodes_page;
pub use outcome::Refusal;
pub use receive::{Received, Verdict};
pub use session::{Door, Session};
