//! Fuzz targets: one function per target, which checks invariants for any bytes.
//!
//! `fuzz/` calls them under cargo-fuzz for hours; the tests of this crate call them with seeded mutations for seconds.
//! A function panics if an invariant is broken. That parsers do not panic, recurse with their input or hang is checked
//! on the way.
//!
//! Invalid UTF-8 in text is replaced, because the server rejects it before any of these parsers.

mod accept_header;
mod cel;
mod certificate;
mod discovery_json;
mod forwarded_headers;
mod object_body;
mod patch;
mod pattern;
mod protobuf_body;
mod request_line;
mod selectors;
mod stored_object;
mod target;
mod token;
mod yaml_body;

pub use accept_header::accept_header;
pub use cel::{cel_compile, cel_evaluate};
pub use certificate::certificate;
pub use discovery_json::discovery_json;
pub use forwarded_headers::forwarded_headers;
pub use object_body::object_body;
pub use patch::patch;
pub use pattern::pattern;
pub use protobuf_body::protobuf_body;
pub use request_line::request_line;
pub use selectors::selectors;
pub use stored_object::stored_object;
pub use target::{FuzzTarget, TARGETS};
pub use token::token;
pub use yaml_body::yaml_body;
