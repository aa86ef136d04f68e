//! `target/tools`: one folder per tool, each with a stamp that says what it was made from.
//!
//! Invariants: one process at a time works on the shelf; a tool is made in a folder beside its place and renamed into it
//! when finished, so an interrupted download leaves nothing that looks like a tool; a tool whose recipe or whose
//! executable's checksum is not the stamped one is made again.

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
    /// Held as long as the shelf is open.
    _lock: File,
}

/// A finished tool.
pub(crate) struct CachedTool {
    pub(crate) folder: PathBuf,
    pub(crate) executable: PathBuf,
    pub(crate) version: String,
    pub(crate) origin: String,
}

/// What a finished tool is stamped with.
pub(crate) struct ToolStamp<'a> {
    /// Everything that decides how it is made; another recipe makes it anew.
    pub(crate) recipe: &'a str,
    /// Inside the tool's folder.
    pub(crate) executable: &'a str,
    pub(crate) version: String,
    pub(crate) origin: String,
}

impl ToolCache {
    /// Makes the folder if need be, and waits for other runs to be done with it.
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
                    bail!("{} is held by another run of xtask since long; is one hanging?", file.display())
                }
                TryLockError::WouldBlock => thread::sleep(LOCK_POLL_INTERVAL),
            }
        }
        Ok(ToolCache { folder: folder.to_owned(), _lock: lock })
    }

    /// The finished tool, if it was made by this recipe and is unharmed.
    pub(crate) fn find_tool(&self, name: &str, recipe: &str) -> Option<CachedTool> {
        let folder = self.folder.join(name);
        let stamp = fs::read_to_string(folder.join(STAMP_FILE)).ok()?;
        let field = |key: &str| stamp.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()));
        let executable = folder.join(field("executable:")?);
        let unharmed = field("recipe:")? == recipe && field("sha256:")? == sha256(&executable).ok()?;
        let (version, origin) = (field("version:")?, field("origin:")?);
        unharmed.then_some(CachedTool { folder, executable, version, origin })
    }

    /// An empty folder to make a tool in.
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

/// A tool in the making; dropped, it is removed.
pub(crate) struct ToolStaging {
    folder: PathBuf,
    destination: PathBuf,
}

impl ToolStaging {
    /// What becomes the tool's folder.
    pub(crate) fn tool_dir(&self) -> PathBuf {
        self.folder.join("tool")
    }

    /// For downloads and package lists; it goes when the tool is finished.
    pub(crate) fn scratch_dir(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    /// Stamps the tool and puts it in its place.
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

/// The checksum of a file, by the system's own program.
pub(crate) fn sha256(file: &Path) -> Result<String> {
    let output = TimedCommand::new("sha256sum", HASH_TIMEOUT).arg("--").arg(file).output_text()?;
    let hash = output.split_whitespace().next().unwrap_or_default().trim_start_matches('\\');
    if hash.len() != 64 {
        bail!("sha256sum wrote `{output}` for {}", file.display());
    }
    Ok(hash.to_owned())
}

/// A short mark that differs if the text differs; for recipes, where nobody would forge one.
pub(crate) fn fingerprint(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shelf of its own, removed at the end.
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
