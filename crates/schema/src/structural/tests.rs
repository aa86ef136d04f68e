//! Tests of structural schemas.

mod model;
mod properties;
mod replay;
