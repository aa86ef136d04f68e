//! The tool cache `target/tools`: one folder per tool, with a stamp file that records how it was made.
//!
//! Invariants: one process at a time uses the cache; a tool is built in a staging folder and renamed when finished, so
//! that an interrupted download leaves no broken tool; a tool is built again if its recipe or its executable's checksum
//! differs from the stamp.

use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::TimedCommand;

/// Another run may be downloading a browser.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15 * 60);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Hashing a file takes milliseconds.
const HASH_TIMEOUT: Duration = Duration::from_secs(60);

const STAMP_FILE: &str = "STAMP";

pub(crate) struct ToolCache {
    folder: PathBuf,
    /// Held while the cache is open.
    _lock: File,
}

/// A finished tool.
pub(crate) struct CachedTool {
    pub(crate) folder: PathBuf,
    pub(crate) executable: PathBuf,
    pub(crate) version: String,
    pub(crate) origin: String,
}

/// Metadata of a finished tool, written to its stamp file.
pub(crate) struct ToolStamp<'a> {
    /// Everything that determines how the tool is built; a changed recipe rebuilds it.
    pub(crate) recipe: &'a str,
    /// Path relative to the tool's folder.
    pub(crate) executable: &'a str,
    pub(crate) version: String,
    pub(crate) origin: String,
}

impl ToolCache {
    /// Creates the folder if needed, and waits until other runs have released it.
    pub(crate) fn open(folder: &Path) -> Result<ToolCache> {
        fs::create_dir_all(folder).with_context(|| format!("{} could not be made", folder.display()))?;
        let file = folder.join("LOCK");
        let lock = File::create(&file).with_context(|| format!("{} could not be opened", file.display()))?;
        let started = Instant::now();
        while let Err(error) = lock.try_lock() {
            match error {
                TryLockError::Error(error) => {
                    return Err(error).context(format!("{} cannot be locked", file.display()));
                }
                TryLockError::WouldBlock if started.elapsed() > LOCK_TIMEOUT => {
                    bail!("{} has been locked by another xtask for 15 minutes; is one hanging?", file.display())
                }
                TryLockError::WouldBlock => thread::sleep(LOCK_POLL_INTERVAL),
            }
        }
        Ok(ToolCache { folder: folder.to_owned(), _lock: lock })
    }

    /// Returns the finished tool if its recipe and checksum match the stamp.
    pub(crate) fn find_tool(&self, name: &str, recipe: &str) -> Option<CachedTool> {
        let folder = self.folder.join(name);
        let stamp = fs::read_to_string(folder.join(STAMP_FILE)).ok()?;
        let field = |key: &str| stamp.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()));
        let executable = folder.join(field("executable:")?);
        let unharmed = field("recipe:")? == recipe && field("sha256:")? == sha256(&executable).ok()?;
        let (version, origin) = (field("version:")?, field("origin:")?);
        unharmed.then_some(CachedTool { folder, executable, version, origin })
    }

    /// Creates an empty staging folder for a tool.
    pub(crate) fn start_staging(&self, name: &str) -> Result<ToolStaging> {
        let stage =
            ToolStaging { folder: self.folder.join(format!("{name}.unfinished")), destination: self.folder.join(name) };
        remove_folder_if_exists(&stage.folder)?;
        fs::create_dir_all(stage.tool_dir())
            .with_context(|| format!("{} could not be made", stage.folder.display()))?;
        fs::create_dir_all(stage.scratch_dir())?;
        Ok(stage)
    }
}

/// A tool that is being built; removed on drop unless installed.
pub(crate) struct ToolStaging {
    folder: PathBuf,
    destination: PathBuf,
}

impl ToolStaging {
    /// The folder that becomes the tool's folder.
    pub(crate) fn tool_dir(&self) -> PathBuf {
        self.folder.join("tool")
    }

