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

use crate::process::Job;

/// Another run may be downloading a browser.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(15 * 60);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Hashing a file takes milliseconds.
const HASH_LIMIT: Duration = Duration::from_secs(60);

const STAMP: &str = "STAMP";

pub(crate) struct Shelf {
    folder: PathBuf,
    /// Held as long as the shelf is open.
    _lock: File,
}

/// A finished tool.
pub(crate) struct Shelved {
    pub(crate) folder: PathBuf,
    pub(crate) executable: PathBuf,
    pub(crate) version: String,
    pub(crate) origin: String,
}

/// What a finished tool is stamped with.
pub(crate) struct Label<'a> {
    /// Everything that decides how it is made; another recipe makes it anew.
    pub(crate) recipe: &'a str,
    /// Inside the tool's folder.
    pub(crate) executable: &'a str,
    pub(crate) version: String,
    pub(crate) origin: String,
}

impl Shelf {
    /// Makes the folder if need be, and waits for other runs to be done with it.
    pub(crate) fn open(folder: &Path) -> Result<Shelf> {
        fs::create_dir_all(folder).with_context(|| format!("{} could not be made", folder.display()))?;
        let file = folder.join("LOCK");
        let lock = File::create(&file).with_context(|| format!("{} could not be opened", file.display()))?;
        let started = Instant::now();
        while let Err(error) = lock.try_lock() {
            match error {
                TryLockError::Error(error) => {
                    return Err(error).context(format!("{} cannot be locked", file.display()));
                }
                TryLockError::WouldBlock if started.elapsed() > LOCK_WAIT_MAX => {
                    bail!("{} is held by another run of xtask since long; is one hanging?", file.display())
                }
                TryLockError::WouldBlock => thread::sleep(LOCK_POLL_INTERVAL),
            }
        }
        Ok(Shelf { folder: folder.to_owned(), _lock: lock })
    }

    /// The finished tool, if it was made by this recipe and is unharmed.
    pub(crate) fn find(&self, name: &str, recipe: &str) -> Option<Shelved> {
        let folder = self.folder.join(name);
        let stamp = fs::read_to_string(folder.join(STAMP)).ok()?;
        let field = |key: &str| stamp.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()));
        let executable = folder.join(field("executable:")?);
        let unharmed = field("recipe:")? == recipe && field("sha256:")? == sha256(&executable).ok()?;
        let (version, origin) = (field("version:")?, field("origin:")?);
        unharmed.then_some(Shelved { folder, executable, version, origin })
    }

    /// An empty folder to make a tool in.
    pub(crate) fn stage(&self, name: &str) -> Result<Stage> {
        let stage = Stage { folder: self.folder.join(format!("{name}.unfinished")), place: self.folder.join(name) };
        remove(&stage.folder)?;
        fs::create_dir_all(stage.tool()).with_context(|| format!("{} could not be made", stage.folder.display()))?;
        fs::create_dir_all(stage.scratch())?;
        Ok(stage)
    }
}

/// A tool in the making; dropped, it is removed.
pub(crate) struct Stage {
    folder: PathBuf,
    place: PathBuf,
}

impl Stage {
    /// What becomes the tool's folder.
    pub(crate) fn tool(&self) -> PathBuf {
        self.folder.join("tool")
    }

    /// For downloads and package lists; it goes when the tool is finished.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.folder.join("scratch")
    }

    /// Stamps the tool and puts it in its place.
    pub(crate) fn finish(self, label: Label<'_>) -> Result<Shelved> {
        let Label { recipe, executable, version, origin } = label;
        let sha256 = sha256(&self.tool().join(executable))?;
        let stamp = format!(
            "recipe: {recipe}\nversion: {version}\norigin: {origin}\nexecutable: {executable}\nsha256: {sha256}\n"
        );
        fs::write(self.tool().join(STAMP), stamp)?;
        remove(&self.place)?;
        fs::rename(self.tool(), &self.place)
            .with_context(|| format!("{} could not be put in place", self.place.display()))?;
        Ok(Shelved { folder: self.place.clone(), executable: self.place.join(executable), version, origin })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            eprintln!("{error:#}");
        }
    }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} could not be removed", folder.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The checksum of a file, by the system's own program.
pub(crate) fn sha256(file: &Path) -> Result<String> {
    let output = Job::new("sha256sum", HASH_LIMIT).arg("--").arg(file).output()?;
    let hash = output.split_whitespace().next().unwrap_or_default().trim_start_matches('\\');
    if hash.len() != 64 {
        bail!("sha256sum wrote `{output}` for {}", file.display());
    }
    Ok(hash.to_owned())
}

/// A short mark that differs if the text differs; for recipes, where nobody would forge one.
pub(crate) fn mark(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shelf of its own, removed at the end.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Scene {
            Scene(std::env::temp_dir().join(format!("xtask-shelf-{name}-{}", std::process::id())))
        }

        fn make(&self, recipe: &str) -> Shelved {
            let stage = Shelf::open(&self.0).unwrap().stage("spoon").unwrap();
            fs::write(stage.tool().join("run"), "#!/bin/sh\n").unwrap();
            let (version, origin) = ("1.0".to_owned(), "here".to_owned());
            stage.finish(Label { recipe, executable: "run", version, origin }).unwrap()
        }

        fn find(&self, recipe: &str) -> Option<Shelved> {
            Shelf::open(&self.0).unwrap().find("spoon", recipe)
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_finished_tool_is_found_again() {
        let scene = Scene::new("found");
        let made = scene.make("a");
        let found = scene.find("a").unwrap();
        assert_eq!(
            (found.executable, found.version, found.origin),
            (made.executable, "1.0".to_owned(), "here".to_owned())
        );
        assert!(!scene.0.join("spoon.unfinished").exists());
    }

    #[test]
    fn another_recipe_or_a_changed_file_is_made_again() {
        let scene = Scene::new("changed");
        let made = scene.make("a");
        assert!(scene.find("b").is_none());
        fs::write(made.executable, "#!/bin/sh\nexit 1\n").unwrap();
        assert!(scene.find("a").is_none());
        scene.make("b");
        assert!(scene.find("b").is_some());
    }

    #[test]
    fn an_unfinished_tool_is_not_there() {
        let scene = Scene::new("unfinished");
        let stage = Shelf::open(&scene.0).unwrap().stage("spoon").unwrap();
        fs::write(stage.tool().join("run"), "#!/bin/sh\n").unwrap();
        assert!(scene.find("a").is_none());
        drop(stage);
        assert!(!scene.0.join("spoon.unfinished").exists());
    }
}
