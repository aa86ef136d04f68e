//! The etcd backend: real etcd v3 over gRPC.
