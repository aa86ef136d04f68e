//! The catalogue through its public face, against documents of real servers.

mod real;
