//! Tests of the node over its own wire: raw frames in, raw frames out.

#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod attributes;
mod bootstrap;
mod client;
mod collections;
mod control;
mod crud;
mod dcp;
mod durable;
mod flow;
mod followed_settings;
mod golden;
mod handed_on;
mod hello;
mod legacy;
mod limits;
mod logins;
mod manifests;
mod memcached_port;
mod memcached_text;
mod observe;
mod order;
mod place;
mod promotion;
mod quiet;
mod scans;
mod stat_groups;
mod statistics;
mod subdoc;
mod values;
mod vbuckets;
mod with_meta;
mod with_meta_carried;
