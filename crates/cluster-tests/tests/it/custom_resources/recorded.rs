//! Objects of definitions in the manner of popular projects get the recorded verdicts of a kube-apiserver.
//!
//! `UNSKEW_REAL_RECORD=1 cargo xtask real definitions` records them.

use super::*;
use crate::validation::manifests::{definitions_folder, kinds_of, read_manifests};
use crate::validation::recording::Recordings;
use crate::validation::replay_on;
use crate::{block_on, start_on_sqlite};

#[test]
fn recorded_definitions_are_replayed_with_known_differences_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &["--emulated-version=1.36"]);
    let kinds = kinds_of(read_manifests(&definitions_folder().join("objects.json")).into_iter());
    let failures = block_on(async {
        let client = server.admin();
        for definition in read_manifests(&definitions_folder().join("definitions.json")) {
            define(&client, &definition).await;
        }
        replay_on(client, "definitions", &Recordings::of_definitions(), &kinds).await
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
