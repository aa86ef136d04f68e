//! Harness of the whole-server tests: servers and etcd as real processes, and clients for them.
//!
//! Paths of binaries and tools come from environment variables that `cargo xtask test` sets; without them a test fails
//! with one clear line.
#![expect(clippy::missing_panics_doc, reason = "a test harness panics: that is how a test fails")]

pub mod browser;
pub mod client;
pub mod control_plane;
pub mod etcd;
pub mod extension_server;
pub mod gateway;
pub mod keep_alive;
pub mod kube_apiserver;
pub mod kube_programs;
pub mod lab;
pub mod process;
pub mod scripted_members;
pub mod server;
pub mod tools;
pub mod wait;
pub mod watch_reader;

pub use browser::Browser;
pub use client::Client;
pub use control_plane::ControlPlane;
pub use etcd::Etcd;
pub use gateway::RunningGateway;
pub use keep_alive::KeepAliveClient;
pub use lab::RunningLab;
pub use server::{RunningServer, TestStore};
pub use watch_reader::WatchReader;
