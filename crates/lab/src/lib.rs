//! A mixed-version control plane on one machine: what `unskew up` runs.
//!
//! [`plan`] says which servers there are, [`data_dir`] remembers it, [`supervisor`] runs them as processes, [`load_balancer`] is the one
//! address in front of them, [`lab`] puts it together and [`control`] is how it is asked and told. [`status`] is what people,
//! programs and the page are shown; [`rollout`] moves the servers to other releases while [`probe`] watches what clients would
//! notice. Decisions are plain functions over values; only the supervisor starts and ends servers, and only it writes what the
//! folder remembers.

pub mod client;
pub mod cluster;
pub mod control;
pub mod data_dir;
pub mod demo;
mod etcd;
pub mod lab;
pub mod load_balancer;
pub mod page;
pub mod parent_death;
pub mod pki;
pub mod plan;
pub mod ports;
pub mod probe;
mod process_args;
pub mod rollout;
pub mod status;
pub mod supervisor;

pub use lab::{Config, DataDirRetention, Lab, LabError, LabHandle};
