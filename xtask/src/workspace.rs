//! The checkout, and cargo commands in it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::environment;
use crate::process::TimedCommand;

/// `cargo metadata --no-deps` reads a few files.
const METADATA_TIMEOUT: Duration = Duration::from_secs(60);

/// The checkout that xtask was built from.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Cargo's target folder, as configured by the user.
    pub(crate) target: PathBuf,
    /// Output of `cargo metadata --no-deps`: our packages.
    pub(crate) metadata: Value,
}

impl Workspace {
    pub(crate) fn open() -> Result<Workspace> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?.to_owned();
        let job = cargo(&root, "metadata", METADATA_TIMEOUT).args(["--locked", "--format-version", "1", "--no-deps"]);
        let metadata: Value = serde_json::from_str(&job.output_text()?).context("cargo metadata wrote no JSON")?;
        let target = metadata["target_directory"].as_str().context("cargo metadata names no target folder")?.into();
        Ok(Workspace { root, target, metadata })
    }

    /// A cargo command in the root of the checkout, using the cargo that runs xtask.
    pub(crate) fn cargo(&self, command: &str, limit: Duration) -> TimedCommand {
        cargo(&self.root, command, limit)
    }

    /// Path of a binary of the test-profile build.
    pub(crate) fn debug_binary(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    /// Folder of the `dist` profile's binaries and of the packages.
    pub(crate) fn dist(&self) -> PathBuf {
        self.target.join("dist")
    }

    /// Folder of the provided tools, kept until `cargo clean`.
    pub(crate) fn tools_dir(&self) -> PathBuf {
        self.target.join("tools")
    }
}

fn cargo(root: &Path, command: &str, limit: Duration) -> TimedCommand {
    let program = environment::text_variable("CARGO").unwrap_or_else(|| "cargo".to_owned());
    let job = TimedCommand::new(program, limit).arg(command).current_dir(root);
    environment::cargo_run_variables().iter().fold(job, TimedCommand::env_remove)
}
