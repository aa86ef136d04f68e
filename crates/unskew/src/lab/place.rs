//! Where labs are, and where etcd is: what the environment says.

use std::path::{Path, PathBuf};

use ::lab::folder::Layout;
use anyhow::Context as _;

use super::args::Where;

/// The folder of the lab that is meant.
pub(super) fn layout(place: &Where) -> anyhow::Result<Layout> {
    match &place.data_dir {
        Some(folder) => Ok(Layout::new(folder)),
        None => {
            let home = default_folder(variable("XDG_DATA_HOME"), variable("HOME"));
            Ok(Layout::new(&home.context("there is no home folder: name the lab's folder with --data-dir")?))
        }
    }
}

fn default_folder(data_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let data_home = data_home.filter(|folder| folder.is_absolute());
    let base = data_home.or_else(|| home.map(|home| home.join(".local/share")))?;
    Some(base.join("unskew/lab"))
}

/// How this program was called, for commands that people may copy.
pub(super) fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "unskew".to_owned())
}

/// The flags that name this lab, if it is not the default one.
pub(super) fn flags(layout: &Layout) -> String {
    match self::layout(&Where { data_dir: None }) {
        Ok(usual) if usual == *layout => String::new(),
        Ok(_) | Err(_) => format!(" --data-dir {}", layout.folder().display()),
    }
}

/// A folder for a lab that leaves nothing behind.
pub(super) fn throw_away() -> Layout {
    Layout::new(&std::env::temp_dir().join(format!("unskew-{}-{:08x}", std::process::id(), fastrand::u32(..))))
}

/// The etcd on PATH.
pub(super) fn etcd() -> Option<PathBuf> {
    let path = variable("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("etcd")).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_live_in_the_data_home() {
        let folder = |data: Option<&str>, home: Option<&str>| {
            default_folder(data.map(PathBuf::from), home.map(PathBuf::from)).map(|folder| folder.display().to_string())
        };
        assert_eq!(folder(Some("/d"), Some("/h")).as_deref(), Some("/d/unskew/lab"));
        assert_eq!(folder(None, Some("/h")).as_deref(), Some("/h/.local/share/unskew/lab"));
        assert_eq!(folder(Some("relative"), Some("/h")).as_deref(), Some("/h/.local/share/unskew/lab"));
        assert_eq!(folder(None, None), None);
    }
}
