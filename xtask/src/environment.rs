//! The one place where xtask reads its environment.

/// Returns a variable that is set, valid UTF-8 and not empty.
pub(crate) fn text_variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the only place in xtask that reads variables")]
    let value = std::env::var(name).ok();
    value.filter(|value| !value.is_empty())
}

/// Returns a path from a variable, made absolute because tests run in their package's folder.
pub(crate) fn path_variable(name: &str) -> Option<std::path::PathBuf> {
    let path = text_variable(name)?;
    Some(std::path::absolute(&path).unwrap_or_else(|_| path.into()))
}

/// Names of the variables that `cargo run` sets for xtask.
///
/// A cargo started by xtask must not inherit them, or build scripts that watch them would rerun.
pub(crate) fn cargo_run_variables() -> Vec<std::ffi::OsString> {
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_str().is_some_and(ours)).collect()
}

/// Folders of `PATH`, in order.
pub(crate) fn path_folders() -> Vec<std::path::PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}
