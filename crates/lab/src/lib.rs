//! A mixed-version control plane on one machine: what `unskew up` runs.
//!
//! [`plan`] says which servers there are, [`folder`] remembers it, [`supervisor`] runs them as processes, [`door`] is the one
//! address in front of them. [`status`] is what people, programs and the page are shown; [`rollout`] moves the servers to other
//! releases while [`probe`] watches what clients would notice. Decisions are plain functions over values; only the supervisor
//! starts and ends processes, and only it writes the folder.

pub mod plan;
pub mod status;
