//! What is at rest in the storage of a cluster, and what a change of release would do to it.
//!
//! Pure rules over stored bytes: no I/O, no clock. The caller reads the storage, read-only, and feeds every key with its
//! value to an [`InventoryBuilder`](inventory::InventoryBuilder).
//!
//! Reading order: [`envelope`] (what one value says of itself), [`encryption`] (values that are encrypted), [`key_layout`]
//! (which resource a key belongs to), [`inventory`] (the sums), [`clients`] (who uses which version), [`verdict`] (what another
//! release would do; `object_findings` looks into objects) and [`table`] (both as text). [`releases`] and [`flags`] are what
//! releases know of built-in kinds and of flags.

pub mod clients;
mod definitions;
pub mod encryption;
pub mod envelope;
pub mod flags;
pub mod inventory;
pub mod key_layout;
mod object_findings;
pub mod releases;
pub mod table;
pub mod verdict;
