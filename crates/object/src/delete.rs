//! Deleting an object: at once, or marked and waited for.

/// The finalizer that keeps an object until its dependents no longer name it as owner.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// The finalizer that keeps an object until its dependents are gone.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";
