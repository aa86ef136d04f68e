//! Sequences of writes, recorded from Kubernetes, and properties of the merge.

mod properties;
mod recorded;
mod replay;
