//! Allocation of free loopback ports.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Below Linux's ephemeral range (32768 and up), so that a lab can reuse its ports after days.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 32_000;
/// Ports that [`FreePorts::pick`] tries before it fails.
const ATTEMPTS_MAX: usize = 1000;

/// Allocates free ports, each only once.
#[derive(Debug)]
pub struct FreePorts {
    next: u16,
}

impl FreePorts {
    /// Starts at a random port, so that labs created at the same time do not collide.
    pub fn new() -> Self {
        Self { next: fastrand::u16(FIRST_PORT..LAST_PORT) }
    }

    /// Returns the next port that can be bound.
    pub fn pick(&mut self) -> io::Result<u16> {
        for _ in 0..ATTEMPTS_MAX {
            let port = self.next;
            self.next = if port >= LAST_PORT { FIRST_PORT } else { port + 1 };
            if is_free(port) {
                return Ok(port);
            }
        }
        Err(io::Error::other(format!("{ATTEMPTS_MAX} ports tried between {FIRST_PORT} and {LAST_PORT}, all in use")))
    }
}

impl Default for FreePorts {
    fn default() -> Self {
        Self::new()
    }
}

/// True if the port can be bound on 127.0.0.1 now.
pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_returns_each_free_port_once() {
        let mut ports = FreePorts::new();
        let first = ports.pick().unwrap();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        assert!(!is_free(first));
        let mut again = FreePorts { next: first };
        assert_ne!(again.pick().unwrap(), first);
        assert_ne!(ports.pick().unwrap(), first);
    }
}
