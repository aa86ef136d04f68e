//! Sequences of writes, recorded from Kubernetes.

mod replay;
