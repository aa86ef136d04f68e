//! Ports that nobody has.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Below those that Linux gives to outgoing connections, since a lab wants the same ones again after days.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 32_000;
/// So many are tried before we give up.
const ATTEMPTS_MAX: usize = 1000;

/// Gives one free port after another, each once.
#[derive(Debug)]
pub struct FreePorts {
    next: u16,
}

impl FreePorts {
    /// Begins somewhere, so that two labs made at once do not look at the same ports.
    pub fn new() -> Self {
        Self { next: fastrand::u16(FIRST_PORT..LAST_PORT) }
    }

    /// The next one.
    pub fn pick(&mut self) -> io::Result<u16> {
        for _ in 0..ATTEMPTS_MAX {
            let port = self.next;
            self.next = if port >= LAST_PORT { FIRST_PORT } else { port + 1 };
            if is_free(port) {
                return Ok(port);
            }
        }
        Err(io::Error::other(format!("all of {ATTEMPTS_MAX} ports between {FIRST_PORT} and {LAST_PORT} are taken")))
    }
}

impl Default for FreePorts {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether somebody could listen there now.
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
