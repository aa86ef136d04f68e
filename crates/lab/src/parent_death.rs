//! Processes that end with the one that started them, even if that one is killed.
//!
//! Linux sends a signal to a process whose parent dies, if it asked for that. Only the process itself can ask, so a child of the
//! lab is this program first: it asks, and then becomes what it was started for. The signal outlives the change.
//!
//! The parent is the *thread* that started the process, so the lab starts all of them on its main thread.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use tokio::process::Command;

/// The hidden command of `unskew` that ends in [`exit_with_parent`].
pub const TIED_TO_PARENT_COMMAND: &str = "leashed";

/// This program, also when its file was replaced by a newer build.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// This program with these arguments, on a leash, with its output in `log`.
pub(crate) fn command_tied_to_parent(
    args: impl IntoIterator<Item = impl Into<OsString>>,
    log: &Path,
) -> std::io::Result<Command> {
    // The last run's is worth keeping: it may say why it ended.
    let _ = std::fs::rename(log, log.with_extension("previous.log"));
    let output = std::fs::File::create(log)?;
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0("unskew").arg(TIED_TO_PARENT_COMMAND).arg(std::process::id().to_string());
    command.args(args.into_iter().map(Into::into));
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    // Ctrl-C in a terminal goes to the whole group: the lab shall stop its servers, not the terminal.
    command.process_group(0);
    Ok(command)
}

/// Ends this process when its parent ends. Fails if `parent` is gone already.
pub fn exit_with_parent(parent: u32) -> std::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let expected = i32::try_from(parent).ok().and_then(Pid::from_raw);
    if getppid() != expected {
        return Err(std::io::Error::other(format!("the lab of process {parent} has ended")));
    }
    Ok(())
}
