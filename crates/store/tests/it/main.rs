//! The tests of the store: one conformance suite for every backend, and tests of each backend.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod compaction;
mod conformance;
mod etcd_cluster;
mod etcd_conformance;
mod etcd_faults;
mod etcd_leases;
mod etcd_limits;
mod etcd_members;
mod etcd_probe_connection;
mod etcd_tls;
mod faulty_store;
mod memory_store;
mod proxy;
mod scan;
mod sqlite_commit;
mod sqlite_conformance;
mod sqlite_crash;
mod sqlite_disk;
mod sqlite_maintenance;
mod sqlite_open;
mod sqlite_power_loss;
mod sqlite_process;
mod sqlite_sharing;
mod sqlite_ttl;
