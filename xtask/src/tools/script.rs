//! Small scripts that run an unpacked program where it lies.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a script that sets variables and runs a program, given relative to the script's folder.
///
/// In values `$here` is that folder, so that the folder can be moved. A variable that would be empty is left alone.
pub(crate) fn write(file: &Path, variables: &[(&str, &str)], program: &str) -> Result<()> {
    let variables = variables.iter().filter(|(_, value)| !value.is_empty());
    let exports: String = variables.map(|(name, value)| format!("export {name}=\"{value}\"\n")).collect();
    let text =
        format!("#!/bin/sh\nhere=$(dirname \"$(readlink -f \"$0\")\")\n{exports}exec \"$here/{program}\" \"$@\"\n");
    fs::write(file, text).with_context(|| format!("{} could not be written", file.display()))?;
    fs::set_permissions(file, Permissions::from_mode(0o755))?;
    Ok(())
}
