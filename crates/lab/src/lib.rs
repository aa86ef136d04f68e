//! A mixed-version control plane on one machine, as `unskew up` runs it.
//!
//! [`plan`] names the servers, [`data_dir`] stores the settings, [`supervisor`] runs the servers as processes,
//! [`load_balancer`] is the one address in front of them, [`lab`] assembles the parts and [`control`] is the API of a
//! running lab. [`status`] is the snapshot that the commands and the page show; [`rollout`] moves servers to other
//! releases while [`probe`] checks what clients would notice. Decisions are pure functions; only the supervisor starts
//! and stops servers and writes the state file.

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
