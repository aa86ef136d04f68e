//! Tests of structural schemas.

mod model;
