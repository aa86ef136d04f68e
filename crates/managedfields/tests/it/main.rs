//! Sequences of writes, recorded from Kubernetes, properties of the merge, and decided differences to Kubernetes.

mod deviations;
mod properties;
mod recorded;
mod replay;
