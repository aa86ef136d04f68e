//! Keys in PEM and the few words of DER that tokens need.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// One block of a PEM file.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) label: String,
    pub(super) der: Vec<u8>,
}

/// The blocks of a PEM text whose contents are base64; text between blocks is a comment.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {label}-----");
        let body: String = lines.by_ref().take_while(|line| *line != end).collect();
        if let Ok(der) = STANDARD.decode(body) {
            blocks.push(Block { label: label.to_owned(), der });
        }
    }
    blocks
}

/// The contents of the DER value at the start, which must have this tag, and what follows it.
pub(super) fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Two bytes of length are 64 KiB; no key is longer.
        0x81 | 0x82 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    (found == tag).then_some(())?;
    rest.split_at_checked(length)
}

/// The tag of SEQUENCE.
pub(super) const SEQUENCE: u8 = 0x30;
/// The tag of INTEGER.
pub(super) const INTEGER: u8 = 0x02;
/// The tag of BIT STRING.
pub(super) const BIT_STRING: u8 = 0x03;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_among_comments() {
        let text = "a comment\n-----BEGIN A B-----\n  AQID\nBA==  \n-----END A B-----\n\n-----BEGIN BAD-----\n*\n-----END BAD-----\n-----BEGIN C-----\nBQ==";
        let found: Vec<(String, Vec<u8>)> = blocks(text).into_iter().map(|block| (block.label, block.der)).collect();
        assert_eq!(found, [("A B".to_owned(), vec![1, 2, 3, 4]), ("C".to_owned(), vec![5])]);
        assert!(blocks("").is_empty());
    }

    #[test]
    fn der_values_are_taken_off_the_front() {
        assert_eq!(value(&[2, 1, 7, 9], INTEGER), Some((&[7][..], &[9][..])));
        assert_eq!(value(&[2, 0x81, 1, 7], INTEGER), Some((&[7][..], &[][..])));
        assert_eq!(value(&[2, 0x82, 0, 1, 7], INTEGER), Some((&[7][..], &[][..])));
        for bad in [&[][..], &[2], &[2, 1], &[3, 1, 7], &[2, 0x83, 0, 0, 1, 7], &[2, 0x80, 7], &[2, 0x82, 0]] {
            assert_eq!(value(bad, INTEGER), None, "{bad:?}");
        }
    }
}
