//! Ports that nobody has.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Below those that Linux gives to outgoing connections, since a lab wants the same ones again after days.
const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;
/// So many are tried before we give up.
const TRIES_MAX: usize = 1000;

/// Gives one free port after another, each once.
#[derive(Debug)]
pub struct FreePorts {
    next: u16,
}

impl FreePorts {
    /// Begins somewhere, so that two labs made at once do not look at the same ports.
    pub fn new() -> Self {
        Self { next: fastrand::u16(FIRST..LAST) }
    }

    /// The next one.
    pub fn pick(&mut self) -> io::Result<u16> {
        for _ in 0..TRIES_MAX {
            let port = self.next;
            self.next = if port >= LAST { FIRST } else { port + 1 };
            if is_free(port) {
                return Ok(port);
            }
        }
        Err(io::Error::other(format!("all of {TRIES_MAX} ports between {FIRST} and {LAST} are taken")))
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
    fn a_port_is_given_once_and_only_if_it_is_free() {
        let mut ports = FreePorts::new();
        let first = ports.pick().unwrap();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        assert!(!is_free(first));
        let mut again = FreePorts { next: first };
        assert_ne!(again.pick().unwrap(), first);
        assert_ne!(ports.pick().unwrap(), first);
    }
}
