//! Paths from the environment: the folder of the lab, and etcd.

use std::path::{Path, PathBuf};

use ::lab::data_dir::DataDir;
use anyhow::Context as _;

use super::args::DataDirArgs;

/// The folder of the lab that a command refers to.
pub(crate) fn data_dir(args: &DataDirArgs) -> anyhow::Result<DataDir> {
    match &args.data_dir {
        Some(folder) => Ok(DataDir::new(folder)),
        None => {
            let home = default_data_dir(path_from_env("XDG_DATA_HOME"), path_from_env("HOME"));
            Ok(DataDir::new(&home.context("there is no home folder: name the lab's folder with --data-dir")?))
        }
    }
}

fn default_data_dir(data_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let data_home = data_home.filter(|folder| folder.is_absolute());
    let base = data_home.or_else(|| home.map(|home| home.join(".local/share")))?;
    Some(base.join("unskew/lab"))
}

/// The program as it was called, for commands that users copy.
pub(super) fn program_name() -> String {
    std::env::args().next().unwrap_or_else(|| "unskew".to_owned())
}

/// The flags that select this lab; empty for the default one.
pub(super) fn data_dir_flag(layout: &DataDir) -> String {
    match self::data_dir(&DataDirArgs { data_dir: None }) {
        Ok(usual) if usual == *layout => String::new(),
        Ok(_) | Err(_) => format!(" --data-dir {}", layout.path().display()),
    }
}

/// An unused path for the folder of a temporary lab; nothing is created.
pub(super) fn temporary_data_dir() -> DataDir {
    DataDir::new(&std::env::temp_dir().join(format!("unskew-{}-{:08x}", std::process::id(), fastrand::u32(..))))
}

/// The path of etcd on PATH.
pub(super) fn find_etcd() -> Option<PathBuf> {
    let path = path_from_env("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("etcd")).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn path_from_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_data_dir_is_below_the_data_home() {
        let folder = |data: Option<&str>, home: Option<&str>| {
            default_data_dir(data.map(PathBuf::from), home.map(PathBuf::from))
                .map(|folder| folder.display().to_string())
        };
        assert_eq!(folder(Some("/d"), Some("/h")).as_deref(), Some("/d/unskew/lab"));
        assert_eq!(folder(None, Some("/h")).as_deref(), Some("/h/.local/share/unskew/lab"));
        assert_eq!(folder(Some("relative"), Some("/h")).as_deref(), Some("/h/.local/share/unskew/lab"));
        assert_eq!(folder(None, None), None);
    }
}
