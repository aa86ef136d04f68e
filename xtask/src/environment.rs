//! The one place where xtask reads its environment.

/// A variable that is set, is text and is not empty.
pub(crate) fn text_variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "xtask is a program; everything else here takes values")]
    let value = std::env::var(name).ok();
    value.filter(|value| !value.is_empty())
}

/// A variable that names a file or folder, made absolute: tests run in the folder of their package.
pub(crate) fn path_variable(name: &str) -> Option<std::path::PathBuf> {
    let path = text_variable(name)?;
    Some(std::path::absolute(&path).unwrap_or_else(|_| path.into()))
}

/// The variables that `cargo run` sets for the program it runs.
///
/// They describe xtask; a cargo started by xtask must not see them, or build scripts that watch them would rerun.
pub(crate) fn cargo_run_variables() -> Vec<std::ffi::OsString> {
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_str().is_some_and(ours)).collect()
}

/// The folders of `PATH`, in order.
pub(crate) fn path_folders() -> Vec<std::path::PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}
