//! Time that never jumps, the same for all processes of one machine.

use std::fmt;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Counts from the start of the machine. Wall clocks are set, and a key must not die of that.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Names the current run of the machine: after a restart the count begins anew, and old instants mean nothing.
    fn boot_id(&self) -> io::Result<String>;

    /// How long the machine has been up, including the time it slept.
    fn since_boot(&self) -> Duration;
}

/// The kernel's. Processes in a time namespace with an offset of its own cannot share a store with others.
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
