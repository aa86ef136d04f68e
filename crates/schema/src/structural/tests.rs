//! Tests of structural schemas.

mod model;
mod replay;
