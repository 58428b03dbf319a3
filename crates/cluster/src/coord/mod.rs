//! The port to etcd, in terms of etcd v3: requests and answers as values, and a store that answers them.

mod port;
mod store;

pub use port::{
    Answer, Compare, KeyChange, KeyValue, LeaseId, OPS_MAX, Op, Range, Request, RequestId, Txn,
};
pub use store::KeyStore;
