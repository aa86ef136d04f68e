//! Client libraries.

pub(crate) mod kube_rs;
mod python;
