//! What is fuzzed: one function per target, from any bytes to a check of what must hold for them.
//!
//! `fuzz/` calls these under cargo-fuzz, for hours; the tests of this crate call the same ones with seeded mutations, for
//! seconds. Every function panics if an invariant is broken and returns otherwise; that parsers do not panic, recurse with
//! their input or hang is checked on the way.
//!
//! Text is taken as it comes: invalid UTF-8 is replaced, because the server refuses it before any of these parsers.

mod accept_header;
mod discovery_json;
mod object_body;
mod patch;
mod request_line;
mod selectors;
mod stored_object;
mod target;

pub use accept_header::accept_header;
pub use discovery_json::discovery_json;
pub use object_body::object_body;
pub use patch::patch;
pub use request_line::request_line;
pub use selectors::selectors;
pub use stored_object::stored_object;
pub use target::{FuzzTarget, TARGETS};
