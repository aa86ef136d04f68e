//! Encoded documents that are kept for later requests, up to a limit of bytes.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

/// Encoded documents by key, such as their hash; the oldest make room. The newest is kept whatever its size.
#[derive(Debug)]
pub struct KeptDocuments {
    bytes_max: usize,
    bodies: HashMap<Box<str>, Bytes>,
    /// In the order in which they were encoded.
    order: VecDeque<Box<str>>,
    bytes: usize,
}

impl KeptDocuments {
    /// Keeps documents of at most this many bytes together.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bodies: HashMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    /// The document of this key.
    pub fn find(&self, key: &str) -> Option<Bytes> {
        self.bodies.get(key).cloned()
    }

    /// Adds or replaces a document.
    pub fn insert(&mut self, key: &str, body: Bytes) {
        self.bytes += body.len();
        match self.bodies.insert(key.into(), body) {
            Some(replaced) => self.bytes -= replaced.len(),
            None => self.order.push_back(key.into()),
        }
        while self.bytes > self.bytes_max && self.order.len() > 1 {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(body) = self.bodies.remove(&oldest) {
                self.bytes -= body.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_documents_are_bounded_and_the_newest_stays() {
        let mut kept = KeptDocuments::new(100);
        let body = |size: usize| Bytes::from(vec![0; size]);
        kept.insert("a", body(50));
        kept.insert("b", body(50));
        assert!(kept.find("a").is_some() && kept.find("b").is_some());
        kept.insert("c", body(1));
        assert!(kept.find("a").is_none() && kept.find("b").is_some() && kept.find("c").is_some());
        kept.insert("c", body(2));
        assert_eq!((kept.order.len(), kept.bytes), (2, 52));
        kept.insert("d", body(101));
        assert_eq!((kept.order.len(), kept.bytes), (1, 101));
        assert!(kept.find("d").is_some());
    }
}
