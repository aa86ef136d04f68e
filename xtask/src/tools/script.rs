//! Start scripts for unpacked programs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a script that sets variables and runs a command: a program relative to the script's folder, and its
/// arguments.
///
/// In values `$here` stands for that folder, so that the folder can be moved. Variables with empty values are not set.
pub(crate) fn write_script(file: &Path, variables: &[(&str, &str)], command: &[&str]) -> Result<()> {
    let variables = variables.iter().filter(|(_, value)| !value.is_empty());
    let exports: String = variables.map(|(name, value)| format!("export {name}=\"{value}\"\n")).collect();
    let command = command.join(" ");
    let head = "#!/bin/sh\nhere=$(dirname \"$(readlink -f \"$0\")\")\n";
    fs::write(file, format!("{head}{exports}exec \"$here\"/{command} \"$@\"\n"))
        .with_context(|| format!("{} could not be written", file.display()))?;
    fs::set_permissions(file, Permissions::from_mode(0o755))?;
    Ok(())
}
