//! Client libraries.

mod kube_rs;
mod python;