    /// Folder for downloads and package lists, removed when the tool is finished.
    pub(crate) fn scratch_dir(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    /// Writes the stamp and moves the tool into its place.
    pub(crate) fn install(self, label: ToolStamp<'_>) -> Result<CachedTool> {
        let ToolStamp { recipe, executable, version, origin } = label;
        let sha256 = sha256(&self.tool_dir().join(executable))?;
        let stamp = format!(
            "recipe: {recipe}\nversion: {version}\norigin: {origin}\nexecutable: {executable}\nsha256: {sha256}\n"
        );
        fs::write(self.tool_dir().join(STAMP_FILE), stamp)?;
        remove_folder_if_exists(&self.destination)?;
        fs::rename(self.tool_dir(), &self.destination)
            .with_context(|| format!("{} could not be put in place", self.destination.display()))?;
        Ok(CachedTool {
            folder: self.destination.clone(),
            executable: self.destination.join(executable),
            version,
            origin,
        })
    }
}

impl Drop for ToolStaging {
    fn drop(&mut self) {
        if let Err(error) = remove_folder_if_exists(&self.folder) {
            eprintln!("{error:#}");
        }
    }
}

fn remove_folder_if_exists(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} could not be removed", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// SHA-256 of a file, computed by `sha256sum`.
pub(crate) fn sha256(file: &Path) -> Result<String> {
    let output = TimedCommand::new("sha256sum", HASH_TIMEOUT).arg("--").arg(file).output_text()?;
    let hash = output.split_whitespace().next().unwrap_or_default().trim_start_matches('\\');
    if hash.len() != 64 {
        bail!("sha256sum wrote `{output}` for {}", file.display());
    }
    Ok(hash.to_owned())
}

/// A short non-cryptographic hash, to detect changed recipes.
pub(crate) fn fingerprint(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary cache, removed on drop.
    struct CacheTestFolder(PathBuf);

    impl CacheTestFolder {
        fn new(name: &str) -> CacheTestFolder {
            CacheTestFolder(std::env::temp_dir().join(format!("xtask-shelf-{name}-{}", std::process::id())))
        }

        fn install_tool(&self, recipe: &str) -> CachedTool {
            let stage = ToolCache::open(&self.0).unwrap().start_staging("spoon").unwrap();
            fs::write(stage.tool_dir().join("run"), "#!/bin/sh\n").unwrap();
            let (version, origin) = ("1.0".to_owned(), "here".to_owned());
            stage.install(ToolStamp { recipe, executable: "run", version, origin }).unwrap()
        }

        fn find_tool(&self, recipe: &str) -> Option<CachedTool> {
            ToolCache::open(&self.0).unwrap().find_tool("spoon", recipe)
        }
    }

    impl Drop for CacheTestFolder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn installed_tool_is_found_again() {
        let scene = CacheTestFolder::new("found");
        let made = scene.install_tool("a");
        let found = scene.find_tool("a").unwrap();
        assert_eq!(
            (found.executable, found.version, found.origin),
            (made.executable, "1.0".to_owned(), "here".to_owned())
        );
        assert!(!scene.0.join("spoon.unfinished").exists());
    }

    #[test]
    fn changed_recipe_or_file_invalidates_the_cached_tool() {
        let scene = CacheTestFolder::new("changed");
        let made = scene.install_tool("a");
        assert!(scene.find_tool("b").is_none());
        fs::write(made.executable, "#!/bin/sh\nexit 1\n").unwrap();
        assert!(scene.find_tool("a").is_none());
        scene.install_tool("b");
        assert!(scene.find_tool("b").is_some());
    }

    #[test]
    fn unfinished_tool_is_not_found() {
        let scene = CacheTestFolder::new("unfinished");
        let stage = ToolCache::open(&scene.0).unwrap().start_staging("spoon").unwrap();
        fs::write(stage.tool_dir().join("run"), "#!/bin/sh\n").unwrap();
        assert!(scene.find_tool("a").is_none());
        drop(stage);
        assert!(!scene.0.join("spoon.unfinished").exists());
    }
}
