//! A monotonic clock that all processes of one machine share.

use std::fmt;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the boot of the machine. Wall clocks can be set, which must not expire keys.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Identifies the current boot: after a reboot the clock restarts, and earlier times have no meaning.
    fn boot_id(&self) -> io::Result<String>;

    /// The time since boot, including suspend.
    fn since_boot(&self) -> Duration;
}

/// The kernel's boot-time clock. Processes in time namespaces with different offsets cannot share a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelClock;

impl Clock for KernelClock {
    fn boot_id(&self) -> io::Result<String> {
        Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    fn since_boot(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
    }
}
