//! Fuzz targets: one function per target, which checks invariants for any bytes.
//!
//! `fuzz/` calls them under cargo-fuzz for hours; the tests of this crate call them with seeded mutations for seconds.
//! A function panics if an invariant is broken. That parsers do not panic, recurse with their input or hang is checked
//! on the way.
//!
//! Invalid UTF-8 in text is replaced, because the server rejects it before any of these parsers.

mod accept_header;
mod cel;
mod discovery_json;
mod object_body;
mod patch;
mod pattern;
mod request_line;
mod selectors;
mod stored_object;
mod target;

pub use accept_header::accept_header;
pub use cel::{cel_compile, cel_evaluate};
pub use discovery_json::discovery_json;
pub use object_body::object_body;
pub use patch::patch;
pub use pattern::pattern;
pub use request_line::request_line;
pub use selectors::selectors;
pub use stored_object::stored_object;
pub use target::{FuzzTarget, TARGETS};
